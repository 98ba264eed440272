package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/internal/command"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// idle gives something time to happen that must not happen. What must happen is never
// waited for like this: a second that is too short misses a fault, and reports none.
func idle() { sleep(time.Second) }

func sleep(d time.Duration) { <-time.After(d) }

// link is the connection of a deployer to a child.
type link struct {
	mu  sync.RWMutex // held while a request waits for its answer
	cut bool
}

var errCut = errors.New("the test has cut the link")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// setCut makes requests fail, or no longer. Earlier requests have been answered when it
// returns, and so they are in the request log.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

// config returns config for a deployer that uses the link. The request log shows its name.
func (l *link) config(config *rest.Config, name string) *rest.Config {
	config.UserAgent = name
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			l.mu.RLock()
			defer l.mu.RUnlock()
			if l.cut {
				return nil, errCut
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

// cluster has a ManagedCluster of its own. Several clusters share the API server of one
// child, since a server takes seconds to start: their apps have different names.
type cluster struct {
	*fleettest.Child
	byAgent, byHub link
}

func clusterOn(tb testing.TB, c *fleettest.Child, n int) *cluster {
	child := c.In(tb)
	child.Namespace, child.Name = fmt.Sprintf("clusternet-m%04d", n), fmt.Sprintf("mode-%d", n)
	child.ID = types.UID(fmt.Sprintf("0b1c2d3e-2222-4a6b-8c7d-%012d", n))
	return &cluster{Child: child}
}

// each runs a subtest for each of these, with a cluster of its own on the first child.
func each(t *testing.T, f *fleettest.Fleet, n int, tests []clusterTest) {
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(f.In(t), clusterOn(t, f.Children[0], n+i)) })
	}
}

type clusterTest struct {
	name string
	run  func(*fleettest.Fleet, *cluster)
}

// app is the name of what the Description web deploys to the cluster.
func (c *cluster) app() string { return "app-of-" + c.Name }

func (c *cluster) edit(image string) {
	c.Helper()
	c.Describe("web", fleettest.App(c.app(), image))
}

// written returns the writes to that app.
func (c *cluster) written() []fleettest.Request {
	return slices.DeleteFunc(c.Writes(), func(w fleettest.Request) bool { return !strings.HasSuffix(w.Path, "/apps/"+c.app()) })
}

// writers returns who has written that app, after the first n writes.
func (c *cluster) writers(n int) []string {
	var agents []string
	for _, w := range c.written()[n:] {
		agents = append(agents, w.Agent)
	}
	slices.Sort(agents)
	return slices.Compact(agents)
}

// await waits until that app has an image; an empty one means that it is gone.
func (c *cluster) await(when, image string) {
	c.Helper()
	c.AwaitImages(when, map[string]string{c.app(): image})
}

// appOf is the name of what another Description deploys to the cluster.
func (c *cluster) appOf(description string) string { return c.app() + "-" + description }

// describeEach creates or edits Descriptions, each with its own app.
func (c *cluster) describeEach(image string, descriptions ...string) {
	c.Helper()
	for _, name := range descriptions {
		c.Describe(name, fleettest.App(c.appOf(name), image))
	}
}

// awaitEach waits until their apps have an image and they are a Success.
func (c *cluster) awaitEach(when, image string, descriptions ...string) {
	c.Helper()
	c.awaitApps(when, image, descriptions...)
	c.AwaitPhase("Success", descriptions...)
}

// awaitApps waits until their apps have an image; an empty one means that they are gone.
func (c *cluster) awaitApps(when, image string, descriptions ...string) {
	c.Helper()
	want := map[string]string{}
	for _, name := range descriptions {
		want[c.appOf(name)] = image
	}
	c.AwaitImages(when, want)
}

// runAgent runs an agent of the cluster. Without parties, it waits for the hub to
// acknowledge a pause, too.
func (c *cluster) runAgent(ctx context.Context, f *fleettest.Fleet, mode syncgate.Mode, appPusher bool, parties ...string) error {
	parent := fleettest.As("agent", f.Parent.Config())
	recorder, err := command.Recorder(ctx, parent, "agent")
	if err != nil {
		return err
	}
	return agent.Run(ctx, agent.Options{
		Parent: parent, Recorder: recorder, Child: c.byAgent.config(c.Config(), "agent"),
		Namespace: c.Namespace, ClusterID: c.ID, SyncMode: mode, AppPusher: appPusher, Parties: parties,
	})
}

// pull runs an agent of the cluster that deploys, and no hub.
func (c *cluster) pull(f *fleettest.Fleet) (stop func()) {
	return fleettest.Run(f, func(ctx context.Context) error { return c.runAgent(ctx, f, syncgate.Pull, false, report.PartyAgent) })
}

// push runs a hub of these clusters, which acknowledges pauses alone.
func push(f *fleettest.Fleet, clusters ...*cluster) (stop func()) {
	return runHub(f, "hub", "", childAmong(clusters), report.PartyHub)
}

func childAmong(clusters []*cluster) func(string, types.UID) (*rest.Config, error) {
	return func(_ string, id types.UID) (*rest.Config, error) {
		for _, c := range clusters {
			if c.ID == id {
				return c.byHub.config(c.Config(), "hub"), nil
			}
		}
		return nil, fmt.Errorf("there is no cluster %s", id)
	}
}

var markers atomic.Int64

// awaitHubObserved waits until the hub has observed all earlier changes of ManagedClusters.
// It observes them in order, so a new ManagedCluster comes last, for which it reports.
func awaitHubObserved(f *fleettest.Fleet) {
	f.Helper()
	marker := clusterOn(f, f.Children[0], 9000+int(markers.Add(1)))
	marker.RegisterPaused(syncgate.Push)
	marker.ReportAppPusher(true)
	marker.AwaitReport(report.PartyHub)
	marker.Unregister()
}
