package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// deployer is a way to deploy to the children of a fleet.
type deployer struct {
	name   string
	mode   syncgate.Mode // spec.syncMode, and that of the agents
	pushes bool          // the hub does it
	agents bool          // agents run, as they always should
}

var (
	pulls  = deployer{"agent, Pull", syncgate.Pull, false, true}
	pushes = deployer{"hub, Push", syncgate.Push, true, false} // the test reports for the agents
	dual   = deployer{"hub, Dual", syncgate.Dual, true, true}
)

// eachDeployer runs a test with each of some, on a fleet of n children that is known to it.
func eachDeployer(t *testing.T, some []deployer, n int, test func(*testing.T, *fleettest.Fleet, deployer)) {
	for _, d := range some {
		t.Run(d.name, func(t *testing.T) {
			f := fleettest.New(t, n, d.mode)
			if d.pushes {
				for _, c := range f.Children {
					c.Patch(`{"status":{"appPusher":true}}`, "status")
				}
			}
			if d.pushes && d.agents {
				d.runAgents(f, "agent", "")
			}
			test(t, f, d)
		})
	}
}

// run runs a process that deploys until stop is called or the test ends: the hub, or
// the agents of the children. Its requests have its name. With leases, of several
// processes one deploys.
func (d deployer) run(f *fleettest.Fleet, name, leases string) (stop func()) {
	f.Helper()
	if !d.pushes {
		return d.runAgents(f, name, leases)
	}
	return fleettest.Run(f, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{
			Parent: fleettest.As(name, f.Parent.Config()),
			Child: func(_ string, id types.UID) (*rest.Config, error) {
				for _, c := range f.Children {
					if c.ID == id {
						return fleettest.As(name, c.Config()), nil
					}
				}
				return nil, fmt.Errorf("%s is no child", id)
			},
			LeaseNamespace: leases, LeaseDuration: fleettest.Lease,
		})
	})
}

