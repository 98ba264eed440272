package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// modesQuiet is how long a test waits for what is not to come. What is to come takes a
// few milliseconds.
const modesQuiet = time.Second

// modesWait lets time pass for what is not to come.
func modesWait(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// modesLink is the way of a deployer to a child. While it is cut, what is sent fails.
type modesLink struct{ cut atomic.Bool }

var errModesCut = errors.New("the test has cut the link")

type modesTripper func(*http.Request) (*http.Response, error)

func (f modesTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// config returns a configuration of a client that goes by the link, and that the log of
// requests knows by name.
func (l *modesLink) config(config *rest.Config, name string) *rest.Config {
	config.UserAgent = name
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return modesTripper(func(r *http.Request) (*http.Response, error) {
			if l.cut.Load() {
				return nil, errModesCut
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

// modesCluster is a cluster of its own to the parent. Several share the API server of
// one child, since a server costs seconds: what they deploy has different names.
type modesCluster struct {
	*fleettest.Child
	byAgent, byHub modesLink
}

func modesClusterOf(c *fleettest.Child, n int) *modesCluster {
	child := *c
	child.Namespace, child.Name = fmt.Sprintf("clusternet-m%04d", n), fmt.Sprintf("mode-%d", n)
	child.ID = types.UID(fmt.Sprintf("0b1c2d3e-2222-4a6b-8c7d-%012d", n))
	return &modesCluster{Child: &child}
}

// app is what is deployed to the cluster.
func (c *modesCluster) app() string { return "app-of-" + c.Name }

func (c *modesCluster) edit(image string) {
	c.Helper()
	c.Describe("web", fleettest.App(c.app(), image))
}

// writers returns who has written the app, since the first n writes.
func (c *modesCluster) writers(n int) []string {
	var agents []string
	for _, w := range c.written()[n:] {
		agents = append(agents, w.Agent)
	}
	slices.Sort(agents)
	return slices.Compact(agents)
}

func (c *modesCluster) written() []fleettest.Write {
	return slices.DeleteFunc(c.Writes(), func(w fleettest.Write) bool { return !strings.HasSuffix(w.Path, "/apps/"+c.app()) })
}

// await waits until the app has an image; empty: until it is gone.
func (c *modesCluster) await(what, image string) {
	c.Helper()
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return c.Images()[c.app()] == image }, func() string {
		phase, reason := c.Phase("web")
		return fmt.Sprintf("%s, %s: the image is %q, want %q; %s %s", c.Name, what, c.Images()[c.app()], image, phase, reason)
	})
}

// agent returns options of an agent of the cluster.
func (c *modesCluster) agent(f *fleettest.Fleet, mode syncgate.Mode, appPusher bool) agent.Options {
	var direct modesLink
	return agent.Options{
		Parent: direct.config(f.Parent.Config(), "agent"), Child: c.byAgent.config(c.Config(), "agent"),
		Namespace: c.Namespace, ClusterID: c.ID, SyncMode: mode, AppPusher: appPusher,
	}
}

// modesHub runs a hub of these clusters.
func modesHub(f *fleettest.Fleet, clusters ...*modesCluster) (stop func()) {
	f.Helper()
	var direct modesLink
	return fleettest.Run(f.TB, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{
			Parent: direct.config(f.Parent.Config(), "hub"),
			Child: func(_ string, id types.UID) (*rest.Config, error) {
				for _, c := range clusters {
					if c.ID == id {
						return c.byHub.config(c.Config(), "hub"), nil
					}
				}
				return nil, fmt.Errorf("there is no cluster %s", id)
			},
		})
	})
}

// modesCondition returns the condition SyncPaused of a cluster.
func modesCondition(object *unstructured.Unstructured) (status string, observed int64) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == report.ConditionType {
			status, _ = c["status"].(string)
			observed, _ = c["observedGeneration"].(int64)
		}
	}
	return status, observed
}

// modesAwaitPaused waits until the pause that is in force is acknowledged, not an
// earlier one.
func modesAwaitPaused(c *fleettest.Child) {
	c.Helper()
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool {
		object := c.ManagedCluster()
		status, observed := modesCondition(object)
		return status == "True" && observed >= object.GetGeneration()
	}, func() string { return fmt.Sprintf("the pause is not acknowledged: %v", c.ManagedCluster().Object) })
}

