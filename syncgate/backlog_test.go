//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

var nothing = func(context.Context) error { return nil }

// requeued collects what a backlog hands over.
type requeued struct {
	mu   sync.Mutex
	keys []string
}

func (r *requeued) add(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, key)
}

func (r *requeued) wants(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.keys)
	if diff := cmp.Diff(want, r.keys); diff != "" {
		t.Errorf("requeued (-want +got):\n%s", diff)
	}
	r.keys = nil
}

func TestC8ParkedKeysComeBackOnce(t *testing.T) {
	obj := cluster(tu.Paused(true))
	other := tu.ManagedCluster("other", "child", "other", tu.Held("backup", "nightly"))
	inBubble(t, syncgate.Options{}, []any{obj, other}, func(t *testing.T, f *fixture) {
		var back requeued
		b := syncgate.NewBacklog(back.add)
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
		back.wants(t)

		// Who holds changes, that it is held does not.
		both := tu.With(obj, tu.Held("backup", "nightly"))
		f.Update(obj, both)
		back.wants(t)
		open := tu.With(both, tu.Unpaused(), tu.Released("backup"))
		f.Update(both, open)
		back.wants(t, "a", "b") // and nothing of the other
		if b.Len() != 2 {
			t.Errorf("Len() = %d; want 2 of the other gate", b.Len())
		}

		// What is done while the gate is open parks nothing.
		fnErr := fmt.Errorf("of another gate: %w", syncgate.ErrPaused)
		if parked, err := b.Do(t.Context(), f.gate, "a", func(context.Context) error { return fnErr }); parked || err != fnErr {
			t.Errorf("Do = %v, %v; want false and fn's own error", parked, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errEnded)
		if parked, err := b.Do(ctx, otherGate, "a", nothing); parked || !errors.Is(err, errEnded) {
			t.Errorf("Do = %v, %v; want false and the cause", parked, err)
		}
		f.Update(open, tu.With(open, tu.Paused(true)))
		f.Update(nil, tu.With(open, tu.Paused(false)))
		back.wants(t)

		f.stop()
		if b.Len() != 0 {
			t.Errorf("Len() = %d after the end; want 0", b.Len())
		}
		if parked, err := b.Do(t.Context(), otherGate, "c", nothing); parked || !errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("Do after the end = %v, %v; want false, ErrStopped", parked, err)
		}
		back.wants(t)
	})
}

// A gate that opens between the refusal and the parking would leave the key behind.
func TestC8NothingIsParkedAtAnOpenGate(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		b := syncgate.NewBacklog(func(string) {})
		if parked, err := syncgate.Park(b, f.gate, "a"); parked || err != nil || b.Len() != 0 {
			t.Errorf("parked at an open gate: %v, %v, Len() = %d; want nothing", parked, err, b.Len())
		}
	})
}

// A process that starts while the cluster is paused, or before that is known,
// loses nothing of what its informers show it.
func TestC8ParkedBeforeTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, syncgate.Options{})
		var back requeued
		b := syncgate.NewBacklog(back.add)
		if parked, err := b.Do(t.Context(), f.gate, "early", nothing); !parked || err != nil {
			t.Errorf("Do before the sync = %v, %v; want true, nil", parked, err)
		}
		obj := cluster(tu.Paused(true))
		f.Add(obj)
		f.sync()
		back.wants(t)
		f.Update(obj, tu.With(obj, tu.Paused(false)))
		back.wants(t, "early")
	})
}

// The rest stays parked when the gate closes in the midst of the replay.
func TestC8ReplayStopsWhenTheGateCloses(t *testing.T) {
	paused := cluster(tu.Paused(true))
	open := tu.With(paused, tu.Paused(false))
	inBubble(t, syncgate.Options{}, []any{paused}, func(t *testing.T, f *fixture) {
		step := make(chan string)
		b := syncgate.NewBacklog(func(key string) { step <- key })
		// A callback that blocks holds up no replay.
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
		got[<-step] = true // it was on its way
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
			t.Errorf("%d keys came back, %d are left; want 10 and 0", len(got), b.Len())
		}
	})
}

