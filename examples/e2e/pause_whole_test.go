package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

// wholePause is a pause with changes of all kinds in it.
type wholePause struct {
	*testing.T
	deployer
	fleet        *fleettest.Fleet // child and other
	child, other *fleettest.Child // the other one is never paused
	lease        string

	start func(name string) (stop func())
	stop  func() // what was started first
}

// What happens in the middle of a pause, next to the changes.
var disturbances = []struct {
	name    string
	leases  string
	disturb func(*wholePause)
}{
	{"undisturbed", "", func(*wholePause) {}},
	{"restart", "", (*wholePause).restart},
	{"leader changes", fleettest.LeaseNamespace, (*wholePause).changeLeaders},
}

func TestPausedChildIsLeftAlone(t *testing.T) {
	eachDeployer(t, []deployer{pulls, pushes, dual}, 1+len(disturbances), func(t *testing.T, f *fleettest.Fleet, d deployer) {
		for i, test := range disturbances {
			if d == dual && test.leases != "" {
				continue // the hub has a lease in both modes
			}
			t.Run(test.name, func(t *testing.T) {
				f := f.In(t, f.Children[1+i], f.Children[0])
				p := &wholePause{
					T: t, deployer: d, fleet: f, child: f.Children[0], other: f.Children[1],
					lease: "syncgate-hub",
				}
				if !d.pushes {
					p.lease = "syncgate-agent-" + string(p.child.ID)
				}
				p.start = func(name string) func() { return d.run(f, name, test.leases) }
				p.test(strings.ReplaceAll(test.name, " ", "-"), test.disturb)
			})
		}
	})
}

// test deploys to the child, pauses it, changes things, and resumes it. The app of the
// other child has a name of its own.
func (p *wholePause) test(name string, disturb func(*wholePause)) {
	c, app := p.child, fleettest.App
	otherBefore := len(p.other.Writes())
	p.stop = p.start("one")
	p.other.Describe(name, app(name, "1"))
	p.deploy()
	p.other.AwaitPhase("Success", name)

	began := time.Now()
	c.Pause()
	c.AwaitCondition(acknowledged)
	p.Logf("acknowledged after %v", time.Since(began).Round(time.Millisecond))
	alone := leave(c)
	p.change()
	disturb(p)
	c.Describe("edited", app("edited", "3"))
	c.Drift("unwatched", "x") // a deployer that was started in the pause watches nothing
	c.Describe("later", app("later", "1"))
	c.AwaitParked("later")
	p.other.Describe(name, app(name, "2"))
	p.other.AwaitImages("a child that is not paused", map[string]string{name: "2"})
	c.Quiet()
	p.awaitHeartbeat()
	alone.check(p.T, "in the pause", "MODIFIED drifted-1", "DELETED drifted-2", "MODIFIED drifted-back",
		"MODIFIED drifted-back", "MODIFIED unwatched")
	c.AwaitCondition(acknowledged)

	p.resume()
	p.other.Quiet()
	checkWritten(p.T, p.other, otherBefore, "all the time", "PATCH "+name, "PATCH "+name)
}

const acknowledged = "True Paused: held by spec.syncPaused"

// deploy deploys what changes in the pause.
func (p *wholePause) deploy() {
	c, app := p.child, fleettest.App
	c.Describe("deleted", app("deleted-1", "1"), app("deleted-2", "1"))
	c.Describe("shrunk", app("shrunk-1", "1"), app("shrunk-2", "1"))
	c.Describe("back", app("back-1", "1"), app("back-2", "1"))
	c.Describe("drifted", app("drifted-1", "1"), app("drifted-2", "1"))
	c.AwaitPhase("Success", "deleted", "shrunk", "back", "drifted")
	for _, name := range []string{"edited", "edited-back", "drifted-back", "unwatched", "untouched"} {
		c.Describe(name, app(name, "1"))
		c.AwaitPhase("Success", name)
	}
	c.Quiet()
	checkWritten(p.T, c, 0, "at first", "PATCH edited", "PATCH edited-back", "PATCH deleted-1", "PATCH deleted-2",
		"PATCH shrunk-1", "PATCH shrunk-2", "PATCH back-1", "PATCH back-2", "PATCH drifted-1", "PATCH drifted-2",
		"PATCH drifted-back", "PATCH unwatched", "PATCH untouched")
}