// modesTold is a log that keeps the problems with modes.
type modesTold struct {
	mu   sync.Mutex
	last syncgate.ModeProblem
}

func (t *modesTold) Init(logr.RuntimeInfo)          {}
func (t *modesTold) Enabled(int) bool               { return false }
func (t *modesTold) Info(int, string, ...any)       {}
func (t *modesTold) WithValues(...any) logr.LogSink { return t }
func (t *modesTold) WithName(string) logr.LogSink   { return t }
func (t *modesTold) problem() (last syncgate.ModeProblem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}
func (t *modesTold) Error(err error, _ string, _ ...any) {
	var mode *syncgate.ModeError
	if errors.As(err, &mode) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.last = mode.Problem
	}
}

// Each row of the table of who deploys, with an agent and a hub that run both.
func TestWhoDeploys(t *testing.T) {
	t.Parallel()
	f := fleettest.New(t, 1, syncgate.Pull)
	t.Run("Table", func(t *testing.T) { modesTable(t, f) })
	t.Run("Flips", func(t *testing.T) { modesFlips(t, f) })
	t.Run("FlipsWhilePaused", func(t *testing.T) { modesFlipsWhilePaused(t, f) })
	t.Run("TakesOver", func(t *testing.T) { modesTakeOver(t, f) })
}

type modesRow struct {
	*modesCluster
	mode      syncgate.Mode
	appPusher bool
	spec      syncgate.Mode
	by        []string // who deploys
	problem   syncgate.ModeProblem
	told      *modesTold
}

func (r *modesRow) String() string {
	return fmt.Sprintf("%s: agent %s/%t, spec.syncMode %s", r.Name, r.mode, r.appPusher, r.spec)
}

// let has none but these deploy.
func (r *modesRow) let(deployers ...string) {
	r.byAgent.cut.Store(!slices.Contains(deployers, "agent"))
	r.byHub.cut.Store(!slices.Contains(deployers, "hub"))
}