func (d deployer) runAgents(f *fleettest.Fleet, name, leases string) (stop func()) {
	f.Helper()
	var stops []func()
	for _, c := range f.Children {
		stops = append(stops, fleettest.Run(f, func(ctx context.Context) error {
			return agent.Run(ctx, agent.Options{
				Parent: fleettest.As(name, f.Parent.Config()), Child: fleettest.As(name, c.Config()),
				Namespace: c.Namespace, ClusterID: c.ID, SyncMode: d.mode, AppPusher: d.pushes,
				LeaseNamespace: leases, LeaseDuration: fleettest.Lease,
				Heartbeat: 200 * time.Millisecond,
			})
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// written returns what has been written to a child after the first n writes, in
// alphabetical order, as "PATCH name" or "DELETE name".
func written(c *fleettest.Child, n int) []string {
	all := make([]string, 0)
	for _, w := range c.Writes()[n:] {
		all = append(all, w.Method+" "+path.Base(w.Path))
	}
	slices.Sort(all)
	return all
}

func checkWritten(t *testing.T, c *fleettest.Child, n int, when string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := written(c, n); !slices.Equal(got, want) {
		t.Errorf("%s: the child %s was asked for %q; want %q, each once", when, c.Name, got, want)
	}
}

// leftAlone checks that nothing but what the test did has happened to a child.
type leftAlone struct {
	*fleettest.Child
	writes, asked int
	seen          func() []string
}

// leave begins to watch a child that has acknowledged a pause.
func leave(c *fleettest.Child) *leftAlone {
	c.Helper()
	return &leftAlone{c, len(c.Writes()), len(c.Asked()), c.Watch()}
}

func (l *leftAlone) check(t *testing.T, when string, own ...string) {
	t.Helper()
	checkWritten(t, l.Child, l.writes, when)
	if asked := l.Asked()[l.asked:]; len(asked) > 0 {
		t.Errorf("%s: the paused child was asked %q; want nothing", when, asked)
	}
	fleettest.Eventually(t, fleettest.Soon, func() bool { return len(l.seen()) >= len(own) }, func() string {
		return fmt.Sprintf("%s: a watch of the child has seen %q; want %q, by the test", when, l.seen(), own)
	})
	if got := l.seen(); !slices.Equal(got, own) {
		t.Errorf("%s: a watch of the child has seen %q; want %q alone, by the test", when, got, own)
	}
}

// phases waits until these Descriptions have a phase.
func phases(c *fleettest.Child, want string, names ...string) {
	c.Helper()
	for _, name := range names {
		fleettest.Eventually(c.TB, fleettest.Soon, func() bool { phase, _ := c.Phase(name); return phase == want }, func() string {
			phase, reason := c.Phase(name)
			return fmt.Sprintf("Description %s of %s is %q (%s); want %s", name, c.Name, phase, reason, want)
		})
	}
}

// parked waits until these Descriptions tell that the cluster is held.
func parked(c *fleettest.Child, names ...string) {
	c.Helper()
	phases(c, "Pending", names...)
	for _, name := range names {
		if _, reason := c.Phase(name); !strings.Contains(reason, "held by "+syncgate.SyncPausedField) {
			c.Errorf("Description %s of %s is Pending, since %q; want who holds the cluster", name, c.Name, reason)
		}
	}
}

func images(c *fleettest.Child, within time.Duration, want map[string]string) {
	c.Helper()
	fleettest.Eventually(c.TB, within, func() bool { return maps.Equal(c.Images(), want) }, func() string {
		return fmt.Sprintf("the images of %s are %v; want %v", c.Name, c.Images(), want)
	})
}

// pausedToTheEnd is a pause with changes of all kinds in it.
type pausedToTheEnd struct {
	*testing.T
	deployer
	fleet        *fleettest.Fleet // child and neighbour
	child, other *fleettest.Child // the other one is never paused
	lease        string

	start func(name string) (stop func())
	stop  func() // what was started first
}

// What happens in the middle of a pause, next to the changes.
var events = []struct {
	name   string
	leases string
	happen func(*pausedToTheEnd)
}{
	{"undisturbed", "", func(*pausedToTheEnd) {}},
	{"restart", "", (*pausedToTheEnd).restart},
	{"leader changes", fleettest.LeaseNamespace, (*pausedToTheEnd).changeLeaders},
}

func TestPausedChildIsLeftAlone(t *testing.T) {
	eachDeployer(t, []deployer{pulls, pushes, dual}, 1+len(events), func(t *testing.T, f *fleettest.Fleet, d deployer) {
		for i, event := range events {
			if d == dual && event.leases != "" {
				continue // the hub has a lease in whichever mode
			}
			t.Run(event.name, func(t *testing.T) {
				f := f.In(t, f.Children[1+i], f.Children[0])
				p := &pausedToTheEnd{
					T: t, deployer: d, fleet: f, child: f.Children[0], other: f.Children[1],
					lease: "syncgate-hub",
				}
				if !d.pushes {
					p.lease = "syncgate-agent-" + string(p.child.ID)
				}
				p.start = func(name string) func() { return d.run(f, name, event.leases) }
				p.test(event.name, event.happen)
			})
		}
	})
}

func (p *pausedToTheEnd) test(name string, happen func(*pausedToTheEnd)) {
	c, app := p.child, fleettest.App
	name = strings.ReplaceAll(name, " ", "-")
	otherBefore := len(p.other.Writes())
	p.stop = p.start("one")
	p.other.Describe(name, app(name, "1"))
	c.Describe("edited", app("edited", "1"))
	c.Describe("edited-back", app("edited-back", "1"))
	c.Describe("deleted", app("deleted-1", "1"), app("deleted-2", "1"))
	c.Describe("shrunk", app("shrunk-1", "1"), app("shrunk-2", "1"))
	c.Describe("back", app("back-1", "1"), app("back-2", "1"))
	c.Describe("drifted", app("drifted-1", "1"), app("drifted-2", "1"))
	c.Describe("drifted-back", app("drifted-back", "1"))
	c.Describe("unseen", app("unseen", "1"))
	c.Describe("untouched", app("untouched", "1"))
	phases(c, "Success", "edited", "edited-back", "deleted", "shrunk", "back", "drifted", "drifted-back", "unseen", "untouched")
	phases(p.other, "Success", name)
	c.Quiet()
	checkWritten(p.T, c, 0, "at first", "PATCH edited", "PATCH edited-back", "PATCH deleted-1", "PATCH deleted-2",
		"PATCH shrunk-1", "PATCH shrunk-2", "PATCH back-1", "PATCH back-2", "PATCH drifted-1", "PATCH drifted-2",
		"PATCH drifted-back", "PATCH unseen", "PATCH untouched")

	began := time.Now()
	c.Pause()
	c.Becomes("True Paused: held by spec.syncPaused")
	p.Logf("acknowledged after %v", time.Since(began).Round(time.Millisecond))
	alone := leave(c)

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
	parked(c, "created", "short-lived", "edited", "edited-back", "shrunk", "back", "deleted", "drifted", "drifted-back")
	c.DeleteDescription("short-lived")
	c.Describe("edited-back", app("edited-back", "1"))
	c.Describe("back", app("back-1", "1"), app("back-2", "1"))
	c.Drift("drifted-back", "1")

	happen(p)

	c.Describe("edited", app("edited", "3"))
	c.Drift("unseen", "x") // who has begun in the pause watches nothing
	c.Describe("later", app("later", "1"))
	parked(c, "later")
	p.other.Describe(name, app(name, "2"))
	fleettest.Eventually(p, fleettest.Soon, func() bool { return p.other.Images()[name] == "2" }, func() string {
		return fmt.Sprintf("the images of the child that is not paused are %v; want %s:2", p.other.Images(), name)
	})
	c.Quiet()
	p.beats()
	alone.check(p.T, "in the pause", "MODIFIED drifted-1", "DELETED drifted-2", "MODIFIED drifted-back",
		"MODIFIED drifted-back", "MODIFIED unseen")
	c.Becomes("True Paused: held by spec.syncPaused")

	before := len(c.Writes())
	began = time.Now()
	c.Resume()
	images(c, fleettest.Soon, map[string]string{
		"edited": "3", "edited-back": "1", "shrunk-1": "1", "back-1": "1", "back-2": "1", "drifted-1": "1", "drifted-2": "1",
		"drifted-back": "1", "unseen": "1", "untouched": "1", "created": "1", "later": "1",
	})
	level := time.Since(began)
	phases(c, "Success", "edited", "edited-back", "shrunk", "back", "drifted", "drifted-back", "unseen", "untouched", "created", "later")
	fleettest.Eventually(p, fleettest.Soon, func() bool { return c.Description("deleted") == nil && c.Description("short-lived") == nil },
		func() string { return "a deleted Description is still there" })
	p.Logf("resumed: all was deployed after %v, and told after %v", level.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if level > fleettest.Prompt {
		p.Errorf("all was deployed %v after the resume; want at most %v", level, fleettest.Prompt)
	}
	c.Quiet()
	checkWritten(p.T, c, before, "after the resume", "PATCH edited", "DELETE deleted-1", "DELETE deleted-2",
		"DELETE shrunk-2", "PATCH drifted-1", "PATCH drifted-2", "PATCH unseen", "PATCH created", "PATCH later")
	for _, w := range c.Writes()[before:] {
		if w.Agent != "one" {
			p.Errorf("%v; want one to write, which leads", w)
		}
	}
	c.Becomes("False Syncing")
	p.other.Quiet()
	checkWritten(p.T, p.other, otherBefore, "all the time", "PATCH "+name, "PATCH "+name)
}

// beats checks that the agent, if there is one, goes on telling that it lives.
func (p *pausedToTheEnd) beats() {
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
		return fmt.Sprintf("status.lastObservedTime is %s still; want a heartbeat", before)
	})
}

// restart ends the process and starts another, which has the Descriptions before it
// knows of the pause.
func (p *pausedToTheEnd) restart() {
	p.stop()
	p.child.Describe("edited", fleettest.App("edited", "0")) // while nobody looks
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
	<-time.After(300 * time.Millisecond) // for it to do nothing in
	close(known)
}

// changeLeaders has a second process take over from the first, which goes on and takes
// over again when the second ends. Each begins to deploy.
func (p *pausedToTheEnd) changeLeaders() {
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
	parked(p.child, "later")

	stop()
	if again := p.holderAfter(second); again != first {
		p.Errorf("%s holds the lease; want %s again", again, first)
	}
}

// holder returns who holds the lease of the child's deployer.
func (p *pausedToTheEnd) holder() string {
	p.Helper()
	if p.pushes {
		return p.fleet.Parent.Holder(p, p.lease)
	}
	return p.child.Holder(p.lease)
}

// holderAfter waits for another one.
func (p *pausedToTheEnd) holderAfter(before string) (now string) {
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

// held is how many writes a child is asked for before one is held up.
const held = 9

// holdUp holds up what is written to a child by a method, from one write on, until
// release is called.
func holdUp(c *fleettest.Child, method string) (waiting func() int, release func()) {
	var begun, blocked atomic.Int64
	released := make(chan struct{})
	c.Intercept(func(r *http.Request) int {
		if r.Method == method && !r.URL.Query().Has("dryRun") && begun.Add(1) > held {
			blocked.Add(1)
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		return 0
	})
	return func() int { return int(blocked.Load()) }, func() { close(released) }
}

func TestPauseInTheMiddle(t *testing.T) {
	const many = 30
	type described map[string][]map[string]any // by the name of its Description
	large, several := described{}, described{}
	for i := range many {
		app := fleettest.App(fmt.Sprintf("app-%02d", i), "1")
		several[fmt.Sprintf("of-%d", i%6)] = append(several[fmt.Sprintf("of-%d", i%6)], app)
		large["large"] = append(large["large"], app)
	}
	tests := []struct {
		name     string
		method   string
		inFlight int // for each of the workers one
		of       described
	}{
		{"of a large Description", http.MethodPatch, 1, large},
		{"of several Descriptions", http.MethodPatch, 4, several},
		{"of the end of a large Description", http.MethodDelete, 1, large},
	}
	eachDeployer(t, []deployer{pulls, pushes}, len(tests), func(t *testing.T, f *fleettest.Fleet, d deployer) {
		for i, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				f := f.In(t, f.Children[i])
				c := f.Children[0]
				d.run(f, "one", "")
				names := slices.Sorted(maps.Keys(test.of))
				describe := func() {
					for _, name := range names {
						c.Describe(name, test.of[name]...)
					}
				}
				begin := describe
				if test.method == http.MethodDelete {
					describe()
					phases(c, "Success", names...)
					c.Quiet()
					begin = func() { c.DeleteDescription("large") }
				}
				waiting, release := holdUp(c, test.method)
				before := len(c.Writes())
				begin()
				fleettest.Eventually(t, fleettest.Soon, func() bool { return waiting() == test.inFlight }, func() string {
					return fmt.Sprintf("%d writes are held up; want %d", waiting(), test.inFlight)
				})
				c.Pause()
				c.Becomes(fmt.Sprintf("False Draining: held by spec.syncPaused; operations still in flight: %d", test.inFlight))
				release()
				c.Becomes("True Paused: held by spec.syncPaused")
				alone := leave(c)
				wrote := held + test.inFlight
				if got := len(c.Writes()) - before; got != wrote {
					t.Errorf("%d writes were begun until the acknowledgement; want %d, those before the pause", got, wrote)
				}
				want := wrote
				if test.method == http.MethodDelete {
					want = many - wrote
				}
				if got := len(c.Images()); got != want {
					t.Errorf("the child has %d apps at the acknowledgement; want %d: what was in flight has ended", got, want)
				}
				fleettest.Eventually(t, fleettest.Soon, func() bool {
					return slices.ContainsFunc(names, func(name string) bool { phase, _ := c.Phase(name); return phase == "Pending" })
				}, func() string { return "no Description is Pending" })
				c.Quiet()
				alone.check(t, "after the acknowledgement")

				began := time.Now()
				c.Resume()
				var all []string
				for i := range many {
					all = append(all, fmt.Sprintf("%s app-%02d", test.method, i))
				}
				fleettest.Eventually(t, fleettest.Soon, func() bool { return len(c.Writes())-before >= many }, func() string {
					return fmt.Sprintf("%d of %d apps have been written", len(c.Writes())-before, many)
				})
				took := time.Since(began)
				t.Logf("resumed: the rest was written after %v", took.Round(time.Millisecond))
				if took > fleettest.Prompt {
					t.Errorf("the rest was written %v after the resume; want at most %v", took, fleettest.Prompt)
				}
				if test.method == http.MethodDelete {
					fleettest.Eventually(t, fleettest.Soon, func() bool { return c.Description("large") == nil },
						func() string { return "the Description is still there" })
				} else {
					phases(c, "Success", names...)
				}
				c.Quiet()
				checkWritten(t, c, before, "in all", all...)
			})
		}
	})
}

func TestRestartWritesWhatHasChanged(t *testing.T) {
	eachDeployer(t, []deployer{pulls, pushes}, 2, func(t *testing.T, f *fleettest.Fleet, d deployer) {
		app := fleettest.App
		stop := d.run(f, "one", "")
		for _, c := range f.Children {
			c.Describe("web", app("front", "1"), app("back", "1"))
			c.Describe("gone", app("gone", "1"))
			c.Describe("shrunk", app("shrunk-1", "1"), app("shrunk-2", "1"))
			c.Describe("drifted", app("drifted-1", "1"), app("drifted-2", "1"))
		}
		for _, c := range f.Children {
			phases(c, "Success", "web", "gone", "shrunk", "drifted")
			c.Quiet()
		}
		restart := func(meanwhile, afterwards func(*fleettest.Child), when string, want ...string) {
			t.Helper()
			before := map[*fleettest.Child]int{}
			stop()
			for _, c := range f.Children {
				before[c] = len(c.Writes())
				meanwhile(c)
			}
			stop = d.run(f, "one", "")
			for _, c := range f.Children {
				c.Describe(when, app(when, "1"))
				phases(c, "Success", when)
				afterwards(c)
				c.Quiet()
				checkWritten(t, c, before[c], when, append(want, "PATCH "+when)...)
			}
		}
		restart(func(*fleettest.Child) {}, func(*fleettest.Child) {}, "nothing-changed")
		restart(func(c *fleettest.Child) {
			c.Describe("web", app("front", "2"), app("back", "1"))
			c.DeleteDescription("gone")
			c.Describe("shrunk", app("shrunk-1", "1"))
			c.Drift("drifted-1", "x")
			c.Remove("drifted-2")
		}, func(c *fleettest.Child) {
			images(c, fleettest.Soon, map[string]string{
				"front": "2", "back": "1", "shrunk-1": "1", "drifted-1": "1", "drifted-2": "1",
				"nothing-changed": "1", "all-changed": "1",
			})
		}, "all-changed", "PATCH front", "DELETE gone", "DELETE shrunk-2", "PATCH drifted-1", "PATCH drifted-2")
	})
}
