package agent_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/syncgate"
)

func TestMain(m *testing.M) {
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.SetLogger(logr.Discard())
	}
	leaks.Main(m)
}

func options(f *fleettest.Fleet) agent.Options {
	c := f.Children[0]
	return agent.Options{
		Parent: fleettest.As("agent", f.Parent.Config()), Child: fleettest.As("agent", c.Config()),
		Namespace: c.Namespace, ClusterID: c.ID, SyncMode: syncgate.Pull,
	}
}

func run(t *testing.T, o agent.Options) {
	t.Helper()
	fleettest.Run(t, func(ctx context.Context) error { return agent.Run(ctx, o) })
}

func becomes(t *testing.T, c *fleettest.Child, want map[string]string) {
	t.Helper()
	fleettest.Eventually(t, fleettest.Soon, func() bool { return maps.Equal(c.Images(), want) }, func() string {
		phase, reason := c.Phase("web")
		return fmt.Sprintf("images %v, want %v; the Description is %q (%s)", c.Images(), want, phase, reason)
	})
}

// A mistake is reported at once, not when the agent becomes the leader.
func TestRefusesWrongOptions(t *testing.T) {
	for _, test := range []struct {
		want   string
		change func(*agent.Options)
	}{
		{"the parent or the child is nil", func(o *agent.Options) { o.Parent = nil }},
		{"the parent or the child is nil", func(o *agent.Options) { o.Child = nil }},
		{`the sync mode is ""; want Push, Pull or Dual`, func(o *agent.Options) { o.SyncMode = "" }},
		{`the sync mode is "pull"; want Push, Pull or Dual`, func(o *agent.Options) { o.SyncMode = "pull" }},
		{"allow AppPusher, or choose Pull or Dual", func(o *agent.Options) { o.SyncMode = syncgate.Push }},
		{"a duration is negative", func(o *agent.Options) { o.Heartbeat = -1 }},
		{"a duration is negative", func(o *agent.Options) { o.LeaseDuration = -1 }},
		{`namespace "" is not valid`, func(o *agent.Options) { o.Namespace = "" }},
		{"cluster ID is empty", func(o *agent.Options) { o.ClusterID = "" }},
		{"making a client of the parent cluster", func(o *agent.Options) { o.Parent.Host = "https://no host" }},
	} {
		o := agent.Options{
			Parent: &rest.Config{Host: "https://127.0.0.1:1"}, Child: &rest.Config{Host: "https://127.0.0.1:1"},
			Namespace: "clusternet-abcde", ClusterID: "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11", SyncMode: syncgate.Pull,
			LeaseNamespace: "clusternet-system",
		}
		test.change(&o)
		ctx, cancel := context.WithTimeout(t.Context(), fleettest.Soon)
		err := agent.Run(ctx, o)
		cancel()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Run = %v; want an error that says %q", err, test.want)
		}
	}
}

func TestDeploys(t *testing.T) {
	f := fleettest.New(t, 1, syncgate.Pull)
	c := f.Children[0]
	c.Describe("web", fleettest.App("front", "1"), fleettest.App("back", "1"))
	run(t, options(f))
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
}

// One that does not lead is well, serves, and deploys nothing.
func TestTellsAboutItself(t *testing.T) {
	f := fleettest.New(t, 1, syncgate.Pull)
	c := f.Children[0]
	lease := "syncgate-agent-" + string(c.ID)
	c.TakeLease(lease, 3600)
	c.Describe("web", fleettest.App("front", "1"))
	var refuse atomic.Bool
	refuse.Store(true)
	f.Parent.Intercept(t, func(r *http.Request) int {
		if refuse.Load() && strings.Contains(r.URL.Path, "/managedclusters") {
			return http.StatusForbidden
		}
		return 0
	})
	o := options(f)
	o.LeaseNamespace, o.LeaseDuration = fleettest.LeaseNamespace, fleettest.Lease
	served := fleettest.Listen(t, &o.Listener)
	run(t, o)

	served("/healthz", http.StatusOK, "ok")
	served("/readyz", http.StatusOK, "ok")
	served("/metrics", http.StatusOK, "")
	// It asks for the lease again and again; a second is for several times.
	<-time.After(time.Second)
	if writes := c.Writes(); len(writes) > 0 || c.Holder(lease) != "somebody" {
		t.Errorf("%v, and %s holds the lease; want nothing written, and somebody", writes, c.Holder(lease))
	}

	c.DropLease(lease)
	served("/readyz", http.StatusInternalServerError, "syncgate-agent failed")
	served("/healthz", http.StatusOK, "ok") // a restart would mend nothing
	served("/metrics", http.StatusOK, "\nsyncgate_cluster_paused{", "} 1\n")

	refuse.Store(false)
	served("/readyz", http.StatusOK, "ok")
	served("/metrics", http.StatusOK, "\nsyncgate_cluster_paused{", `cluster_name="`+c.Name+`"`, "} 0\n")
	becomes(t, c, map[string]string{"front": "1"})
}
