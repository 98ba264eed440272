package hub_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

func TestMain(m *testing.M) {
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.SetLogger(logr.Discard())
	}
	leaks.Main(m)
}

func run(t *testing.T, o hub.Options) {
	t.Helper()
	fleettest.Run(t, func(ctx context.Context) error { return hub.Run(ctx, o) })
}

// options are those of a hub that reads the addresses of its children from files, of
// which there are some.
func options(t *testing.T, f *fleettest.Fleet, children ...*fleettest.Child) hub.Options {
	t.Helper()
	dir := t.TempDir()
	for _, c := range children {
		kubeconfig, err := os.ReadFile(c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, c.Namespace), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.Namespace, string(c.ID)+".kubeconfig"), kubeconfig, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return hub.Options{
		Parent: fleettest.As("hub", f.Parent.Config()), Child: hub.ChildrenIn(dir),
		Parties: []string{report.PartyHub}, // no agent runs
	}
}

func becomes(t *testing.T, c *fleettest.Child, want map[string]string) {
	t.Helper()
	fleettest.Eventually(t, fleettest.Soon, func() bool { return maps.Equal(c.Images(), want) }, func() string {
		phase, reason := c.Phase("web")
		return fmt.Sprintf("images of %s %v, want %v; the Description is %q (%s)", c.Name, c.Images(), want, phase, reason)
	})
}

func TestRefusesWrongOptions(t *testing.T) {
	for _, test := range []struct {
		want   string
		change func(*hub.Options)
	}{
		{"the parent or the children are nil", func(o *hub.Options) { o.Parent = nil }},
		{"the parent or the children are nil", func(o *hub.Options) { o.Child = nil }},
		{"the duration of the lease is negative", func(o *hub.Options) { o.LeaseDuration = -1 }},
		{"making a client of the parent cluster", func(o *hub.Options) { o.Parent.Host = "https://no host" }},
	} {
		o := hub.Options{
			Parent:         &rest.Config{Host: "https://127.0.0.1:1"},
			Child:          func(string, types.UID) (*rest.Config, error) { return nil, errors.New("it was called") },
			LeaseNamespace: "clusternet-system",
		}
		test.change(&o)
		ctx, cancel := context.WithTimeout(t.Context(), fleettest.Soon)
		err := hub.Run(ctx, o)
		cancel()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Run = %v; want an error that says %q", err, test.want)
		}
	}
}

func TestDeploys(t *testing.T) {
	f := fleettest.New(t, 2, syncgate.Push)
	c, unknown := f.Children[0], f.Children[1]
	for _, c := range f.Children {
		c.Patch(`{"status":{"appPusher":true}}`, "status")
		c.Describe("web", fleettest.App("front", "1"), fleettest.App("back", "1"))
	}
	run(t, options(t, f, c))
	becomes(t, c, map[string]string{"front": "1", "back": "1"})
	c.Describe("web", fleettest.App("front", "2"))
	becomes(t, c, map[string]string{"front": "2"})
	c.Drift("front", "x")
	becomes(t, c, map[string]string{"front": "2"})
	c.Remove("front")
	becomes(t, c, map[string]string{"front": "2"})
	c.DeleteDescription("web")
	becomes(t, c, map[string]string{})
	fleettest.Eventually(t, fleettest.Soon, func() bool { return c.Description("web") == nil }, func() string {
		return "the Description is still there"
	})

	// How to reach it, nobody has said.
	fleettest.Eventually(t, fleettest.Soon, func() bool {
		phase, reason := unknown.Phase("web")
		return phase == "Failure" && strings.Contains(reason, string(unknown.ID)+".kubeconfig")
	}, func() string {
		phase, reason := unknown.Phase("web")
		return fmt.Sprintf("the Description is %q (%s); want Failure, and the file that there is not", phase, reason)
	})
	becomes(t, unknown, map[string]string{})
}

// deployersRunning returns how many deployers run in this process.
func deployersRunning() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "deploy.(*Deployer).Run(")
}