// What was parked first comes back first, and what is parked and forgotten again
// and again takes no room.
func TestC8OrderAndRoom(t *testing.T) {
	paused := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{paused}, func(t *testing.T, f *fixture) {
		var back []int
		b := syncgate.NewBacklog(func(key int) { back = append(back, key) })
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
		park(50) // anew: it is the last now
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
		if diff := cmp.Diff(append(want, 50), back); diff != "" {
			t.Errorf("requeued (-want +got):\n%s", diff)
		}
	})
}

// requeue may call anything of the backlog and the gate.
func TestC8RequeueMayCallAnything(t *testing.T) {
	paused := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{paused}, func(t *testing.T, f *fixture) {
		var back requeued
		var b *syncgate.Backlog[string]
		b = syncgate.NewBacklog(func(key string) {
			back.add(key)
			b.Forget(key)
			_ = b.Len()
			_, _ = b.Do(context.Background(), f.gate, key, nothing)
			_ = f.gate.Stats()
		})
		_, _ = b.Do(t.Context(), f.gate, "a", nothing)
		f.Update(paused, tu.With(paused, tu.Unpaused()))
		back.wants(t, "a")
	})
}

// TestC8Property parks and flips at random, from many goroutines at once: each key
// that was parked comes back exactly once.
func TestC8Property(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { propertyOfBacklog(t, seed) })
	}
}

func propertyOfBacklog(t *testing.T, seed uint64) {
	const gates, workers, keys = 3, 4, 50
	objs := make([]any, gates)
	for i := range objs {
		objs[i] = tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster-", i), tu.Paused(true))
	}
	hub, source := running(t, objs...)
	type key struct{ gate, worker, n int }
	var mu sync.Mutex
	parked, back := map[key]int{}, map[key]int{}
	b := syncgate.NewBacklog(func(k key) {
		mu.Lock()
		defer mu.Unlock()
		back[k]++
	})
	done := make(chan struct{})
	var flipping, working sync.WaitGroup
	for i := range gates {
		flipping.Add(1)
		go func() {
			defer flipping.Done()
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			obj := tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster-", i))
			for n := 0; ; n++ {
				select {
				case <-done:
					source.Update(nil, tu.With(obj, tu.Paused(false)))
					return
				default:
				}
				source.Update(nil, tu.With(obj, tu.Paused(n%2 == 0)))
				for range random.IntN(200) {
					_ = hub.Gate("cluster-0").Paused()
				}
			}
		}()
	}
	for w := range workers {
		working.Add(1)
		go func() {
			defer working.Done()
			random := rand.New(rand.NewPCG(seed, uint64(100+w)))
			for n := range keys * 20 {
				k := key{random.IntN(gates), w, n}
				gate := hub.Gate(types.UID(fmt.Sprint("cluster-", k.gate)))
				ok, err := b.Do(context.Background(), gate, k, nothing)
				if err != nil {
					t.Errorf("Do = %v", err)
				}
				if ok {
					mu.Lock()
					parked[k]++
					mu.Unlock()
				}
				if random.IntN(10) == 0 {
					b.Forget(key{-1, w, n}) // never parked
				}
			}
		}()
	}
	working.Wait()
	close(done)
	flipping.Wait()
	for deadline := time.Now().Add(10 * time.Second); b.Len() > 0 && time.Now().Before(deadline); {
		for i := range gates {
			_ = hub.Gate(types.UID(fmt.Sprint("cluster-", i))).WaitOpen(context.Background())
		}
	}
	// The last key that was taken may be on its way still.
	if err := eventually(func() bool { mu.Lock(); defer mu.Unlock(); return len(back) == len(parked) }); err != nil {
		t.Errorf("%d keys were parked, %d came back", len(parked), len(back))
	}
	mu.Lock()
	defer mu.Unlock()
	for k, n := range back {
		if n != 1 || parked[k] != 1 {
			t.Errorf("key %v was parked %d times and came back %d times", k, parked[k], n)
		}
	}
	if len(parked) == 0 {
		t.Error("nothing was parked: the test has tested nothing")
	}
	if b.Len() != 0 {
		t.Errorf("Len() = %d; want 0", b.Len())
	}
}

