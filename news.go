package syncgate

import (
	"context"
	"slices"
	"sync"
)

// news knows which gates have changed and who wants to hear of it. What it holds
// is bounded by the number of gates: a gate is queued once, and its state is read
// when its turn comes.
type news struct {
	mu     sync.Mutex // guards the fields below; taken last
	all    []*subscription
	queue  []*Gate
	arrive chan struct{} // has an element when the queue may not be empty
}

// subscription is one callback.
type subscription struct {
	fn      func(Change)
	gate    *Gate // nil: of every gate
	stopped bool  // guarded by news.mu

	// told has what fn was told last. Only the dispatcher uses it.
	told map[*Gate]*snapshot
}

func (n *news) init() { n.arrive = make(chan struct{}, 1) }

func (n *news) about(gates ...*Gate) {
	n.mu.Lock()
	for _, g := range gates {
		if !g.queued {
			g.queued = true
			n.queue = append(n.queue, g)
		}
	}
	n.mu.Unlock()
	select {
	case n.arrive <- struct{}{}:
	default:
	}
}

// next takes a gate from the queue, with the subscriptions that it concerns in
// the order of subscribing.
func (n *news) next() (*Gate, []*subscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		n.queue = nil // let a burst's memory go
		return nil, nil
	}
	g := n.queue[0]
	n.queue[0] = nil
	n.queue = n.queue[1:]
	g.queued = false
	return g, slices.Concat(n.all, g.subscriptions)
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
		n.about(g)
	} else {
		n.about(slices.Collect(h.Gates())...)
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
	for {
		g, subscriptions := h.news.next()
		if g == nil {
			select {
			case <-h.news.arrive:
			case <-ctx.Done():
				return
			}
			continue
		}
		for _, s := range subscriptions {
			if !h.tellOf(ctx, s, g) {
				return
			}
		}
	}
}

// tellOf calls one callback with what is new of one gate. It returns false when
// ctx has ended.
func (h *Hub) tellOf(ctx context.Context, s *subscription, g *Gate) bool {
	now, closed := g.snapshots()
	last := s.told[g]
	steps := []*snapshot{now}
	switch {
	case last == nil:
		if s.gate == nil && now.Reason == ReasonNotFound {
			return true
		}
		unknown := h.unknown(ReasonNotSynced)
		last = &snapshot{State: unknown}
	case last.seq == now.seq:
		return true
	case !last.Paused && !now.Paused && closed != nil && closed.seq > last.seq:
		// It closed and opened since: whoever was refused waits for the opening.
		steps = []*snapshot{closed, now}
	case sameDecision(&last.State, &now.State):
		steps = nil
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			return false
		}
		if h.news.isStopped(s) {
			return true
		}
		s.told[g] = step
		s.fn(Change{ClusterID: g.id, Old: h.view(&last.State), New: h.view(&step.State)})
		last = step
	}
	s.told[g] = now
	return true
}