// The rows go through each step together, so that what is not to come is waited for once.
func modesTable(t *testing.T, f *fleettest.Fleet) {
	const push, pull, dual = syncgate.Push, syncgate.Pull, syncgate.Dual
	both, byAgent, byHub := []string{"agent", "hub"}, []string{"agent"}, []string{"hub"}
	rows := []*modesRow{
		{mode: pull, appPusher: true, spec: push, by: both, problem: syncgate.BothDeploy},
		{mode: pull, appPusher: true, spec: dual, by: both, problem: syncgate.BothDeploy},
		{mode: push, appPusher: true, spec: pull, problem: syncgate.NobodyDeploys},
		{mode: dual, appPusher: true, spec: pull, problem: syncgate.NobodyDeploys},
		{mode: pull, appPusher: false, spec: push, by: byAgent, problem: syncgate.SpecMisleads},
		{mode: pull, appPusher: false, spec: dual, by: byAgent, problem: syncgate.SpecMisleads},
		{mode: dual, appPusher: false, spec: push, by: byAgent, problem: syncgate.SpecMisleads},
		{mode: dual, appPusher: false, spec: pull, by: byAgent},
		{mode: dual, appPusher: false, spec: dual, by: byAgent},
		{mode: pull, appPusher: true, spec: pull, by: byAgent},
		{mode: pull, appPusher: false, spec: pull, by: byAgent},
		{mode: push, appPusher: true, spec: push, by: byHub},
		{mode: push, appPusher: true, spec: dual, by: byHub},
		{mode: dual, appPusher: true, spec: push, by: byHub},
		{mode: dual, appPusher: true, spec: dual, by: byHub},
	}
	var clusters []*modesCluster
	for i, r := range rows {
		r.modesCluster, r.told = modesClusterOf(f.Children[0], i), &modesTold{}
		r.TB = t
		clusters = append(clusters, r.modesCluster)
		r.Register(r.spec)
		r.edit("0")
	}
	modesHub(f.In(t), clusters...)
	for _, r := range rows {
		fleettest.Run(t, func(ctx context.Context) error {
			return agent.Run(klog.NewContext(ctx, logr.New(r.told)), r.agent(f, r.mode, r.appPusher))
		})
	}
	deploying := func(n int) []*modesRow {
		return slices.DeleteFunc(slices.Clone(rows), func(r *modesRow) bool { return len(r.by) != n })
	}
	one, two, none := deploying(1), deploying(2), deploying(0)
	all := slices.Concat(one, two)
	each := func(rows []*modesRow, do func(r *modesRow)) {
		t.Helper()
		for _, r := range rows {
			do(r)
		}
	}
	each(all, func(r *modesRow) { r.await("at first", "0") })

	// While the one who deploys can't, nobody does.
	each(one, func(r *modesRow) {
		if r.by[0] == "hub" {
			r.let("agent")
		} else {
			r.let("hub")
		}
	})
	each(rows, func(r *modesRow) { r.edit("1") })
	modesWait(modesQuiet)
	each(one, func(r *modesRow) {
		if got := r.Images()[r.app()]; got != "0" {
			t.Errorf("%s: with the %s cut off the edit was carried out, by %q; want nobody", r, r.by[0], r.writers(0))
		}
	})

	// Where both do, either does it alone.
	each(rows, func(r *modesRow) { r.let("agent", "hub") })
	for image, alone := range map[string]string{"2": "hub", "3": "agent"} {
		before := map[*modesRow]int{}
		each(two, func(r *modesRow) {
			r.await("with both", r.Images()[r.app()])
			r.let(alone)
			before[r] = len(r.written())
			r.edit(image)
		})
		each(one, func(r *modesRow) { r.edit(image) })
		each(two, func(r *modesRow) {
			r.await("with the "+alone+" alone", image)
			if got := r.writers(before[r]); !slices.Equal(got, []string{alone}) {
				t.Errorf("%s: written by %q, want by the %s alone", r, got, alone)
			}
			r.let("agent", "hub")
		})
		each(one, func(r *modesRow) { r.await("an edit", image) })
	}
	each(all, func(r *modesRow) { r.Drift(r.app(), "drift") })
	each(all, func(r *modesRow) {
		fleettest.Eventually(t, fleettest.Soon, func() bool { return r.Images()[r.app()] != "drift" },
			func() string { return r.String() + ": the drift is still there" })
	})

	// The side that deploys acknowledges a pause.
	each(one, func(r *modesRow) { r.Pause() })
	each(one, func(r *modesRow) { modesAwaitPaused(r.Child) })
	paused := map[*modesRow]int{}
	each(one, func(r *modesRow) {
		paused[r] = len(r.written())
		r.edit("4")
		for _, w := range f.Parent.Writes() {
			if w.Method == http.MethodPut && strings.HasSuffix(w.Path, "/managedclusters/"+r.Name+"/status") && w.Agent != r.by[0] {
				t.Errorf("%s: the pause was acknowledged by the %s, want by the %s", r, w.Agent, r.by[0])
			}
		}
	})
	modesWait(modesQuiet)
	each(one, func(r *modesRow) {
		if got := r.written()[paused[r]:]; len(got) > 0 {
			t.Errorf("%s: written while paused: %v; want nothing", r, got)
		}
		r.Resume()
	})
	each(one, func(r *modesRow) { r.await("after the pause", "4") })

	each(rows, func(r *modesRow) { r.DeleteDescription("web") })
	each(all, func(r *modesRow) {
		r.await("after the deletion", "")
		fleettest.Eventually(t, fleettest.Soon, func() bool { return r.Description("web") == nil },
			func() string { return r.String() + ": the Description is still there" })
	})
	each(rows, func(r *modesRow) {
		if got := r.writers(0); !slices.Equal(got, r.by) {
			t.Errorf("%s: written by %q, want by %q", r, got, r.by)
		}
		fleettest.Eventually(t, fleettest.Soon, func() bool { return r.told.problem() == r.problem },
			func() string { return fmt.Sprintf("%s: %v was told, want %v", r, r.told.problem(), r.problem) })
		events := slices.ContainsFunc(f.Parent.Writes(), func(w fleettest.Write) bool {
			return w.Method == http.MethodPost && w.Agent == "agent" && strings.HasSuffix(w.Path, "/namespaces/"+r.Namespace+"/events")
		})
		if r.problem != 0 && !events {
			t.Errorf("%s: no Event tells of the mismatch", r)
		}
	})
	each(none, func(r *modesRow) {
		if got := r.Description("web"); got == nil || got.Object["status"] != nil {
			t.Errorf("%s: the Description is %v; want it left alone", r, got)
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), fleettest.Soon)
	defer cancel()
	err := agent.Run(ctx, rows[0].agent(f, push, false))
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "sync mode Push") || !strings.Contains(err.Error(), "AppPusher") {
		t.Errorf("Run of an agent with Push and without AppPusher = %v; want an error that names both", err)
	}
}

