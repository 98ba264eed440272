//go:build go1.25

package syncgate_test

import (
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/syncgate"
)

// The callbacks of the model test: each gets a chain of changes that ends in the truth.

// callbacks are all subscriptions of a sequence.
type callbacks struct {
	hub     *syncgate.Hub
	all     []*callback
	running atomic.Int32

	mu      sync.Mutex
	blocked chan struct{} // callbacks wait for it; nil: they don't
	ended   bool          // Run has ended
	err     error         // the first violation that a callback has found
}

// callback is one subscription.
type callback struct {
	gate *syncgate.Gate // nil: all gates
	stop func()

	// The fields below are guarded by callbacks.mu.
	stopped bool
	stopAt  int // the call in which it stops itself; 0: never
	calls   int
	last    map[types.UID]syncgate.State // what each gate's last call has delivered
	pending map[types.UID]bool           // a gate was open in the last call, and was observed closed since
}

func (cs *callbacks) fail(format string, args ...any) {
	if cs.err == nil {
		cs.err = fmt.Errorf(format, args...)
	}
}

// subscribe adds a callback for a gate, or for all if gate is nil.
func (cs *callbacks) subscribe(gate *syncgate.Gate, stopAt int) {
	c := &callback{gate: gate, stopAt: stopAt, last: map[types.UID]syncgate.State{}, pending: map[types.UID]bool{}}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all = append(cs.all, c)
	on := cs.hub.OnChange
	if gate != nil {
		on = gate.OnChange
	}
	c.stop = on(func(change syncgate.Change) { cs.call(c, change) })
}

// call is the function of a callback.
func (cs *callbacks) call(c *callback, change syncgate.Change) {
	if cs.running.Add(1) > 1 {
		cs.mu.Lock()
		cs.fail("two callbacks run at once")
		cs.mu.Unlock()
	}
	defer cs.running.Add(-1)
	cs.mu.Lock()
	cs.check(c, change)
	blocked := cs.blocked
	c.calls++
	stop := c.calls == c.stopAt
	cs.mu.Unlock()
	if blocked != nil {
		<-blocked
	}
	if stop {
		c.stop()
		cs.mu.Lock()
		c.stopped = true
		cs.mu.Unlock()
	}
}

// check checks a call against the call before it.
func (cs *callbacks) check(c *callback, change syncgate.Change) {
	id := change.ClusterID
	last, known := c.last[id]
	switch {
	case c.stopped:
		cs.fail("a callback of %s was called after its stop", id)
	case cs.ended:
		cs.fail("a callback of %s was called after the end of Run", id)
	case c.gate != nil && c.gate.ClusterID() != id:
		cs.fail("a callback of %s was called for %s", c.gate.ClusterID(), id)
	case !known && change.Old.Reason != syncgate.ReasonNotSynced:
		cs.fail("the first Old of %s is %s; want NotSynced", id, change.Old.Reason)
	case known && decisionOf(change.Old) != decisionOf(last):
		cs.fail("Old of %s is %s; want the New of the call before, %s", id, decisionOf(change.Old), decisionOf(last))
	case known && decisionOf(change.New) == decisionOf(last):
		cs.fail("a callback of %s was called without a change: %s", id, decisionOf(last))
	}
	if change.New.Paused {
		delete(c.pending, id)
	}
	c.last[id] = change.New
}

// decisionOf is all that makes a decision another one.
func decisionOf(s syncgate.State) string {
	return fmt.Sprint(s.Phase, s.Paused, s.Reason, s.Object, s.UID, s.Holds)
}

// observed notes what a gate is now: who was told that it is open must get the closing.
func (cs *callbacks) observed(gate *syncgate.Gate, paused bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.all {
		if last, known := c.last[gate.ClusterID()]; known && !last.Paused && paused {
			c.pending[gate.ClusterID()] = true
		}
	}
}

// complete checks, once nothing runs any more, that each callback has got all.
func (cs *callbacks) complete(gate *syncgate.Gate, s syncgate.State) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.err != nil || cs.blocked != nil || cs.ended || !cs.hub.HasSynced() {
		return cs.err
	}
	id := gate.ClusterID()
	for _, c := range cs.all {
		last, known := c.last[id]
		switch {
		case c.stopped, c.gate != nil && c.gate != gate:
		case c.gate == nil && s.Object == types.NamespacedName{} && !known:
		case !known:
			return fmt.Errorf("a callback of %s was not called; want %s", id, decisionOf(s))
		case decisionOf(last) != decisionOf(s):
			return fmt.Errorf("a callback of %s got %s last; want %s", id, decisionOf(last), decisionOf(s))
		case c.pending[id]:
			return fmt.Errorf("a callback of %s did not get that the gate was closed", id)
		}
	}
	return nil
}

// unsubscribe stops a callback. Nothing may be about to call it.
func (cs *callbacks) unsubscribe(n int) {
	cs.mu.Lock()
	if len(cs.all) == 0 {
		cs.mu.Unlock()
		return
	}
	c := cs.all[n%len(cs.all)]
	cs.mu.Unlock()
	c.stop()
	cs.mu.Lock()
	c.stopped = true
	cs.mu.Unlock()
}

// block makes the next calls wait, or lets them go on.
func (cs *callbacks) block(block bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case block && cs.blocked == nil:
		cs.blocked = make(chan struct{})
	case !block && cs.blocked != nil:
		close(cs.blocked)
		cs.blocked = nil
	}
}
