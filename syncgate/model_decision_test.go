//go:build go1.25

package syncgate_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clusternet/syncgate/syncgate"
)

// The model of what a gate decides. It is written from the documentation of Gate, not
// from the code. Where the documentation leaves the moment of an opening open, the
// model allows several answers.

// quietTime is how long an informer must deliver nothing before what a relist opens may
// open, and relistLimit is how long that may take if events never stop.
const (
	quietTime   = 150 * time.Millisecond
	relistLimit = 5 * time.Second
)

// modelObject is a ManagedCluster as it was delivered last.
type modelObject struct {
	cluster    string
	uid        string
	generation int64
	flag       any  // nil: absent
	lost       bool // the flag has vanished without an edit of the spec
	holds      map[string]any
}

// loses takes over what an object has lost since the delivery before.
func (o *modelObject) loses(before *modelObject) {
	sameSpec := o.uid == before.uid && o.generation == before.generation
	o.lost = sameSpec && o.flag == nil && (before.lost || before.flag != nil && before.flag != false)
}

// reasons returns all reasons why the object closes the gate.
func (o *modelObject) reasons() []string {
	var reasons []string
	switch {
	case o.lost:
		reasons = append(reasons, syncgate.ReasonFieldNotVisible)
	case o.flag == true:
		reasons = append(reasons, syncgate.ReasonSyncPaused)
	case o.flag != nil && o.flag != false:
		reasons = append(reasons, syncgate.ReasonMalformed)
	}
	for _, reason := range o.holds {
		switch reason.(type) {
		case string:
			if reason != "false" {
				reasons = append(reasons, syncgate.ReasonHeld)
			}
		default:
			reasons = append(reasons, syncgate.ReasonMalformed)
		}
	}
	return reasons
}

// modelCluster is what the model knows of one cluster.
type modelCluster struct {
	failOpen bool
	objects  map[string]*modelObject // by name

	// mayBe is which decisions the gate may have now, unless it is stale.
	mayBe struct{ open, closed bool }
	// ripe: the opening that is due may come at any time, also while a relist is
	// delivered.
	ripe bool
	// leftClosed: of what has left in the relist that is delivered, something was closed.
	// The server may never have shown the cluster without it, but for what is there now.
	leftClosed bool
	// leftByWatch: a watch has deleted an object after the relist. So what is missing from
	// the relist left earlier.
	leftByWatch bool
	// mayBeUnknown: no decision has been observed yet.
	mayBeUnknown bool
	had          bool // an object, at any time
}

func newModelCluster(failOpen bool) *modelCluster {
	c := &modelCluster{failOpen: failOpen, objects: map[string]*modelObject{}, mayBeUnknown: true}
	c.mayBe.open, c.mayBe.closed = failOpen, !failOpen
	return c
}

// reasons returns why the gate must be closed; none: it must open.
func (c *modelCluster) reasons() []string {
	var reasons []string
	for _, o := range c.objects {
		reasons = append(reasons, o.reasons()...)
	}
	return reasons
}

// remove takes in that an object has left. byWatch: it was the last one to leave.
func (c *modelCluster) remove(name string, atOnce, byWatch bool) {
	closed := len(c.objects[name].reasons()) > 0
	switch {
	case atOnce, byWatch:
		c.leftClosed, c.leftByWatch = closed, !atOnce
	case !c.leftByWatch:
		c.leftClosed = closed || c.leftClosed
	}
	delete(c.objects, name)
	c.change(atOnce)
}

// change takes in an event. atOnce: what it opens may open at once.
func (c *modelCluster) change(atOnce bool) {
	c.had = true
	switch {
	case len(c.objects) == 0:
		// The last decision stays. An opening that was due may have come already, or may
		// come later.
		if c.leftClosed && !c.ripe && c.mayBe.closed {
			c.mayBe.open = false
		}
		if c.leftByWatch && !c.leftClosed && !c.mayBe.open {
			c.mayBe.open, c.ripe = true, false
		}
	case len(c.reasons()) > 0:
		c.mayBe.open, c.mayBe.closed = false, true
		c.mayBeUnknown = false
	default:
		c.mayBe.open = true
		c.ripe = atOnce
	}
}

