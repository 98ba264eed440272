package e2e

import (
	"fmt"
	"time"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

func testClaimedTwice(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	both := c.app()
	c.Describe("first", fleettest.App(both, "1"))
	c.AwaitPhase("Success", "first")
	c.Describe("second", fleettest.App(both, "2"), fleettest.App(c.appOf("second"), "2"))
	c.AwaitFailure("second", c.Namespace+"/first has it too", "App default/"+both)
	c.AwaitImages("claimed twice", map[string]string{both: "1", c.appOf("second"): "2"})
	idle()
	if got := c.written(); len(got) != 1 {
		c.Errorf("claimed twice: written %v; want the first write only", got)
	}
	if phase, reason := c.Phase("first"); phase != "Success" {
		c.Errorf("the first Description is %s (%s), want Success", phase, reason)
	}
	c.Drift(both, "drift")
	c.AwaitImages("drifted", map[string]string{both: "1"})

	began := time.Now()
	c.DeleteDescription("second")
	c.AwaitNoDescription("second")
	c.AwaitImages("the second deleted", map[string]string{both: "1", c.appOf("second"): ""})
	c.Describe("second", fleettest.App(both, "2"))
	c.AwaitFailure("second", c.Namespace+"/first has it too")
	c.DeleteDescription("first")
	c.AwaitImages("the first deleted", map[string]string{both: "2"})
	c.AwaitPhase("Success", "second")
	c.Logf("taken over %v after the first was deleted", time.Since(began))
}

// An app moves to a second Description, which has it before the first one drops it. It is
// not deleted on the way.
func testMovedAddFirst(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	moves, from, to := c.app(), fleettest.App(c.appOf("from"), "1"), fleettest.App(c.appOf("to"), "1")
	c.Describe("from", from, fleettest.App(moves, "1"))
	c.Describe("to", to)
	c.AwaitPhase("Success", "from", "to")
	uid := c.AppObject(moves).GetUID()
	c.Describe("to", to, fleettest.App(moves, "2"))
	c.AwaitFailure("to", c.Namespace+"/from has it too")
	idle() // as people do between two edits
	began := time.Now()
	c.Describe("from", from)
	c.AwaitImages("moved", map[string]string{moves: "2"})
	c.Logf("moved in %v", time.Since(began))
	if got := c.AppObject(moves).GetUID(); got != uid {
		c.Errorf("the app that has moved has UID %s; want %s as before: it was deleted on the way", got, uid)
	}
	c.AwaitPhase("Success", "to")
}

// An app that the first Description drops before the second one has it may be deleted on
// the way.
func testMovedRemoveFirst(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	moves, from, to := c.app(), fleettest.App(c.appOf("from"), "1"), fleettest.App(c.appOf("to"), "1")
	for range 5 {
		c.Describe("from", from, fleettest.App(moves, "1"))
		c.Describe("to", to)
		c.AwaitPhase("Success", "from", "to")
		c.Describe("from", from)
		c.Describe("to", to, fleettest.App(moves, "2"))
		c.AwaitImages("moved", map[string]string{moves: "2"})
		c.AwaitPhase("Success", "from", "to")
		c.Describe("to", to)
		c.AwaitImages("removed", map[string]string{moves: ""})
	}
}

// A Description has an app that another one owns, and can't take it over. The other one
// drops it, and then so does this one: it must not stay in the child.
func testMovedToNowhere(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	for name, raw := range map[string]string{
		"refused":   `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"namespace":"default","name":%q},"spec":{"image":5}}`,
		"malformed": `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"namespace":"default","name":%q}}`,
	} {
		from, to, moves := "from-"+name, "to-"+name, c.appOf(name)
		c.Describe(from, fleettest.App(moves, "1"))
		c.AwaitPhase("Success", from)
		c.describeEach("1", to)
		c.AwaitPhase("Success", to)
		objects := []string{fmt.Sprintf(raw, moves)}
		if name == "malformed" {
			objects = append(objects, "{")
		}
		c.DescribeRaw(to, objects...)
		c.AwaitFailure(to)
		c.Describe(from)
		idle() // it must not be deleted now, but a fault in that is found below
		c.describeEach("2", to)
		c.awaitEach("corrected", "2", to)
		c.AwaitPhase("Success", from)
		c.AwaitImages(name+": no Description has it", map[string]string{moves: ""})
	}
}
