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

// running returns a hub that runs and has synced, in real time, for what a bubble
// would slow down.
func running(tb testing.TB, initial ...any) (*syncgate.Hub, *tu.Source) {
	tb.Helper()
	source := tu.NewSource()
	hub, err := syncgate.NewHub(source, syncgate.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Add(1)
	go func() {
		defer run.Done()
		if err := hub.Run(ctx); err != nil {
			tb.Errorf("Run = %v", err)
		}
	}()
	tb.Cleanup(func() { cancel(); run.Wait() })
	for source.Handlers() == 0 {
		// The first list must not be over before the hub can see it.
		if err := ctx.Err(); err != nil {
			tb.Fatal(err)
		}
	}
	source.Add(initial...)
	source.Sync()
	if err := hub.WaitForSync(ctx); err != nil {
		tb.Fatal(err)
	}
	return hub, source
}

// What a reader has seen closed admits nothing until it opens again, however the
// flips race the operations.
func TestFlipsUnderLoad(t *testing.T) {
	obj := cluster()
	hub, source := running(t, obj)
	gate := hub.Gate(id)

	// seen is odd while the flipping side has seen the gate closed and has not
	// asked for its opening yet.
	var seen, admitted, refused atomic.Int64
	var told atomic.Int64
	gate.OnChange(func(syncgate.Change) { told.Add(1) })
	done := make(chan struct{})
	var workers sync.WaitGroup
	for range 8 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for {
				select {
				case <-done:
					return
				default:
				}
				before := seen.Load()
				err := gate.Do(context.Background(), func(ctx context.Context) error {
					if before%2 == 1 && seen.Load() == before {
						t.Error("an operation began after the gate was seen closed")
					}
					return gate.Do(ctx, func(context.Context) error { return nil })
				})
				switch {
				case err == nil:
					admitted.Add(1)
				case errors.Is(err, syncgate.ErrPaused):
					refused.Add(1)
				default:
					t.Errorf("Do = %v", err)
				}
			}
		}()
	}
	for i := range 1000 {
		next := tu.With(obj, tu.Paused(i%2 == 0))
		if i%2 == 1 {
			seen.Add(1) // even: it is about to open
		}
		source.Update(obj, next)
		obj = next
		if i%2 == 0 {
			if !gate.Paused() || !gate.State().Paused {
				t.Fatal("open after the pause was processed")
			}
			seen.Add(1) // odd: seen closed
			if err := gate.WaitDrained(context.Background()); err != nil {
				t.Fatal(err)
			}
			if n := gate.InFlight(); n != 0 {
				t.Fatalf("InFlight() = %d after WaitDrained", n)
			}
		} else if err := gate.WaitOpen(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	workers.Wait()
	if gate.Paused() || gate.InFlight() != 0 {
		t.Errorf("in the end Paused() = %v, InFlight() = %d; want the object's false, and 0", gate.Paused(), gate.InFlight())
	}
	t.Logf("admitted %d, refused %d, told %d", admitted.Load(), refused.Load(), told.Load())
}

// Readers that look at Paused, State, and each other never see them disagree in
// the direction that hurts.
func TestStateAndPausedAgreeUnderLoad(t *testing.T) {
	obj := cluster()
	hub, source := running(t, obj)
	gate := hub.Gate(id)
	var pausedBefore atomic.Bool // true only while the gate can't be open
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				select {
				case <-done:
					return
				default:
				}
				if pausedBefore.Load() && (!gate.Paused() || !gate.State().Paused) && pausedBefore.Load() {
					t.Error("open while it was known to be paused")
				}
			}
		}()
	}
	for i := range 2000 {
		pausedBefore.Store(false)
		next := tu.With(obj, tu.Paused(i%2 == 0))
		source.Update(obj, next)
		obj = next
		pausedBefore.Store(i%2 == 0)
	}
	close(done)
	readers.Wait()
}

func TestC1SyncedMeansThatEveryGateShowsIt(t *testing.T) {
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
