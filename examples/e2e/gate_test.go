package e2e

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

func TestPatchClosesTheGate(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
		p.register("child", own)
		p.register("neighbour", other)
		gate, hub := p.agent(own), p.hub()
		var resumed atomic.Int64
		defer gate.OnChange(func(c syncgate.Change) {
			if c.Resumed() {
				resumed.Add(1)
			}
		})()
		gates := []*syncgate.Gate{gate, hub.Gate(own)}
		for _, g := range gates {
			if s := g.State(); s.Phase != syncgate.Open {
				t.Errorf("State() = %+v; want Open", s)
			}
		}
		finish := operate(t, gate)
		p.patch("child", pause)
		for _, g := range gates {
			awaitReason(t, syncgate.ReasonSyncPaused, g)
			if s := g.State(); s.Generation != 2 || s.Object.Name != "child" {
				t.Errorf("State() = %+v; want generation 2 of child", s)
			}
		}
		if hub.Gate(other).Paused() {
			t.Error("the neighbour is paused too")
		}
		if err := gate.Do(t.Context(), func(context.Context) error { return nil }); !errors.Is(err, syncgate.ErrPaused) {
			t.Errorf("Do = %v; want ErrPaused", err)
		}
		finish()
		if err := gate.WaitDrained(t.Context()); err != nil {
			t.Error(err)
		}
		for i := range 3 {
			p.heartbeat("child", i)
		}
		p.patch("child", resume)
		awaitReason(t, syncgate.ReasonSyncAllowed, gates...)
		if s := gate.State(); s.AppPusher == nil || !*s.AppPusher {
			t.Errorf("State() = %+v; want appPusher of the heartbeat", s)
		}
		p.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
		awaitReason(t, syncgate.ReasonHeld, gate)
		if err := p.managedClusters().Delete(t.Context(), "child", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitReason(t, syncgate.ReasonDeleted, gate)
		if !gate.Paused() {
			t.Error("the deletion opened the gate")
		}
		// One at sync, one for the resume; they may coalesce with what comes next.
		if n := resumed.Load(); n > 2 {
			t.Errorf("%d callbacks say Resumed; want 2 at the most: no heartbeat makes one", n)
		}
	})
}

// operate starts an operation that is in flight until finish is called.
func operate(tb testing.TB, gate *syncgate.Gate) (finish func()) {
	tb.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		if err := gate.Do(context.Background(), func(context.Context) error { close(begun); <-end; return nil }); err != nil {
			tb.Errorf("the admitted Do = %v", err)
		}
	})
	<-begun
	return func() { close(end); work.Wait() }
}

// An agent gets no event of another cluster in the same namespace.
func TestTheServerSelects(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
		p.register("child", own)
		p.register("neighbour", other)
		inf, err := informer.ForCluster(p.client, namespace, own, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		events := map[string]int{}
		count := func(obj any) {
			mu.Lock()
			defer mu.Unlock()
			events[obj.(*unstructured.Unstructured).GetName()]++
		}
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: count, UpdateFunc: func(_, obj any) { count(obj) }}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		defer ended.Wait()
		defer cancel()
		ended.Go(func() { inf.RunWithContext(ctx) })
		if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
			t.Fatal("not synced")
		}
		for i := range 20 {
			p.heartbeat("neighbour", i)
		}
		p.heartbeat("child", 1)
		got := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(events)
		}
		fleettest.Eventually(t, soon, func() bool { return got()["child"] >= 2 }, func() string { return "the heartbeat of child has not come" })
		if got := got(); !maps.Equal(got, map[string]int{"child": 2}) {
			t.Errorf("events = %v; want 2 of child and none of the neighbour", got)
		}
		if got := inf.Selection(); got != informer.ByField {
			t.Errorf("Selection() = %v; want ByField", got)
		}
	})
}

// The commands of the README, by a real kubectl.
func TestKubectl(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not in PATH")
	}
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	gate := p.agent(own)
	for _, step := range []struct {
		args   []string
		reason string
	}{
		{[]string{"patch", "mcls", "child", "--type=merge", "-p", pause}, syncgate.ReasonSyncPaused},
		{[]string{"annotate", "mcls", "child", "hold.clusters.clusternet.io/backup=nightly run"}, syncgate.ReasonSyncPaused},
		{[]string{"patch", "mcls", "child", "--type=merge", "-p", resume}, syncgate.ReasonHeld},
		{[]string{"annotate", "mcls", "child", "hold.clusters.clusternet.io/backup-"}, syncgate.ReasonSyncAllowed},
	} {
		args := append([]string{"--kubeconfig", p.Kubeconfig(), "-n", namespace}, step.args...)
		if out, err := exec.CommandContext(t.Context(), kubectl, args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", step.args, err, out)
		}
		awaitReason(t, step.reason, gate)
	}
}
