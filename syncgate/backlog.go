package syncgate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// Backlog remembers the keys of work that closed gates refuse, and requeues them
// when the gates open. A key stands for an object, as in a workqueue: read the
// object again when its key is requeued. One backlog serves any number of gates. All
// methods may be called from any goroutine, also from requeue. Only Do blocks, while
// its function runs.
//
// With a client-go workqueue, a worker looks like this:
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
// To spread a resume of thousands of keys, use a requeue such as
//
//	func(key string) { queue.AddAfter(key, rand.N(time.Minute)) }
type Backlog[K comparable] struct {
	requeue func(K)

	mu     sync.Mutex // guards parked; the lock of a gate's admission is taken before it
	parked map[*Gate]*keyQueue[K]
}

// keyQueue has each key once, in the order of parking.
type keyQueue[K comparable] struct {
	at    map[K]int // the place in order; a key that is not here has been removed
	order []K
	first int // the first place in order that has not been taken
}

func (q *keyQueue[K]) add(key K) {
	if _, ok := q.at[key]; ok {
		return
	}
	if len(q.order) > 2*len(q.at)+64 { // most keys of it have been removed or taken
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

// parker is a Backlog with any type of key, as a gate uses it.
type parker interface {
	replay(*Gate)
	drop(*Gate)
	parkedFor(*Gate) int
}

// NewBacklog returns a backlog that passes parked keys to requeue after their gate
// has opened: each key once, however often it was parked, in the order of parking.
// NewBacklog panics if requeue is nil.
//
// A gate that closes again stops the replay, and the rest stays parked. The gate may
// close between its check and the call of requeue, so one key may be requeued while
// the gate is closed. The worker's Do then parks it again.
//
// One goroutine requeues the keys of all gates of a Run, with no lock held and
// without waiting for callbacks. So requeue must return soon, and must not call
// runtime.Goexit, which would end all replays.
func NewBacklog[K comparable](requeue func(K)) *Backlog[K] {
	if requeue == nil {
		panic("syncgate: NewBacklog was called with a nil function; pass one that queues a key")
	}
	return &Backlog[K]{requeue: requeue, parked: map[*Gate]*keyQueue[K]{}}
}

// Do calls g.Do with fn. If the gate refuses, Do parks key and returns true and no
// error. The key is requeued once after the gate has opened, even if the gate opens
// while the key is being parked.
//
// The key is parked as well when fn returns a refusal of g, which it has from
// g.Checkpoint: then the operation has ended early. If g has opened again by then, Do
// runs fn once more. Any other error of fn parks nothing, ErrPaused of another gate
// included.
//
// After the end of Run nothing is parked, because the gate never opens again: Do
// returns the error of g.Do, for which errors.Is(err, ErrStopped) is true. If ctx is
// done already, Do returns an error that wraps the cause.
func (b *Backlog[K]) Do(ctx context.Context, g *Gate, key K, fn func(context.Context) error) (parked bool, err error) {
	for {
		err := g.Do(ctx, fn)
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, refusedError{&g.admission}) {
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
	return g.admission.whileClosed(func() {
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
	})
}

// Len returns the number of parked keys. A key that is parked for two gates counts
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

// Forget drops a key for all gates, for example because its object is gone. It does
// not wait for a requeue of the key that has begun. Its cost grows with the number
// of gates that have parked keys. Forget is optional: the key of an object that is
// gone is requeued after the resume, and the worker then finds nothing.
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

// replay requeues the keys of a gate until none is left, or the gate closes.
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
	g.admission.whileOpen(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if keys := b.parked[g]; keys != nil {
			if key, ok = keys.take(); ok {
				return
			}
		}
		delete(b.parked, g)
		delete(g.backlogs, b)
	})
	return key, ok
}

// drop forgets the keys of a gate. It is called with the lock of the gate's
// admission held, as is parkedFor.
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

// replay requeues the parked keys of the gate.
func (g *Gate) replay() {
	g.admission.mu.Lock()
	backlogs := slices.Collect(maps.Keys(g.backlogs))
	g.admission.mu.Unlock()
	for _, b := range backlogs {
		b.replay(g)
	}
}

// dropParked forgets the parked keys of the gate, which will not open again.
func (g *Gate) dropParked() {
	g.admission.mu.Lock()
	defer g.admission.mu.Unlock()
	for b := range g.backlogs {
		b.drop(g)
	}
	g.backlogs = nil
}
