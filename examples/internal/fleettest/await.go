package fleettest

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Eventually waits until ok returns true, and until the test ends at the latest. The test
// fails with a message if that takes longer than within.
func Eventually(tb testing.TB, within time.Duration, ok func() bool, message func() string) {
	tb.Helper()
	err := wait.PollUntilContextTimeout(tb.Context(), 5*time.Millisecond, within, true, func(context.Context) (bool, error) {
		return ok(), nil
	})
	if err != nil {
		tb.Errorf("after %v: %s", within, message())
	}
}
