package syncgate

import (
	"context"
	"sync"
)

// gateQueue is a queue of gates for one consumer. It holds a gate once, however
// often the gate is added, so the number of gates bounds it.
type gateQueue struct {
	mu     sync.Mutex // guards gates and queued; no lock is taken while it is held
	gates  []*Gate
	queued map[*Gate]struct{}
	wake   chan struct{} // has an element when the queue may not be empty
}

func newGateQueue() gateQueue {
	return gateQueue{queued: map[*Gate]struct{}{}, wake: make(chan struct{}, 1)}
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
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *gateQueue) next() *Gate {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.gates) == 0 {
		q.gates, q.queued = nil, map[*Gate]struct{}{} // free the memory of a burst
		return nil
	}
	g := q.gates[0]
	q.gates[0] = nil
	q.gates = q.gates[1:]
	delete(q.queued, g)
	return g
}

// process calls do for each gate of the queue, in order, until ctx ends.
func (q *gateQueue) process(ctx context.Context, do func(*Gate)) {
	for ctx.Err() == nil {
		if g := q.next(); g != nil {
			do(g)
			continue
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}