// The deployer of a cluster ends, with its watches and requests, when the cluster is not
// the hub's any more.
func TestEndsWithItsCluster(t *testing.T) {
	f := fleettest.New(t, 1, syncgate.Push)
	c := f.Children[0]
	c.ReportAppPusher(true)
	run(t, options(t, f, c))
	image := 0
	deployed := func() {
		image++
		c.Describe("web", fleettest.App("front", fmt.Sprint(image)))
		becomes(t, c, map[string]string{"front": fmt.Sprint(image)})
		c.AwaitPhase("Success", "web")
	}
	for _, test := range []struct {
		what       string
		away, back func()
	}{
		{"another deploys", func() { c.Patch(`{"spec":{"syncMode":"Pull"}}`) }, func() { c.Patch(`{"spec":{"syncMode":"Push"}}`) }},
		{"it may not push", func() { c.ReportAppPusher(false) }, func() { c.ReportAppPusher(true) }},
		{"it has another ID", func() { c.Patch(`{"spec":{"clusterId":"0b1c2d3e-1111-4a6b-8c7d-999999999999"}}`) },
			func() { c.Patch(fmt.Sprintf(`{"spec":{"clusterId":%q}}`, c.ID)) }},
		{"it is gone", c.Unregister, func() { c.Register(syncgate.Push); c.ReportAppPusher(true) }},
		{"it is gone while paused", func() { c.Pause(); c.AwaitPaused(); c.Unregister() },
			func() { c.Register(syncgate.Push); c.ReportAppPusher(true) }},
	} {
		deployed()
		test.away()
		fleettest.Eventually(t, fleettest.Soon, func() bool { return deployersRunning() == 0 }, func() string {
			return fmt.Sprintf("%s: %d deployers run; want none", test.what, deployersRunning())
		})
		before := len(c.AllRequests())
		c.Drift("front", "x")
		c.Describe("web", fleettest.App("front", "away"))
		c.Quiet()
		if got := c.AllRequests()[before:]; len(got) > 0 {
			t.Errorf("%s: the child has had %v; want nothing", test.what, got)
		}
		test.back()
	}
	deployed()

	// Deleted Descriptions of a lost cluster are released.
	c.Unregister()
	c.DeleteDescription("web")
	c.AwaitNoDescription("web")
	fleettest.Eventually(t, fleettest.Soon, func() bool { return deployersRunning() == 0 }, func() string {
		return fmt.Sprintf("released: %d deployers run; want none", deployersRunning())
	})
}

// One that does not lead is well, serves, and deploys nothing.
func TestTellsAboutItself(t *testing.T) {
	f := fleettest.New(t, 1, syncgate.Push)
	c := f.Children[0]
	const lease = "syncgate-hub"
	f.Parent.TakeLease(t, lease, 3600)
	c.Patch(`{"status":{"appPusher":true}}`, "status")
	c.Describe("web", fleettest.App("front", "1"))
	o := options(t, f, c)
	o.LeaseNamespace, o.LeaseDuration = fleettest.LeaseNamespace, fleettest.Lease
	served := fleettest.Listen(t, &o.Listener)
	run(t, o)

	served("/healthz", http.StatusOK, "ok")
	served("/readyz", http.StatusOK, "ok")
	served("/metrics", http.StatusOK, "")
	// It asks for the lease again and again; a second is for several times.
	<-time.After(time.Second)
	if requests := c.AllRequests(); len(requests) > 0 || f.Parent.Holder(t, lease) != "somebody" {
		t.Errorf("%v, and %s holds the lease; want the child left alone, and somebody", requests, f.Parent.Holder(t, lease))
	}

	f.Parent.DropLease(t, lease)
	served("/metrics", http.StatusOK, "\nsyncgate_cluster_paused{", `cluster_name="`+c.Name+`"`, "} 0\n")
	served("/readyz", http.StatusOK, "ok")
	becomes(t, c, map[string]string{"front": "1"})
}