// What the hub left alone it looks at once that is its own, with neither an edit nor a
// resync.
func modesFlips(t *testing.T, f *fleettest.Fleet) {
	clusters := make([]*modesCluster, 4)
	for i := range clusters {
		clusters[i] = modesClusterOf(f.Children[0], 100+i)
		clusters[i].TB = t
	}
	pulled, unreported, deleted, paused := clusters[0], clusters[1], clusters[2], clusters[3]
	for _, c := range []*modesCluster{pulled, deleted, paused} {
		c.Register(syncgate.Pull)
		c.Patch(`{"status":{"appPusher":true}}`, "status")
		c.edit("1")
	}
	unreported.Register(syncgate.Dual)
	unreported.edit("1")
	modesHub(f.In(t), clusters...)
	alone := func(when string) {
		t.Helper()
		modesWait(modesQuiet)
		for _, c := range clusters {
			if got := c.written(); len(got) > 0 || c.Description("web").Object["status"] != nil {
				t.Errorf("%s, %s: %v, and the Description is %v; want it left alone", c.Name, when, got, c.Description("web").Object)
			}
		}
	}
	deleted.DeleteDescription("web")
	paused.Pause()
	alone("at first")
	unreported.Patch(`{"status":{"appPusher":false}}`, "status")
	paused.edit("2")
	alone("with appPusher false")

	for _, c := range []*modesCluster{pulled, deleted, paused} {
		c.Patch(`{"spec":{"syncMode":"Dual"}}`)
	}
	unreported.Patch(`{"status":{"appPusher":true}}`, "status")
	for _, c := range []*modesCluster{pulled, unreported} {
		c.await("after the flip", "1")
		if got := c.Description("web").GetGeneration(); got != 1 {
			t.Errorf("%s: the Description has generation %d, want 1: nobody has edited it", c.Name, got)
		}
	}
	fleettest.Eventually(t, fleettest.Soon, func() bool { return deleted.Description("web") == nil },
		func() string { return "the deleted Description is still there after the flip" })
	fleettest.Eventually(t, fleettest.Soon, func() bool { phase, _ := paused.Phase("web"); return phase == "Pending" }, func() string {
		phase, reason := paused.Phase("web")
		return fmt.Sprintf("paused before the flip: the phase is %q (%s), want Pending", phase, reason)
	})
	if got := paused.written(); len(got) > 0 {
		t.Errorf("paused before the flip: written %v, want nothing", got)
	}
	paused.Resume()
	paused.await("resumed", "2")

	// And back.
	pulled.Patch(`{"spec":{"syncMode":"Pull"}}`)
	unreported.Patch(`{"status":{"appPusher":false}}`, "status")
	modesWait(modesQuiet) // until the hub has seen it, which nothing tells
	for _, c := range []*modesCluster{pulled, unreported} {
		c.edit("3")
	}
	modesWait(modesQuiet)
	for _, c := range []*modesCluster{pulled, unreported} {
		if got := c.Images()[c.app()]; got != "1" {
			t.Errorf("%s: after the flip back the image is %q, want 1 as before", c.Name, got)
		}
	}
	pulled.Patch(`{"spec":{"syncMode":"Push"}}`)
	unreported.Patch(`{"status":{"appPusher":true}}`, "status")
	for _, c := range []*modesCluster{pulled, unreported} {
		c.await("after another flip", "3")
	}
}

