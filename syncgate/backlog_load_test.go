package syncgate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check the backlog under load, in real time: many goroutines park and
// forget keys while the gates open and close.

// eventually waits until is returns true.
func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for ctx := patience(tb); !is(); runtime.Gosched() {
		if ctx.Err() != nil {
			tb.Fatalf("%s: not within a minute", what)
		}
	}
}

// Keys are parked and gates flip at random, from many goroutines at once. Each key
// that was parked is requeued exactly once.
func TestBacklogUnderLoad(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newBacklogLoad(t)
			var stops []func()
			for i := range l.gates {
				stops = append(stops, l.flip(t, i, rand.New(rand.NewPCG(seed, uint64(i)))))
			}
			var workers sync.WaitGroup
			for w := range 4 {
				workers.Add(1)
				go func() {
					defer workers.Done()
					l.park(t, w, rand.New(rand.NewPCG(seed, uint64(100+w))))
				}()
			}
			workers.Wait()
			for _, stop := range stops {
				stop()
			}
			l.verify(t)
		})
	}
}

type loadKey struct{ gate, worker, n int }

// backlogLoad counts how often each key was parked and requeued.
type backlogLoad struct {
	source  *tu.Source
	gates   []*syncgate.Gate
	backlog *syncgate.Backlog[loadKey]

	mu               sync.Mutex
	parked, requeued map[loadKey]int
}

func newBacklogLoad(t *testing.T) *backlogLoad {
	l := &backlogLoad{parked: map[loadKey]int{}, requeued: map[loadKey]int{}}
	hub, source := running(t)
	l.source = source
	for i := range 3 {
		source.Add(l.object(i, true))
		l.gates = append(l.gates, hub.Gate(types.UID(fmt.Sprint("cluster-", i))))
	}
	l.backlog = syncgate.NewBacklog(func(k loadKey) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.requeued[k]++
	})
	return l
}

func (l *backlogLoad) object(gate int, paused bool) any {
	return tu.ManagedCluster(ns, fmt.Sprint(gate), fmt.Sprint("cluster-", gate), tu.Paused(paused))
}

// flip closes and opens a gate until stop, which leaves it open.
func (l *backlogLoad) flip(t *testing.T, gate int, random *rand.Rand) (stop func()) {
	paused := false
	end := inParallel(t, 1, func() {
		paused = !paused
		l.source.Update(nil, l.object(gate, paused))
		for range random.IntN(200) {
			_ = l.gates[gate].Paused()
		}
	})
	return func() { end(); l.source.Update(nil, l.object(gate, false)) }
}

// park uses a thousand keys at random gates, and more until some key is parked: on a
// busy machine, all gates may stay open for long.
func (l *backlogLoad) park(t *testing.T, worker int, random *rand.Rand) {
	ctx := patience(t)
	for n := 0; n < 1000 || !l.anyParked() && ctx.Err() == nil; n++ {
		k := loadKey{random.IntN(len(l.gates)), worker, n}
		parked, err := l.backlog.Do(context.Background(), l.gates[k.gate], k, nothing)
		if err != nil {
			t.Errorf("Do = %v", err)
		}
		if parked {
			l.mu.Lock()
			l.parked[k]++
			l.mu.Unlock()
		}
		if random.IntN(10) == 0 {
			l.backlog.Forget(loadKey{-1, worker, n}) // it was never parked
		}
	}
}

func (l *backlogLoad) anyParked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.parked) > 0
}

func (l *backlogLoad) verify(t *testing.T) {
	eventually(t, "as many keys are requeued as were parked", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.backlog.Len() == 0 && len(l.requeued) == len(l.parked)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, n := range l.requeued {
		if n != 1 || l.parked[k] != 1 {
			t.Errorf("key %v was parked %d times and requeued %d times", k, l.parked[k], n)
		}
	}
	if len(l.parked) == 0 {
		t.Error("nothing was parked: this test has tested nothing")
	}
}

// A key that was forgotten while the gate was closed is not requeued.
func TestForgottenKeysAreNotRequeued(t *testing.T) {
	paused := cluster(tu.Paused(true))
	open := tu.With(paused, tu.Paused(false))
	hub, source := running(t, paused)
	gate := hub.Gate(id)
	var forgotten sync.Map
	b := syncgate.NewBacklog(func(key int) {
		if _, ok := forgotten.Load(key); ok {
			t.Errorf("%d was requeued after it was forgotten", key)
		}
	})
	for round := range 20 {
		var workers sync.WaitGroup
		for w := range 4 {
			workers.Add(1)
			go func() {
				defer workers.Done()
				for i := range 200 {
					key := round*1000 + w*200 + i
					if parked, _ := b.Do(context.Background(), gate, key, nothing); parked && i%3 == 0 {
						b.Forget(key)
						forgotten.Store(key, true)
					}
				}
			}()
		}
		workers.Wait()
		source.Update(paused, open)
		eventually(t, "all keys are requeued", func() bool { return b.Len() == 0 })
		source.Update(open, paused)
	}
}