// sync takes in that the first list is complete: every gate shows it.
func (c *modelCluster) sync() {
	closed := len(c.reasons()) > 0
	switch {
	case len(c.objects) > 0:
		c.mayBe.open, c.mayBe.closed = !closed, closed
	case c.had: // it came and went before
		c.mayBe.open, c.mayBe.closed = true, true
	}
}

// observe checks what the gate says. waiting: a relist is being delivered.
func (c *modelCluster) observe(s syncgate.State, waiting bool) error {
	opened := !s.Paused && c.mayBe.closed
	switch {
	case s.Paused && !c.mayBe.closed:
		return fmt.Errorf("the gate is closed (%s), but nothing closes it", s.Reason)
	case !s.Paused && !c.mayBe.open:
		return fmt.Errorf("the gate is open (%s); want it closed by %v", s.Reason, c.reasons())
	case opened && waiting && !c.ripe:
		return fmt.Errorf("the gate opened while a relist was being delivered")
	}
	if err := c.observePhase(s); err != nil {
		return err
	}
	c.mayBe.closed = s.Paused // an opening that is due may come later
	return nil
}

func (c *modelCluster) observePhase(s syncgate.State) error {
	want := []syncgate.Phase{syncgate.Gone}
	switch {
	case len(c.objects) == 0 && s.Paused && c.mayBe.open: // it may open as it was left
		return nil
	case len(c.objects) == 0 && c.mayBeUnknown:
		want = append(want, syncgate.Unknown)
	case len(c.objects) == 0:
	case len(c.reasons()) > 0:
		want = []syncgate.Phase{syncgate.Paused}
	case s.Paused: // the opening has not come yet, so the state is an earlier one
		return nil
	default:
		want = []syncgate.Phase{syncgate.Open}
		if c.mayBeUnknown && c.failOpen {
			want = append(want, syncgate.Unknown) // open already
		}
		if s.Phase == syncgate.Gone {
			return nil // it latched open, and what is new is not decided yet
		}
	}
	if !slices.Contains(want, s.Phase) {
		return fmt.Errorf("the phase is %v (%s); want one of %v", s.Phase, s.Reason, want)
	}
	if s.Phase != syncgate.Unknown {
		c.mayBeUnknown = false
	}
	return nil
}

// settled checks what the gate says once all is quiet: nothing is left open.
func (c *modelCluster) settled(s syncgate.State, objects []syncgate.Object) error {
	reasons := c.reasons()
	switch {
	case len(c.objects) == 0:
		c.mayBe.open = !s.Paused
		return c.observePhase(s)
	case len(reasons) == 0 && s.Reason != syncgate.ReasonSyncAllowed:
		return fmt.Errorf("the gate is %v (%s); want it open", s.Phase, s.Reason)
	case len(reasons) > 0 && !slices.Contains(reasons, s.Reason):
		return fmt.Errorf("the reason is %s; want one of %v", s.Reason, reasons)
	case s.Reason == syncgate.ReasonHeld && slices.ContainsFunc(reasons, func(r string) bool { return r != s.Reason }):
		return fmt.Errorf("the reason is %s; want one of %v", s.Reason, reasons)
	}
	if got, want := holdText(s.Holds), c.holdText(); got != want {
		return fmt.Errorf("the holds are %s; want %s", got, want)
	}
	var got, want []string
	for _, o := range objects {
		got = append(got, fmt.Sprint(o.Name, " ", o.UID, " ", o.Generation))
	}
	for name, o := range c.objects {
		want = append(want, fmt.Sprint(name, " ", o.uid, " ", o.generation))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("Objects() = %v; want %v", got, want)
	}
	return nil
}

func holdText(holds []syncgate.Hold) string {
	var all []string
	for _, h := range holds {
		all = append(all, h.String())
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (c *modelCluster) holdText() string {
	var holds []syncgate.Hold
	flagged := false
	for _, o := range c.objects {
		flagged = flagged || o.flag == true
		for owner, reason := range o.holds {
			if text, ok := reason.(string); ok && text != "false" {
				holds = append(holds, syncgate.Hold{Owner: owner, Reason: text})
			}
		}
	}
	if flagged {
		holds = append(holds, syncgate.Hold{Owner: syncgate.SyncPausedField})
	}
	return holdText(holds)
}