// Who waits for a pause waits no longer since the hub came to deploy during it.
func modesFlipsWhilePaused(t *testing.T, f *fleettest.Fleet) {
	flipped, reported := modesClusterOf(f.Children[0], 150), modesClusterOf(f.Children[0], 151)
	flipped.TB, reported.TB = t, t
	flipped.Register(syncgate.Pull)
	flipped.Patch(`{"status":{"appPusher":true}}`, "status")
	reported.Register(syncgate.Push)
	for _, c := range []*modesCluster{flipped, reported} {
		c.Pause()
		c.edit("1")
	}
	modesHub(f.In(t), flipped, reported)
	modesWait(modesQuiet) // until the hub has left them alone, which nothing tells
	flipped.Patch(`{"spec":{"syncMode":"Dual"}}`)
	reported.Patch(`{"status":{"appPusher":true}}`, "status")
	const within = 5 * time.Second // kubectl wait gives up after 30 seconds
	for _, c := range []*modesCluster{flipped, reported} {
		fleettest.Eventually(t, within, func() bool { status, _ := modesCondition(c.ManagedCluster()); return status == "True" },
			func() string {
				return fmt.Sprintf("%s: the pause is not acknowledged: %v", c.Name, c.ManagedCluster().Object["status"])
			})
	}
}

// A Dual agent is started anew with AppPusher, and then without: the other side takes
// over what there is, and writes none of it again.
func modesTakeOver(t *testing.T, f *fleettest.Fleet) {
	c := modesClusterOf(f.Children[0], 200)
	c.TB = t
	c.Register(syncgate.Dual)
	modesHub(f.In(t), c)
	second := "second-" + c.app()
	image := 0
	for _, appPusher := range []bool{false, true, false} {
		by := map[bool]string{true: "hub", false: "agent"}[appPusher]
		if image == 0 {
			c.Describe("web", fleettest.App(c.app(), "0"), fleettest.App(second, "0"))
		}
		before := len(c.written())
		stop := fleettest.Run(t, func(ctx context.Context) error { return agent.Run(ctx, c.agent(f, syncgate.Dual, appPusher)) })
		fleettest.Eventually(t, fleettest.Soon, func() bool {
			reported, known, _ := unstructured.NestedBool(c.ManagedCluster().Object, "status", "appPusher")
			return known && reported == appPusher
		}, func() string { return fmt.Sprintf("status.appPusher is not %t", appPusher) })
		if image > 0 {
			modesWait(modesQuiet)
			if got := c.written()[before:]; len(got) > 0 {
				t.Errorf("taken over by the %s: written %v; want nothing, since nothing has changed", by, got)
			}
		}
		for range 2 {
			image++
			c.Describe("web", fleettest.App(c.app(), fmt.Sprint(image)), fleettest.App(second, fmt.Sprint(image)))
			c.await("by the "+by, fmt.Sprint(image))
		}
		// What the one has deployed is known to the other.
		c.Describe("web", fleettest.App(c.app(), fmt.Sprint(image)))
		want := map[string]string{c.app(): fmt.Sprint(image)}
		fleettest.Eventually(t, fleettest.Soon, func() bool {
			got := c.Images()
			maps.DeleteFunc(got, func(name, _ string) bool { return name != c.app() && name != second })
			return maps.Equal(got, want)
		}, func() string { return fmt.Sprintf("by the %s: the images are %v, want %v", by, c.Images(), want) })
		c.Describe("web", fleettest.App(c.app(), fmt.Sprint(image)), fleettest.App(second, fmt.Sprint(image)))
		fleettest.Eventually(t, fleettest.Soon, func() bool { phase, _ := c.Phase("web"); return phase == "Success" && c.Images()[second] != "" },
			func() string { return fmt.Sprintf("by the %s: the images are %v, want both", by, c.Images()) })
		c.Drift(c.app(), "drift")
		c.await("after a drift, by the "+by, fmt.Sprint(image))
		if got, want := c.writers(before), []string{by}; !slices.Equal(got, want) {
			t.Errorf("with AppPusher %t written by %q, want by %q", appPusher, got, want)
		}
		stop()
	}
}