func eventually(is func() bool) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if is() {
			return nil
		}
	}
	return errors.New("not within ten seconds")
}

// What was forgotten while the gate was closed does not come back, whatever else
// goes on.
func TestC8ForgottenKeysStayAway(t *testing.T) {
	paused := cluster(tu.Paused(true))
	open := tu.With(paused, tu.Paused(false))
	hub, source := running(t, paused)
	gate := hub.Gate(id)
	var forgotten sync.Map
	b := syncgate.NewBacklog(func(key int) {
		if _, ok := forgotten.Load(key); ok {
			t.Errorf("%d came back after it was forgotten", key)
		}
	})
	for round := range 20 {
		var parkers sync.WaitGroup
		for w := range 4 {
			parkers.Add(1)
			go func() {
				defer parkers.Done()
				for i := range 200 {
					key := round*1000 + w*200 + i
					if parked, _ := b.Do(context.Background(), gate, key, nothing); parked && i%3 == 0 {
						b.Forget(key)
						forgotten.Store(key, true)
					}
				}
			}()
		}
		parkers.Wait()
		source.Update(paused, open)
		if err := eventually(func() bool { return b.Len() == 0 }); err != nil {
			t.Fatal(err)
		}
		source.Update(open, paused)
	}
}

func TestStats(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		_ = f.gate.Do(t.Context(), func(ctx context.Context) error { return f.gate.Do(ctx, nothing) })
		for i := range 5 {
			next := tu.With(obj, tu.Paused(i%2 == 0))
			f.Update(obj, next)
			obj = next
		}
		_ = f.gate.Do(t.Context(), nothing)
		_ = f.gate.Do(t.Context(), nothing)
		f.stop()
		want := syncgate.Stats{Admitted: 1, Refused: 2, Pauses: 3, Resumes: 2}
		if diff := cmp.Diff(want, f.gate.Stats()); diff != "" {
			t.Errorf("Stats() (-want +got):\n%s", diff)
		}
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

// BenchmarkReplay replays 100,000 keys into a workqueue, beside adding them to one
// without a backlog, and tells what a parked key costs beyond itself.
func BenchmarkReplay(b *testing.B) {
	const keys = 100_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("namespace/description-%d", i)
	}
	b.Run("workqueue alone", func(b *testing.B) {
		for range b.N {
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
			for _, name := range names {
				queue.Add(name)
			}
			queue.ShutDown()
		}
	})
	b.Run("backlog", func(b *testing.B) { benchmarkReplay(b, names) })
}

func benchmarkReplay(b *testing.B, names []string) {
	keys := len(names)
	paused := cluster(tu.Paused(true))
	open := tu.With(paused, tu.Paused(false))
	hub, source := running(b, paused)
	gate := hub.Gate(id)
	for range b.N {
		b.StopTimer()
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		backlog := syncgate.NewBacklog(queue.Add)
		before := heap()
		for _, name := range names {
			if parked, err := backlog.Do(context.Background(), gate, name, nothing); !parked || err != nil {
				b.Fatal(parked, err)
			}
		}
		b.ReportMetric(float64(heap()-before)/float64(keys), "bytes/key")
		b.StartTimer()
		source.Update(paused, open)
		for backlog.Len() > 0 || queue.Len() < keys {
			time.Sleep(100 * time.Microsecond)
		}
		b.StopTimer()
		queue.ShutDown()
		source.Update(open, paused)
	}
}
