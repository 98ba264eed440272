//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"

	"github.com/clusternet/syncgate/syncgate"
)

// The backlog of the model test: each key that was parked comes back exactly once.

// backlogModel has one backlog for all gates.
type backlogModel struct {
	backlog *syncgate.Backlog[modelKey]
	parked  map[string][]modelKey // by cluster, in the order of parking
	inOrder map[string]bool       // false: the order is not known
	work    []*work

	mu       sync.Mutex
	requeued []modelKey // since the last check
	hook     func()     // called by the next requeue
}

type modelKey struct {
	cluster string
	n       int
}

// work is a Do of the backlog that runs.
type work struct {
	key   modelKey
	leave chan error
	ended chan result
}

type result struct {
	parked bool
	err    error
}

func newBacklogModel() *backlogModel {
	b := &backlogModel{parked: map[string][]modelKey{}, inOrder: map[string]bool{}}
	b.backlog = syncgate.NewBacklog(func(key modelKey) {
		b.mu.Lock()
		b.requeued = append(b.requeued, key)
		hook := b.hook
		b.hook = nil
		b.mu.Unlock()
		if hook != nil {
			hook()
		}
	})
	return b
}

func (b *backlogModel) setHook(hook func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hook = hook
}

func (b *backlogModel) add(key modelKey) {
	if len(b.parked[key.cluster]) == 0 {
		b.inOrder[key.cluster] = true
	}
	if !slices.Contains(b.parked[key.cluster], key) {
		b.parked[key.cluster] = append(b.parked[key.cluster], key)
	}
}

// park calls Do for a key with an operation that ends at once.
func (b *backlogModel) park(o *operations, key modelKey) error {
	s, ran := o.gate.State(), false
	parked, err := b.backlog.Do(context.Background(), o.gate, key, func(context.Context) error {
		ran = true
		return nil
	})
	stopped := s.Reason == syncgate.ReasonStopped
	switch {
	case ran == s.Paused, parked != (s.Paused && !stopped), errors.Is(err, syncgate.ErrStopped) != stopped, err != nil && !stopped:
		return fmt.Errorf("Backlog.Do = %t, %w at a gate with Paused = %t (%s); ran: %t", parked, err, s.Paused, s.Reason, ran)
	case ran:
		o.admitted++
	default:
		o.refused++
	}
	if parked {
		b.add(key)
	}
	return nil
}

// begin calls Do for a key with an operation that goes on until end.
func (b *backlogModel) begin(o *operations, key modelKey) {
	if o.gate.Paused() || len(b.work) > 0 {
		return
	}
	w := &work{key, make(chan error), make(chan result, 1)}
	ctxs := make(chan context.Context, 1)
	go func() {
		parked, err := b.backlog.Do(context.Background(), o.gate, key, func(ctx context.Context) error {
			ctxs <- ctx
			return <-w.leave
		})
		w.ended <- result{parked, err}
	}()
	synctest.Wait()
	o.admitted++
	o.running = append(o.running, &operation{ctx: <-ctxs})
	b.work = append(b.work, w)
}

// end ends such an operation. how: 0 without an error, 1 with its own, else as soon as
// the gate is closed.
func (b *backlogModel) end(all map[string]*operations, how int) error {
	if len(b.work) == 0 {
		return nil
	}
	w := b.work[0]
	b.work = nil
	o := all[w.key.cluster]
	// It has no parts that the test ends.
	i := slices.IndexFunc(o.running, func(op *operation) bool { return len(op.parts) == 0 })
	op := o.running[i]
	o.running = slices.Delete(o.running, i, i+1)
	o.ended = append(o.ended, op.ctx)
	var err error
	switch how {
	case 0:
	case 1:
		err = errOwn
	default:
		err = o.gate.Checkpoint(op.ctx)
		if err != nil && how == 3 {
			err = fmt.Errorf("stop here: %w", err)
		}
	}
	s := o.gate.State()
	w.leave <- err
	got := <-w.ended
	stopped := s.Reason == syncgate.ReasonStopped
	wantParked := how > 1 && s.Paused && !stopped
	switch {
	case got.parked != wantParked, how == 1 && !errors.Is(got.err, errOwn), how == 0 && got.err != nil, how > 1 && (got.err != nil) != stopped:
		return fmt.Errorf("Backlog.Do = %t, %w after %w; want parked = %t", got.parked, got.err, err, wantParked)
	case got.parked:
		b.add(w.key)
	}
	return nil
}

func (b *backlogModel) forget(key modelKey) {
	b.backlog.Forget(key)
	b.parked[key.cluster] = slices.DeleteFunc(b.parked[key.cluster], func(k modelKey) bool { return k == key })
}

// race calls Do for many keys while change changes the gate.
func (b *backlogModel) race(o *operations, change func()) error {
	o.inexact = true
	var wg sync.WaitGroup
	results, ran := make([]result, 8), make([]int, 8)
	for i := range results {
		wg.Add(1)
		go func() {
			defer wg.Done()
			parked, err := b.backlog.Do(context.Background(), o.gate, modelKey{string(o.gate.ClusterID()), 100 + i}, func(context.Context) error {
				ran[i]++
				return nil
			})
			results[i] = result{parked, err}
		}()
	}
	change()
	wg.Wait()
	for i, r := range results {
		if r.parked == (ran[i] == 1) && r.err == nil || ran[i] > 1 {
			return fmt.Errorf("Backlog.Do = %t, %w beside a change; ran %d times", r.parked, r.err, ran[i])
		}
		if ran[i] == 1 {
			o.admitted++
		}
		if r.parked {
			b.add(modelKey{string(o.gate.ClusterID()), 100 + i})
			b.inOrder[string(o.gate.ClusterID())] = false
		}
	}
	return nil
}

// take checks what was requeued since the last call.
func (b *backlogModel) take() error {
	b.mu.Lock()
	requeued := b.requeued
	b.requeued = nil
	b.mu.Unlock()
	for _, key := range requeued {
		parked := b.parked[key.cluster]
		i := slices.Index(parked, key)
		if i < 0 {
			return fmt.Errorf("%v was requeued, but it was not parked", key)
		}
		if i > 0 && b.inOrder[key.cluster] {
			return fmt.Errorf("%v was requeued before %v, which was parked earlier", key, parked[0])
		}
		b.parked[key.cluster] = slices.Delete(parked, i, i+1)
	}
	return nil
}

// complete checks what was requeued, and what is parked. Nothing must run.
func (b *backlogModel) complete(all map[string]*operations) error {
	if err := b.take(); err != nil {
		return err
	}
	total := 0
	for id, o := range all {
		switch s := o.gate.State(); {
		case s.Reason == syncgate.ReasonStopped:
			b.parked[id] = nil
		case !s.Paused && len(b.parked[id]) > 0:
			return fmt.Errorf("the gate is open, and %v were not requeued", b.parked[id])
		}
		if got := o.gate.Stats().Parked; got != len(b.parked[id]) {
			return fmt.Errorf("Stats().Parked = %d; want %d", got, len(b.parked[id]))
		}
		total += len(b.parked[id])
	}
	if got := b.backlog.Len(); got != total {
		return fmt.Errorf("Len() = %d; want %d", got, total)
	}
	return nil
}
