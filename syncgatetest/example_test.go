package syncgatetest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/clusternet/syncgate/syncgate"
	"github.com/clusternet/syncgate/syncgatetest"
)

// deploy is what is tested: it applies an application, unless its cluster is paused.
func deploy(ctx context.Context, gate *syncgate.Gate, apply func(context.Context) error) (skipped bool, err error) {
	err = gate.Do(ctx, apply)
	if errors.Is(err, syncgate.ErrPaused) {
		return true, nil
	}
	return false, err
}

func Example() {
	_ = func(t *testing.T) {
		hub := syncgatetest.NewHub(t, "id-of-child")
		hub.Pause("id-of-child")
		skipped, err := deploy(context.Background(), hub.Gate("id-of-child"), func(context.Context) error {
			t.Error("applied to a paused cluster")
			return nil
		})
		if !skipped || err != nil {
			t.Errorf("deploy = %v, %v; want skipped", skipped, err)
		}
	}
	// Output:
}
