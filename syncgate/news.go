package syncgate

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// gateQueue is a queue of gates that have something for the goroutine at its end.
// A gate is in it once, and what it has is read when its turn comes: that bounds
// the queue by the number of gates.
type gateQueue struct {
	mu     sync.Mutex // guards gates and queued; taken last
	gates  []*Gate
	queued map[*Gate]struct{}
	arrive chan struct{} // has an element when the queue may not be empty
}

func newGateQueue() gateQueue {
	return gateQueue{queued: map[*Gate]struct{}{}, arrive: make(chan struct{}, 1)}
}

func (q *gateQueue) add(gates ...*Gate) {
	q.mu.Lock()
	for _, g := range gates {
		if _, ok := q.queued[g]; !ok {
			q.queued[g] = struct{}{}
			q.gates = append(q.gates, g)
		}
	}
	q.mu.Unlock()
	select {
	case q.arrive <- struct{}{}:
	default:
	}
}

func (q *gateQueue) next() *Gate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.gates) == 0 {
		q.gates, q.queued = nil, map[*Gate]struct{}{} // let a burst's memory go
		return nil
	}
	g := q.gates[0]
	q.gates[0] = nil
	q.gates = q.gates[1:]
	delete(q.queued, g)
	return g
}

// each calls do for each gate of the queue, in order, until ctx ends.
func (q *gateQueue) each(ctx context.Context, do func(*Gate)) {
	for ctx.Err() == nil {
		if g := q.next(); g != nil {
			do(g)
			continue
		}
		select {
		case <-q.arrive:
		case <-ctx.Done():
		}
	}
}

// news knows which gates have changed and who wants to hear of it.
type news struct {
	gateQueue

	mu  sync.Mutex // guards all, and the subscriptions of gates; taken last
	all []*subscription
}

// subscription is one callback.
type subscription struct {
	fn      func(Change)
	gate    *Gate // nil: of every gate
	stopped bool  // guarded by news.mu

	// told has what fn was told last. Only the dispatcher uses it.
	told map[*Gate]*snapshot
}

// about returns the subscriptions that a gate concerns, in the order of
// subscribing.
func (n *news) about(g *Gate) []*subscription {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(n.all, g.subscriptions)
}

func (n *news) isStopped(s *subscription) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return s.stopped
}

func (h *Hub) subscribe(g *Gate, fn func(Change)) (stop func()) {
	if fn == nil {
		panic("syncgate: OnChange was called with a nil function")
	}
	s := &subscription{fn: fn, gate: g, told: map[*Gate]*snapshot{}}
	n := &h.news
	n.mu.Lock()
	list := &n.all
	if g != nil {
		list = &g.subscriptions
	}
	*list = append(*list, s)
	n.mu.Unlock()
	if g != nil {
		n.add(g)
	} else {
		n.add(slices.Collect(h.Gates())...)
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		s.stopped = true
		if i := slices.Index(*list, s); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	}
}

// tell is the dispatcher: it calls the callbacks until ctx ends. Before the sync
// there is nothing to tell.
func (h *Hub) tell(ctx context.Context) {
	select {
	case <-h.synced:
	case <-ctx.Done():
		return
	}
	h.news.each(ctx, func(g *Gate) {
		for _, s := range h.news.about(g) {
			h.tellOf(ctx, s, g)
		}
	})
}

// tellOf calls one callback with what is new of one gate, unless ctx has ended.
func (h *Hub) tellOf(ctx context.Context, s *subscription, g *Gate) {
	now, closed := g.snapshots()
	last := s.told[g]
	steps := []*snapshot{now}
	switch {
	case last == nil:
		if s.gate == nil && now.Object == (types.NamespacedName{}) {
			return // nobody has registered it
		}
		last = &snapshot{State: h.unknown(ReasonNotSynced)}
	case last.seq == now.seq:
		return
	case !last.Paused && !now.Paused && closed != nil && closed.seq > last.seq:
		// It closed and opened since: whoever was refused waits for the opening.
		steps = []*snapshot{closed, now}
	case sameDecision(&last.State, &now.State):
		steps = nil
	}
	for _, step := range steps {
		change := Change{ClusterID: g.id, Old: h.view(&last.State), New: h.view(&step.State)}
		if ctx.Err() != nil || h.news.isStopped(s) {
			return
		}
		s.told[g] = step
		s.fn(change)
		last = step
	}
	s.told[g] = now
}