// change changes things in the pause. Some are changed back.
func (p *wholePause) change() {
	c, app := p.child, fleettest.App
	c.Describe("created", app("created", "1"))
	c.Describe("short-lived", app("short-lived", "1"))
	c.Describe("edited", app("edited", "2"))
	c.Describe("edited-back", app("edited-back", "2"))
	c.Describe("shrunk", app("shrunk-1", "1"))
	c.Describe("back", app("back-1", "1"))
	c.DeleteDescription("deleted")
	c.Drift("drifted-1", "x")
	c.Remove("drifted-2")
	c.Drift("drifted-back", "x")
	c.AwaitParked("created", "short-lived", "edited", "edited-back", "shrunk", "back", "deleted", "drifted", "drifted-back")
	c.DeleteDescription("short-lived")
	c.Describe("edited-back", app("edited-back", "1"))
	c.Describe("back", app("back-1", "1"), app("back-2", "1"))
	c.Drift("drifted-back", "1")
}

// resume checks that what has changed is deployed, and nothing else.
func (p *wholePause) resume() {
	c := p.child
	before, began := len(c.Writes()), time.Now()
	c.Resume()
	c.AwaitAllImages("resumed", map[string]string{
		"edited": "3", "edited-back": "1", "shrunk-1": "1", "back-1": "1", "back-2": "1", "drifted-1": "1", "drifted-2": "1",
		"drifted-back": "1", "unwatched": "1", "untouched": "1", "created": "1", "later": "1",
	})
	deployed := time.Since(began)
	c.AwaitPhase("Success", "edited", "edited-back", "shrunk", "back", "drifted", "drifted-back", "unwatched", "untouched", "created", "later")
	c.AwaitNoDescription("deleted", "short-lived")
	p.Logf("resumed: deployed after %v, in the status after %v", deployed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	c.Quiet()
	checkWritten(p.T, c, before, "after the resume", "PATCH edited", "DELETE deleted-1", "DELETE deleted-2",
		"DELETE shrunk-2", "PATCH drifted-1", "PATCH drifted-2", "PATCH unwatched", "PATCH created", "PATCH later")
	for _, w := range c.Writes()[before:] {
		if w.Agent != "one" {
			p.Errorf("%v; want writes by one only, which leads", w)
		}
	}
	c.AwaitCondition("False Syncing")
}

// awaitHeartbeat waits for a heartbeat of the agent, if there is one.
func (p *wholePause) awaitHeartbeat() {
	p.Helper()
	if !p.agents {
		return
	}
	last := func() string {
		at, _, _ := unstructured.NestedString(p.child.ManagedCluster().Object, "status", "lastObservedTime")
		return at
	}
	before := last()
	fleettest.Eventually(p, fleettest.Soon, func() bool { return last() != before }, func() string {
		return fmt.Sprintf("status.lastObservedTime is still %s; want a heartbeat", before)
	})
}

// restart ends the deployer and starts another, which has the Descriptions before it has
// the ManagedCluster.
func (p *wholePause) restart() {
	p.stop()
	p.child.Describe("edited", fleettest.App("edited", "0")) // while no deployer runs
	known := make(chan struct{})
	p.fleet.Parent.Intercept(p, func(r *http.Request) int {
		if r.UserAgent() == "one" && strings.Contains(r.URL.Path, "/managedclusters") {
			select {
			case <-known:
			case <-r.Context().Done():
			}
		}
		return 0
	})
	p.stop = p.start("one")
	idle() // it must not deploy
	close(known)
}

// changeLeaders starts a second deployer and makes the first lose its lease. The first one
// goes on, and takes over again when the second ends. Each begins to deploy.
func (p *wholePause) changeLeaders() {
	var refuse atomic.Bool
	hook := func(r *http.Request) int {
		if refuse.Load() && r.UserAgent() == "one" && r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/leases") {
			return http.StatusInternalServerError
		}
		return 0
	}
	p.fleet.Parent.Intercept(p, hook)
	for _, c := range p.fleet.Children {
		c.Intercept(hook)
	}
	first := p.holder()
	stop := p.start("two")
	refuse.Store(true)
	second := p.holderAfter(first)
	refuse.Store(false)
	p.child.Describe("later", fleettest.App("later", "2"))
	p.child.AwaitParked("later")

	stop()
	if again := p.holderAfter(second); again != first {
		p.Errorf("%s holds the lease; want %s again", again, first)
	}
}

// holder returns who holds the lease of the child's deployer.
func (p *wholePause) holder() string {
	p.Helper()
	if p.pushes {
		return p.fleet.Parent.Holder(p, p.lease)
	}
	return p.child.Holder(p.lease)
}

// holderAfter waits until it is another one.
func (p *wholePause) holderAfter(before string) (now string) {
	p.Helper()
	fleettest.Eventually(p, fleettest.Soon, func() bool {
		now = p.holder()
		return now != "" && now != before
	}, func() string { return fmt.Sprintf("%q holds the lease; want another than %q", now, before) })
	if p.Failed() {
		p.FailNow()
	}
	return now
}
