package syncgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// snapshot is a State as published, with what derives from it. It is immutable.
type snapshot struct {
	State
	revision uint64 // increases with each new decision of the gate
	refusal  error  // nil: open
}

// admission decides which operations on one cluster may start, and counts those
// that have not ended. It follows the states that are published to it, and knows
// nothing of where they come from.
type admission struct {
	clusterID types.UID // for errors

	// open is the decision of current, for readers that need nothing else. Both
	// are written with mu held, so they agree for a reader that holds mu. The zero
	// value of open is closed.
	open    atomic.Bool
	current atomic.Pointer[snapshot]

	refused atomic.Uint64

	mu         sync.Mutex    // guards the fields below
	lastClosed *snapshot     // the last snapshot that was closed
	inFlight   int           // admitted operations that have not ended
	changed    chan struct{} // closed when a waiter has to check again; nil: nobody waits
	counts     Stats         // without Refused and Parked
}

// publish makes next the state, and reports whether it is a new decision.
func (a *admission) publish(next State) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &snapshot{State: next}
	s.Since = time.Now()
	prev := a.current.Load()
	isNew := prev == nil || !sameDecision(&prev.State, &next)
	if prev != nil {
		s.revision = prev.revision
		if prev.Reason == next.Reason {
			s.Since = prev.Since
		}
		a.countLocked(&prev.State, &next)
	}
	if isNew {
		s.revision++
	}
	if s.Paused {
		s.refusal = &refusal{a, &s.State}
		a.lastClosed = s
	}
	a.current.Store(s)
	a.open.Store(!s.Paused)
	if isNew {
		a.wakeLocked()
	}
	return isNew
}

func (a *admission) countLocked(prev, next *State) {
	known := prev.Reason != ReasonNotSynced && prev.Reason != ReasonNotFound
	switch {
	case !known, prev.Paused == next.Paused, next.Reason == ReasonStopped:
	case next.Paused:
		a.counts.Pauses++
	default:
		a.counts.Resumes++
	}
}

// snapshots returns the current snapshot and the last closed one.
func (a *admission) snapshots() (current, lastClosed *snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current.Load(), a.lastClosed
}

// operation is an admitted Do with everything that is nested in it. It is a
// context as well, which saves an allocation.
type operation struct {
	context.Context
	admission *admission
	parts     int // guarded by admission.mu; the nested calls that still run
}

// Value finds an operation by its admission: operations of several gates may nest.
func (op *operation) Value(key any) any {
	if key == any(op.admission) {
		return op
	}
	return op.Context.Value(key)
}

// operationOf returns the operation of a that ctx descends from, nil if none.
func (a *admission) operationOf(ctx context.Context) *operation {
	op, _ := ctx.Value(a).(*operation)
	return op
}

// admit returns the operation that a Do with ctx is a part of, and the context for
// that part. Its error is a *refusal when the gate is closed.
func (a *admission) admit(ctx context.Context) (*operation, context.Context, error) {
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("syncgate: operate on cluster %s: %w", a.clusterID, context.Cause(ctx))
	}
	outer := a.operationOf(ctx)
	if outer == nil {
		// Refuse without the lock, so that a crowd at a closed gate does not delay
		// its opening.
		if err := a.refusal(); err != nil {
			a.refused.Add(1)
			return nil, nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if outer != nil && outer.parts > 0 {
		outer.parts++
		return outer, ctx, nil
	}
	if s := a.current.Load(); s.Paused {
		a.refused.Add(1)
		return nil, nil, s.refusal
	}
	a.counts.Admitted++
	a.inFlight++
	op := &operation{Context: ctx, admission: a, parts: 1}
	return op, op, nil
}

// refusal returns the error of the gate while it is closed, and nil while it is open. It
// takes no lock.
func (a *admission) refusal() error {
	if a.open.Load() {
		return nil
	}
	return a.current.Load().refusal // nil if it has opened in between
}

// release ends one part of an operation.
func (a *admission) release(op *operation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	op.parts--
	if op.parts > 0 {
		return
	}
	a.inFlight--
	if a.inFlight == 0 && a.current.Load().Paused {
		a.wakeLocked()
	}
}

func (a *admission) countInFlight() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inFlight
}

// whileClosed calls do under the lock that opens the gate, and reports whether it
// did: not when the gate is open. After the end of Run it returns the refusal.
func (a *admission) whileClosed(do func()) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s := a.current.Load(); {
	case s.Reason == ReasonStopped:
		return false, s.refusal
	case !s.Paused:
		return false, nil
	}
	do()
	return true, nil
}

// whileOpen calls do under the lock that closes the gate, and reports whether it
// did.
func (a *admission) whileOpen(do func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current.Load().Paused {
		return false
	}
	do()
	return true
}

// waitOpen waits until the gate is open. Its error is the cause of ctx, or the
// refusal of a gate that will not open again.
func (a *admission) waitOpen(ctx context.Context) error {
	return a.wait(ctx, func() (bool, error) {
		s := a.current.Load()
		if s.Reason == ReasonStopped {
			return false, s.refusal
		}
		return !s.Paused, nil
	})
}

var errInsideOperation = errors.New("called inside an operation of the gate, which would wait for its own end; call it outside of Do")

// waitDrained waits until the gate is closed and nothing is in flight. Its error
// is the cause of ctx, or errInsideOperation.
func (a *admission) waitDrained(ctx context.Context) error {
	op := a.operationOf(ctx)
	return a.wait(ctx, func() (bool, error) {
		if op != nil && op.parts > 0 {
			return false, errInsideOperation
		}
		return a.current.Load().Paused && a.inFlight == 0, nil
	})
}

// wait waits until done, which is called with mu held, returns true or an error.
func (a *admission) wait(ctx context.Context, done func() (bool, error)) error {
	for {
		a.mu.Lock()
		ok, err := done()
		if ok || err != nil {
			a.mu.Unlock()
			return err
		}
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (a *admission) wakeLocked() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}
