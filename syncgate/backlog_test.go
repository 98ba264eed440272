//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that nothing refused is lost: a parked key is requeued once after
// its gate opens, and nothing else is.

func TestParkedKeysAreRequeuedOnce(t *testing.T) {
	obj := cluster(tu.Paused(true))
	other := tu.ManagedCluster("other", "child", "other", tu.Held("backup", "nightly"))
	inBubble(t, syncgate.Options{}, []any{obj, other}, func(t *testing.T, f *fixture) {
		var requeued recorder
		b := syncgate.NewBacklog(requeued.add)
		park := func(g *syncgate.Gate, keys ...string) {
			t.Helper()
			for _, key := range keys {
				if parked, err := b.Do(t.Context(), g, key, nothing); !parked || err != nil {
					t.Errorf("Do(%s) = %v, %v; want true, nil", key, parked, err)
				}
			}
		}
		otherGate := f.hub.Gate("other")
		park(f.gate, "a", "b", "a", "forgotten")
		park(otherGate, "b", "c", "forgotten")
		if b.Len() != 6 || f.gate.Stats().Parked != 3 {
			t.Errorf("Len() = %d, Stats() = %+v; want 6, and 3 parked", b.Len(), f.gate.Stats())
		}
		b.Forget("forgotten")
		b.Forget("never parked")
		requeued.want(t)

		// Another holder keeps the gate closed.
		both := tu.With(obj, tu.Held("backup", "nightly"))
		f.Update(obj, both)
		requeued.want(t)
		open := tu.With(both, tu.Unpaused(), tu.Released("backup"))
		f.Update(both, open)
		requeued.want(t, "a", "b") // and no key of the other gate
		if b.Len() != 2 {
			t.Errorf("Len() = %d; want 2 of the other gate", b.Len())
		}

		// An open gate parks nothing, whatever fn returns.
		fnErr := fmt.Errorf("of another gate: %w", syncgate.ErrPaused)
		if parked, err := b.Do(t.Context(), f.gate, "a", func(context.Context) error { return fnErr }); parked || err != fnErr {
			t.Errorf("Do = %v, %v; want false and fn's own error", parked, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errCause)
		if parked, err := b.Do(ctx, otherGate, "a", nothing); parked || !errors.Is(err, errCause) {
			t.Errorf("Do = %v, %v; want false and the cause", parked, err)
		}
		f.Update(open, tu.With(open, tu.Paused(true)))
		f.Update(nil, tu.With(open, tu.Paused(false)))
		requeued.want(t)

		f.stop()
		if b.Len() != 0 {
			t.Errorf("Len() = %d after the end; want 0", b.Len())
		}
		if parked, err := b.Do(t.Context(), otherGate, "c", nothing); parked || !errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("Do after the end = %v, %v; want false, ErrStopped", parked, err)
		}
		requeued.want(t)
	})
}

// The gate may open between the refusal and the parking. A key that is parked then
// would never be requeued.
func TestNothingIsParkedAtAnOpenGate(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		b := syncgate.NewBacklog(func(string) {})
		if parked, err := syncgate.Park(b, f.gate, "a"); parked || err != nil || b.Len() != 0 {
			t.Errorf("parked at an open gate: %v, %v, Len() = %d; want nothing", parked, err, b.Len())
		}
	})
}

// A process that starts while the cluster is paused, or before its state is known,
// loses no key that its informers deliver.
func TestParkedBeforeTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, syncgate.Options{})
		var requeued recorder
		b := syncgate.NewBacklog(requeued.add)
		if parked, err := b.Do(t.Context(), f.gate, "early", nothing); !parked || err != nil {
			t.Errorf("Do before the sync = %v, %v; want true, nil", parked, err)
		}
		obj := cluster(tu.Paused(true))
		f.Add(obj)
		f.sync()
		requeued.want(t)
		f.Update(obj, tu.With(obj, tu.Paused(false)))
		requeued.want(t, "early")
	})
}

// When the gate closes during a replay, the rest stays parked.
func TestReplayStopsWhenTheGateCloses(t *testing.T) {
	paused := cluster(tu.Paused(true))
	open := tu.With(paused, tu.Paused(false))
	inBubble(t, syncgate.Options{}, []any{paused}, func(t *testing.T, f *fixture) {
		step := make(chan string)
		b := syncgate.NewBacklog(func(key string) { step <- key })
		// A callback that blocks does not delay the replay.
		block := make(chan struct{})
		defer close(block)
		f.gate.OnChange(func(syncgate.Change) { <-block })
		for i := range 10 {
			_, _ = b.Do(t.Context(), f.gate, fmt.Sprint(i), nothing)
		}
		f.Update(paused, open)
		got := map[string]bool{<-step: true}
		synctest.Wait()
		f.Update(open, tu.With(paused, tu.Paused(true)))
		got[<-step] = true // it was taken before
		synctest.Wait()
		select {
		case key := <-step:
			t.Errorf("%s was requeued while the gate is closed", key)
		default:
		}
		if b.Len() != 8 {
			t.Errorf("Len() = %d; want 8", b.Len())
		}
		f.Update(nil, open)
		for range 8 {
			got[<-step] = true
		}
		if len(got) != 10 || b.Len() != 0 {
			t.Errorf("%d keys were requeued, %d are parked; want 10 and 0", len(got), b.Len())
		}
	})
}

// Keys are requeued in the order of parking, and a key that is parked and forgotten
// again and again needs no memory.
func TestBacklogKeepsOrderAndFreesMemory(t *testing.T) {
	paused := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{paused}, func(t *testing.T, f *fixture) {
		var requeued []int
		b := syncgate.NewBacklog(func(key int) { requeued = append(requeued, key) })
		park := func(key int) { _, _ = b.Do(t.Context(), f.gate, key, nothing) }
		for key := range 100 {
			park(key)
		}
		before := heap()
		for key := range 100_000 {
			park(1000 + key)
			b.Forget(1000 + key)
		}
		if grown := int64(heap()) - int64(before); grown > 1<<18 {
			t.Errorf("%d bytes are kept for keys that were forgotten", grown)
		}
		b.Forget(50)
		park(50) // it is the last now
		b.Forget(7)
		park(3)
		f.Update(paused, tu.With(paused, tu.Unpaused()))
		synctest.Wait()
		var want []int
		for key := range 100 {
			if key != 7 && key != 50 {
				want = append(want, key)
			}
		}
		if diff := cmp.Diff(append(want, 50), requeued); diff != "" {
			t.Errorf("requeued (-want +got):\n%s", diff)
		}
	})
}

// requeue may call anything of the backlog and the gate.
func TestRequeueMayCallAnything(t *testing.T) {
	paused := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{paused}, func(t *testing.T, f *fixture) {
		var requeued recorder
		var b *syncgate.Backlog[string]
		b = syncgate.NewBacklog(func(key string) {
			requeued.add(key)
			b.Forget(key)
			_ = b.Len()
			_, _ = b.Do(context.Background(), f.gate, key, nothing)
			_ = f.gate.Stats()
		})
		_, _ = b.Do(t.Context(), f.gate, "a", nothing)
		f.Update(paused, tu.With(paused, tu.Unpaused()))
		requeued.want(t, "a")
	})
}

func TestNewBacklogOfNil(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("NewBacklog(nil) did not panic")
		}
	}()
	syncgate.NewBacklog[string](nil)
}
