package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check the gate under load, in real time, with operations and readers
// that race the flips.

// running returns a hub that runs and has synced with initial. It runs in real time,
// since a bubble would be too slow for load tests and benchmarks.
func running(tb testing.TB, initial ...any) (*syncgate.Hub, *tu.Source) {
	tb.Helper()
	source := tu.NewSource()
	hub, err := syncgate.NewHub(source, syncgate.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	start(context.Background(), tb, hub.Run)
	ctx := patience(tb)
	if err := source.WaitForHandler(ctx); err != nil {
		tb.Fatal(err)
	}
	source.Add(initial...)
	source.Sync()
	if err := hub.WaitForSync(ctx); err != nil {
		tb.Fatal(err)
	}
	return hub, source
}

// inParallel calls fn again and again in n goroutines. stop ends that and waits for
// the calls.
func inParallel(tb testing.TB, n int, fn func()) (stop func()) {
	done := make(chan struct{})
	var workers sync.WaitGroup
	for range n {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for {
				select {
				case <-done:
					return
				default:
					fn()
				}
			}
		}()
	}
	stop = sync.OnceFunc(func() { close(done); workers.Wait() })
	tb.Cleanup(stop)
	return stop
}

// A caller that has observed a closed gate starts no operation until the gate opens
// again, however the flips race the operations.
func TestFlipsUnderLoad(t *testing.T) {
	obj := cluster()
	hub, source := running(t, obj)
	gate := hub.Gate(id)

	// closed counts the flips that the test has observed. It is odd from when the
	// gate was observed closed until just before it opens.
	var closed, admitted, refused, notified atomic.Int64
	gate.OnChange(func(syncgate.Change) { notified.Add(1) })
	stop := inParallel(t, 8, func() {
		before := closed.Load()
		err := gate.Do(context.Background(), func(ctx context.Context) error {
			if before%2 == 1 && closed.Load() == before {
				t.Error("an operation started after the gate was observed closed")
			}
			return gate.Do(ctx, nothing)
		})
		switch {
		case err == nil:
			admitted.Add(1)
		case errors.Is(err, syncgate.ErrPaused):
			refused.Add(1)
		default:
			t.Errorf("Do = %v", err)
		}
	})
	ctx := patience(t)
	for range 500 {
		source.Update(nil, tu.With(obj, tu.Paused(true)))
		if !gate.Paused() || !gate.State().Paused {
			t.Fatal("open after the pause was processed")
		}
		closed.Add(1)
		if err := gate.WaitDrained(ctx); err != nil {
			t.Fatal(err)
		}
		if n := gate.InFlight(); n != 0 {
			t.Fatalf("InFlight() = %d after WaitDrained", n)
		}
		closed.Add(1)
		source.Update(nil, tu.With(obj, tu.Paused(false)))
		if err := gate.WaitOpen(ctx); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if gate.Paused() || gate.InFlight() != 0 {
		t.Errorf("after the last resume Paused() = %v, InFlight() = %d; want false and 0", gate.Paused(), gate.InFlight())
	}
	t.Logf("admitted %d, refused %d, notified %d times", admitted.Load(), refused.Load(), notified.Load())
}

// Neither Paused nor State is open while the gate is known to be paused.
func TestStateAndPausedAgreeUnderLoad(t *testing.T) {
	obj := cluster()
	hub, source := running(t, obj)
	gate := hub.Gate(id)
	var flips atomic.Int64 // odd only while the gate can't be open
	stop := inParallel(t, 4, func() {
		before := flips.Load()
		if before%2 == 1 && (!gate.Paused() || !gate.State().Paused) && flips.Load() == before {
			t.Error("open while it was known to be paused")
		}
	})
	for range 1000 {
		source.Update(nil, tu.With(obj, tu.Paused(true)))
		flips.Add(1)
		flips.Add(1)
		source.Update(nil, tu.With(obj, tu.Paused(false)))
	}
	stop()
}

func TestSyncedMeansThatEveryGateIsDecided(t *testing.T) {
	const clusters = 20_000
	objects := make([]any, clusters)
	for i := range objects {
		objects[i] = tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster-", i))
	}
	hub, _ := running(t, objects...)
	for i := range objects {
		if g := hub.Gate(types.UID(fmt.Sprint("cluster-", i))); g.Paused() {
			t.Fatalf("after the sync State() = %+v; want Open", g.State())
		}
	}
}
