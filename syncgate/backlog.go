package syncgate

import (
	"context"
	"sync"
)

// Backlog remembers the work that closed gates refuse, and queues it when they
// open. Work is known by its key, as in a workqueue: what is done on resume is
// what the key stands for by then, not what was refused. One backlog serves any
// number of gates. All methods may be called from any goroutine, also from
// requeue, and none blocks but Do, while its function runs.
//
// Around a client-go workqueue, a worker does
//
//	backlog := syncgate.NewBacklog(queue.Add)
//	...
//	parked, err := backlog.Do(ctx, hub.Gate(clusterID), key, func(ctx context.Context) error {
//		return sync(ctx, key)
//	})
//	switch {
//	case errors.Is(err, syncgate.ErrStopped): // for ever: end the worker
//	case err != nil:
//		queue.AddRateLimited(key)
//	case !parked:
//		queue.Forget(key)
//	}
//	queue.Done(key)
//
// A resume of thousands is spread by a requeue such as
//
//	func(key string) { queue.AddAfter(key, rand.N(time.Minute)) }
type Backlog[K comparable] struct {
	requeue func(K)

	mu     sync.Mutex // guards parked; where that of a gate is needed too, that is taken first
	parked map[*Gate]*keyQueue[K]
}

// keyQueue has each key once, in the order in which they came.
type keyQueue[K comparable] struct {
	at    map[K]int // the place in order; what is not here has been removed
	order []K
	first int // of order that has not been taken
}

func (q *keyQueue[K]) add(key K) {
	if _, ok := q.at[key]; ok {
		return
	}
	if len(q.order) > 2*len(q.at)+64 { // most of it has been removed or taken
		q.compact()
	}
	q.at[key] = len(q.order)
	q.order = append(q.order, key)
}

func (q *keyQueue[K]) compact() {
	kept := make([]K, 0, len(q.at)+1)
	for i, key := range q.order[q.first:] {
		if at, ok := q.at[key]; ok && at == q.first+i {
			q.at[key] = len(kept)
			kept = append(kept, key)
		}
	}
	q.order, q.first = kept, 0
}

func (q *keyQueue[K]) remove(key K) { delete(q.at, key) }

func (q *keyQueue[K]) take() (key K, ok bool) {
	var none K
	for q.first < len(q.order) {
		i := q.first
		key, q.order[i] = q.order[i], none
		q.first++
		if at, ok := q.at[key]; ok && at == i {
			delete(q.at, key)
			return key, true
		}
	}
	return none, false
}

// parker is a Backlog of any kind of key, as a gate sees it.
type parker interface {
	replay(*Gate)
	drop(*Gate)
	parkedFor(*Gate) int
}

// NewBacklog returns a backlog that hands keys to requeue when their gate opens:
// each key once, however often it was parked, in the order of parking, and none
// while the gate is closed. The keys of one gate, and of all gates of one Hub, are handed
// over by one goroutine of its Run, with no lock held and without waiting for
// callbacks; so requeue must return, and should soon. It panics when requeue is nil.
func NewBacklog[K comparable](requeue func(K)) *Backlog[K] {
	if requeue == nil {
		panic("syncgate: NewBacklog was called with a nil function")
	}
	return &Backlog[K]{requeue: requeue, parked: map[*Gate]*keyQueue[K]{}}
}

// Do is g.Do with fn, and parks key when the gate refuses: then it returns true
// and no error, and key is queued once the gate opens, however the opening races
// the parking. What fn returns parks nothing, ErrPaused of another gate included.
//
// After the end of Run nothing is parked, since it would never come back: Do
// returns the error of g.Do, for which errors.Is(err, ErrStopped) is true. When
// ctx is done already, Do returns an error that wraps the cause.
func (b *Backlog[K]) Do(ctx context.Context, g *Gate, key K, fn func(context.Context) error) (parked bool, err error) {
	for {
		op, opCtx, err := g.admit(ctx)
		if err == nil {
			defer g.release(op)
			return false, fn(opCtx)
		}
		if _, refused := err.(*refusal); !refused { //nolint:errorlint // it is admit's own, unwrapped
			return false, err
		}
		if parked, err := b.park(g, key); parked || err != nil {
			return parked, err
		}
		// The gate has opened in between.
	}
}

// park parks key unless the gate is open, or stopped, which is an error.
func (b *Backlog[K]) park(g *Gate, key K) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch s := g.snap.Load(); {
	case s.Reason == ReasonStopped:
		return false, s.refusal
	case !s.Paused:
		return false, nil
	}
	if g.backlogs == nil {
		g.backlogs = map[parker]struct{}{}
	}
	g.backlogs[b] = struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.parked[g]
	if keys == nil {
		keys = &keyQueue[K]{at: map[K]int{}}
		b.parked[g] = keys
	}
	keys.add(key)
	return true, nil
}

// Len returns the number of parked keys. One that is parked for two gates counts
// twice.
func (b *Backlog[K]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, keys := range b.parked {
		n += len(keys.at)
	}
	return n
}

// Forget drops a key for all gates, for example since its object is gone; its cost
// grows with the number of gates that have keys parked. It does not wait for a
// requeue of the key that has begun. To leave the key of an object that
// is gone parked is harmless: it is queued on resume, and nothing is found.
func (b *Backlog[K]) Forget(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for g, keys := range b.parked {
		keys.remove(key)
		if len(keys.at) == 0 {
			delete(b.parked, g)
		}
	}
}

// replay hands over the keys of a gate until none is left, or it closes.
func (b *Backlog[K]) replay(g *Gate) {
	for {
		key, ok := b.take(g)
		if !ok {
			return
		}
		b.requeue(key)
	}
}

func (b *Backlog[K]) take(g *Gate) (key K, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.snap.Load().Paused {
		return key, false // the next opening comes back to the rest
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if keys := b.parked[g]; keys != nil {
		if key, ok = keys.take(); ok {
			return key, true
		}
	}
	delete(b.parked, g)
	delete(g.backlogs, b)
	return key, false
}

// drop forgets the keys of a gate. It is called with the gate's mu held, as is
// parkedFor.
func (b *Backlog[K]) drop(g *Gate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.parked, g)
}

func (b *Backlog[K]) parkedFor(g *Gate) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if keys := b.parked[g]; keys != nil {
		return len(keys.at)
	}
	return 0
}

// replay is the goroutine that hands over parked keys, until ctx ends.
func (h *Hub) replay(ctx context.Context) {
	h.replays.each(ctx, func(g *Gate) {
		g.mu.Lock()
		backlogs := make([]parker, 0, len(g.backlogs))
		for b := range g.backlogs {
			backlogs = append(backlogs, b)
		}
		g.mu.Unlock()
		for _, b := range backlogs {
			b.replay(g)
		}
	})
}
