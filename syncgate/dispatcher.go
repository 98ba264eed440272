package syncgate

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// dispatcher calls the callbacks of OnChange. One goroutine, run, calls them all.
// A gate that has changed is queued, and its state is read when its turn comes, so
// a slow callback merges changes instead of queueing them.
type dispatcher struct {
	queue   gateQueue
	export  func(*State) State        // makes the State that a callback gets
	gates   func() []*Gate            // all gates
	initial func() State              // of a gate before the sync
	mu      sync.Mutex                // guards subscriptions and subscription.stopped
	byGate  map[*Gate][]*subscription // nil: the subscriptions to all gates
}

// subscription is one callback.
type subscription struct {
	fn      func(Change)
	gate    *Gate // nil: all gates
	stopped bool  // guarded by dispatcher.mu

	// delivered is what fn got last, for each gate. Only run uses it.
	delivered map[*Gate]*snapshot
}

// subscribe adds a callback for one gate, or for all gates if gate is nil.
func (d *dispatcher) subscribe(gate *Gate, fn func(Change)) (stop func()) {
	if fn == nil {
		panic("syncgate: OnChange was called with a nil function; pass one")
	}
	s := &subscription{fn: fn, gate: gate, delivered: map[*Gate]*snapshot{}}
	d.mu.Lock()
	d.byGate[gate] = append(d.byGate[gate], s)
	d.mu.Unlock()
	if gate != nil {
		d.queue.add(gate)
	} else {
		d.queue.add(d.gates()...)
	}
	return func() { d.unsubscribe(s) }
}

func (d *dispatcher) unsubscribe(s *subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.stopped = true
	left := slices.DeleteFunc(d.byGate[s.gate], func(other *subscription) bool { return other == s })
	if len(left) == 0 {
		delete(d.byGate, s.gate)
	} else {
		d.byGate[s.gate] = left
	}
}

// subscriptionsOf returns the subscriptions that a gate concerns, in the order of
// subscribing: those to all gates come first.
func (d *dispatcher) subscriptionsOf(g *Gate) []*subscription {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.byGate[nil], d.byGate[g])
}

func (d *dispatcher) isStopped(s *subscription) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.stopped
}

// run calls the callbacks until ctx ends. It starts with the sync: before it there
// is nothing to deliver.
func (d *dispatcher) run(ctx context.Context, synced <-chan struct{}) {
	select {
	case <-synced:
	case <-ctx.Done():
		return
	}
	d.queue.process(ctx, func(g *Gate) {
		for _, s := range d.subscriptionsOf(g) {
			d.notify(ctx, s, g)
		}
	})
}

// notify calls one callback with what it has not got of one gate.
func (d *dispatcher) notify(ctx context.Context, s *subscription, g *Gate) {
	current, lastClosed := g.admission.snapshots()
	old, pending := s.delivered[g], []*snapshot{current}
	switch {
	case old != nil:
		pending = undelivered(old, current, lastClosed)
	case s.gate == nil && current.Object == (types.NamespacedName{}):
		return // the cluster was asked for by its ID and never registered
	default:
		old = &snapshot{State: d.initial()}
	}
	for _, next := range pending {
		change := Change{ClusterID: g.clusterID, Old: d.export(&old.State), New: d.export(&next.State)}
		if ctx.Err() != nil || d.isStopped(s) {
			return
		}
		s.fn(change)
		old = next
	}
	s.delivered[g] = current
}

// undelivered returns the snapshots to deliver to a callback that has got old.
func undelivered(old, current, lastClosed *snapshot) []*snapshot {
	switch {
	case !old.Paused && !current.Paused && lastClosed != nil && lastClosed.revision > old.revision:
		// The gate has closed and opened since. Callers that were refused wait for
		// the opening.
		return []*snapshot{lastClosed, current}
	case sameDecision(&old.State, &current.State):
		return nil
	default:
		return []*snapshot{current}
	}
}
