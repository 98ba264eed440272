//go:build go1.25

package syncgate_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that subscriptions and runs leave nothing behind.

func TestSubscribeAndStopLeakNothing(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		before := runtime.NumGoroutine()
		for range 10_000 {
			f.gate.OnChange(func(syncgate.Change) {})()
			f.hub.OnChange(func(syncgate.Change) {})()
		}
		synctest.Wait()
		if n := syncgate.Subscriptions(f.hub, f.gate); n != 0 {
			t.Errorf("%d subscriptions are kept; want none", n)
		}
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines; want no more than before, %d", after, before)
		}
	})
}

func TestStartAndStopLeakNothing(t *testing.T) {
	server := tu.NewAPIServer(cluster())
	defer server.Close()
	wait := patience(t)
	before := goleak.IgnoreCurrent()
	for range 200 {
		gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		stop := start(context.Background(), t, gate.Run)
		if err := gate.WaitForSync(wait); err != nil {
			t.Fatal(err)
		}
		stop()
	}
	if err := tu.NoLeaks(before); err != nil {
		t.Error(err)
	}
}
