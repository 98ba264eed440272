//go:build go1.25

package syncgate_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check the callbacks of OnChange: the gate changes first, one goroutine
// calls them in order and without a lock, each subscriber has its own chain of
// changes, and a slow callback delays nothing but callbacks.

func TestPausedIsSetBeforeCallbacks(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		calls := 0
		f.gate.OnChange(func(c syncgate.Change) {
			calls++
			if f.gate.Paused() != c.New.Paused || f.gate.State().Reason != c.New.Reason {
				t.Errorf("in the callback of %s: Paused() = %v", c.New.Reason, f.gate.Paused())
			}
		})
		for i := range 10 {
			synctest.Wait()
			next := tu.With(obj, tu.Paused(i%2 == 0))
			f.Update(obj, next)
			obj = next
		}
		synctest.Wait()
		if calls != 11 {
			t.Errorf("%d calls; want 11", calls)
		}
	})
}

func TestBlockedCallback(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		release := make(chan struct{})
		var first, second recorder
		f.gate.OnChange(func(c syncgate.Change) { first.change(c); <-release })
		f.gate.OnChange(second.change)
		first.want(t, "NotSynced>SyncAllowed")
		second.want(t) // it is delayed, and nothing else is

		flip := func(paused bool) {
			next := tu.With(obj, tu.Paused(paused))
			f.Update(obj, next)
			obj = next
			if f.gate.Paused() != paused {
				t.Errorf("Paused() = %v; want %v however long a callback takes", f.gate.Paused(), paused)
			}
		}
		for range 500 {
			flip(true)
			flip(false)
		}
		close(release)
		// All flips are merged to one pair, not to nothing: a subscriber that was
		// refused in between waits for an opening.
		first.want(t, "SyncAllowed>SyncPaused", "SyncPaused>SyncAllowed")
		second.want(t, "NotSynced>SyncAllowed")
		flip(true)
		first.want(t, "SyncAllowed>SyncPaused")
		second.want(t, "SyncAllowed>SyncPaused")
		for range 500 {
			flip(false)
			flip(true)
		}
		synctest.Wait()
		first.take() // how the flips were merged depends on the order of goroutines
		second.take()
	})
}

// A gate that opens and closes again has not changed for a subscriber that knows it
// as closed.
func TestMergedToNothing(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		release := make(chan struct{})
		var got recorder
		f.gate.OnChange(func(c syncgate.Change) { got.change(c); <-release })
		got.want(t, "NotSynced>SyncPaused")
		open := tu.With(obj, tu.Unpaused())
		f.Update(obj, open)
		f.Update(open, tu.With(open, tu.Paused(true)))
		close(release)
		got.want(t)
	})
}

func TestEachSubscriberHasItsChain(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var early, late recorder
		f.gate.OnChange(early.change)
		early.want(t, "NotSynced>SyncAllowed")
		paused := tu.With(obj, tu.Paused(true))
		f.Update(obj, paused)
		early.want(t, "SyncAllowed>SyncPaused")
		stop := f.gate.OnChange(late.change)
		late.want(t, "NotSynced>SyncPaused") // at once
		early.want(t)
		stop()
		stop() // twice is harmless
		f.Update(paused, tu.With(paused, tu.Paused(false)))
		early.want(t, "SyncPaused>SyncAllowed")
		late.want(t)
	})
}

// A subscriber that stops while another callback for the same change runs is not
// called.
func TestStopTakesEffectAtOnce(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var first, second recorder
		block := make(chan struct{})
		f.gate.OnChange(func(c syncgate.Change) {
			first.change(c)
			if c.New.Paused {
				<-block
			}
		})
		stop := f.gate.OnChange(second.change)
		second.want(t, "NotSynced>SyncAllowed")
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		first.want(t, "NotSynced>SyncAllowed", "SyncAllowed>SyncPaused")
		stop()
		close(block)
		second.want(t)
	})
}

func TestCallbacksMayCallAnything(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		calls := 0
		var nested recorder
		stops := make(chan func(), 1) // the first call may come before OnChange returns
		stops <- f.hub.OnChange(func(c syncgate.Change) {
			calls++
			g := f.hub.Gate(c.ClusterID)
			_, _ = f.hub.GateOf(ns, "child")
			f.hub.Gate("made in a callback")
			_ = g.State()
			_ = g.Check(nil)
			_ = f.hub.Check(nil)
			_ = g.WaitForSync(t.Context())
			_ = g.Do(t.Context(), func(context.Context) error { return nil })
			_ = g.InFlight()
			for range f.hub.Gates() {
				_ = f.hub.Name()
			}
			g.OnChange(nested.change)
			(<-stops)()
		})
		synctest.Wait()
		nested.want(t, "NotSynced>SyncAllowed")
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		nested.want(t, "SyncAllowed>SyncPaused")
		if calls != 1 {
			t.Errorf("%d calls; want 1: it stopped itself", calls)
		}
	})
}

func TestCallbacksNeverOverlapAndKeepOrder(t *testing.T) {
	inBubble(t, syncgate.Options{}, nil, func(t *testing.T, f *fixture) {
		var running atomic.Int32
		var order []string
		for _, name := range []string{"a", "b"} {
			f.hub.OnChange(func(c syncgate.Change) {
				if running.Add(1) != 1 {
					t.Error("two callbacks at the same time")
				}
				time.Sleep(time.Second)
				order = append(order, name+" "+string(c.ClusterID))
				running.Add(-1)
			})
		}
		for i := range 3 {
			f.Add(tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster", i)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"a cluster0", "b cluster0", "a cluster1", "b cluster1", "a cluster2", "b cluster2"}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("order of calls (-want +got):\n%s", diff)
		}
	})
}

func TestNoCallbackRunsAfterRun(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		var running atomic.Bool
		calls := 0
		f.gate.OnChange(func(syncgate.Change) {
			running.Store(true)
			calls++
			time.Sleep(time.Hour)
			running.Store(false)
		})
		synctest.Wait()
		f.Update(nil, cluster(tu.Paused(true)))
		f.stop()
		if running.Load() {
			t.Error("a callback runs after Run has returned")
		}
		f.gate.OnChange(func(syncgate.Change) { calls++ })
		time.Sleep(time.Hour)
		if calls != 1 {
			t.Errorf("%d calls; want 1: none starts after the end", calls)
		}
	})
}
