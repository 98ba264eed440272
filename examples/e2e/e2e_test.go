// Package e2e proves on a real API server what a stub can only claim: that the
// server selects, what it does to watches when a CRD changes, and how a gate comes
// through its restarts.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	namespace = "clusternet-abcde"
	own       = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
	other     = "0b0d9a3c-74d4-4f3b-8d8e-2f1a9c0b6d22"

	// soon is how long a test waits for what should come at once, on a machine
	// that does other things too.
	soon = 30 * time.Second
)

func TestMain(m *testing.M) {
	// client-go says a lot about the faults that these tests make.
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.SetLogger(logr.Discard())
	}
	leaks.Main(m)
}

// parent is a parent cluster with its API server.
type parent struct {
	testing.TB
	*localcluster.Cluster
	client dynamic.Interface
}

func newParent(tb testing.TB, opts localcluster.Options, crd *apiextensionsv1.CustomResourceDefinition) *parent {
	tb.Helper()
	p := &parent{TB: tb}
	p.start(opts)
	p.apply(crd)
	return p
}

func (p *parent) start(opts localcluster.Options) {
	p.Helper()
	cluster, err := localcluster.Start(context.Background(), opts)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			p.Error(err)
		}
	})
	p.Cluster = cluster
	p.client, err = dynamic.NewForConfig(cluster.Config())
	if err != nil {
		p.Fatal(err)
	}
}

func (p *parent) apply(crd *apiextensionsv1.CustomResourceDefinition) {
	p.Helper()
	if err := p.Apply(context.Background(), crd); err != nil {
		p.Fatal(err)
	}
}

func (p *parent) register(name, clusterID string) {
	p.Helper()
	_, err := p.client.Resource(informer.Resource).Namespace(namespace).Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clusters.clusternet.io/v1beta1",
		"kind":       "ManagedCluster",
		"metadata":   map[string]any{"name": name, "labels": map[string]any{"clusters.clusternet.io/cluster-id": clusterID}},
		"spec":       map[string]any{"clusterId": clusterID, "syncMode": "Dual"},
	}}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
}

func (p *parent) patch(name, patch string, subresources ...string) {
	p.Helper()
	_, err := p.client.Resource(informer.Resource).Namespace(namespace).
		Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		p.Fatal(err)
	}
}

const (
	pause  = `{"spec":{"syncPaused":true}}`
	resume = `{"spec":{"syncPaused":null}}`
)

func (p *parent) heartbeat(name string, n int) {
	p.patch(name, fmt.Sprintf(`{"status":{"appPusher":true,"conditions":[{"type":"Ready","status":"True","reason":"R","message":"%d","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, n), "status")
}

// run runs a gate or a hub until the test ends, and waits for its sync.
func run(tb testing.TB, it interface {
	Run(context.Context) error
	WaitForSync(context.Context) error
}) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := it.Run(ctx); err != nil {
			tb.Errorf("Run = %v", err)
		}
	})
	tb.Cleanup(func() { cancel(); ended.Wait() })
	waiting, done := context.WithTimeout(ctx, soon)
	defer done()
	if err := it.WaitForSync(waiting); err != nil {
		tb.Fatal(err)
	}
}

func (p *parent) agent(clusterID types.UID) *syncgate.Gate {
	p.Helper()
	gate, err := syncgate.New(p.client, namespace, clusterID, syncgate.Options{})
	if err != nil {
		p.Fatal(err)
	}
	run(p, gate)
	return gate
}

func (p *parent) hub() *syncgate.Hub {
	p.Helper()
	inf, err := informer.ForHub(p.client, informer.Options{})
	if err != nil {
		p.Fatal(err)
	}
	hub, err := syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		p.Fatal(err)
	}
	run(p, hub)
	return hub
}

// eventually waits until a gate is as wanted.
func eventually(tb testing.TB, gate *syncgate.Gate, what string, is func(syncgate.State) bool) {
	tb.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		return is(gate.State()), nil
	})
	if err != nil {
		tb.Errorf("after %v State() = %+v; want %s", soon, gate.State(), what)
	}
}

func reason(want string) (string, func(syncgate.State) bool) {
	return want, func(s syncgate.State) bool { return s.Reason == want }
}

// eachWay runs a test with WatchList and without: both must work against a real
// server.
func eachWay(t *testing.T, test func(t *testing.T)) {
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", on), func(t *testing.T) {
			before := clientfeatures.FeatureGates()
			clientfeatures.ReplaceFeatureGates(gates{before, on})
			t.Cleanup(func() { clientfeatures.ReplaceFeatureGates(before) })
			test(t)
		})
	}
}

type gates struct {
	clientfeatures.Gates
	watchList bool
}

func (g gates) Enabled(f clientfeatures.Feature) bool {
	if f == clientfeatures.WatchListClient {
		return g.watchList
	}
	return g.Gates.Enabled(f)
}

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
		running, finish := make(chan struct{}), make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() {
			if err := gate.Do(t.Context(), func(context.Context) error { close(running); <-finish; return nil }); err != nil {
				t.Errorf("the admitted Do = %v", err)
			}
		})
		<-running
		p.patch("child", pause)
		for _, g := range gates {
			what, is := reason(syncgate.ReasonSyncPaused)
			eventually(t, g, what, is)
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
		close(finish)
		if err := gate.WaitDrained(t.Context()); err != nil {
			t.Error(err)
		}
		work.Wait()
		for i := range 3 {
			p.heartbeat("child", i)
		}
		p.patch("child", resume)
		for _, g := range gates {
			what, is := reason(syncgate.ReasonSyncAllowed)
			eventually(t, g, what, is)
		}
		if s := gate.State(); s.AppPusher == nil || !*s.AppPusher {
			t.Errorf("State() = %+v; want appPusher of the heartbeat", s)
		}
		p.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
		what, is := reason(syncgate.ReasonHeld)
		eventually(t, gate, what, is)
		if err := p.client.Resource(informer.Resource).Namespace(namespace).Delete(t.Context(), "child", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		what, is = reason(syncgate.ReasonDeleted)
		eventually(t, gate, what, is)
		if !gate.Paused() {
			t.Error("the deletion opened the gate")
		}
	})
}

// An agent of one cluster is sent no event of another in the same namespace.
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
		err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return events["child"] == 2, nil
		})
		mu.Lock()
		defer mu.Unlock()
		if err != nil || len(events) != 1 {
			t.Errorf("events = %v; want 2 of child and none of the neighbour", events)
		}
		if got := inf.Selection(); got != informer.ByField {
			t.Errorf("Selection() = %v; want ByField", got)
		}
	})
}

func TestStockCRD(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.StockManagedClusterCRD())
		p.register("child", own)
		gate := p.agent(own)
		if s := gate.State(); s.Selection != informer.ByLabel || s.Phase != syncgate.Open {
			t.Errorf("State() = %+v; want Open, by label", s)
		}
		p.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
		what, is := reason(syncgate.ReasonHeld)
		eventually(t, gate, what, is)

		byField, err := informer.ForCluster(p.client, namespace, own, informer.Options{Selection: informer.ByField})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { byField.RunWithContext(ctx) })
		if err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
			err := byField.Err()
			return err != nil && strings.Contains(err.Error(), "selectableFields"), nil
		}); err != nil {
			t.Errorf("Err() = %v; want what to do about the CRD", byField.Err())
		}
		cancel()
		ended.Wait()
	})
}

// The field comes into the CRD while gates run. In the second after, the server
// still sends objects under the old schema, and nothing repeats them.
func TestUpgradedCRD(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.StockManagedClusterCRD())
		p.register("child", own)
		p.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
		p.register("neighbour", other)
		held, open, hub := p.agent(own), p.agent(other), p.hub()
		var opened atomic.Bool
		defer held.OnChange(func(c syncgate.Change) {
			if !c.New.Paused {
				opened.Store(true)
			}
		})()
		p.apply(localcluster.ManagedClusterCRD())
		p.patch("neighbour", pause)
		what, is := reason(syncgate.ReasonSyncPaused)
		eventually(t, open, what, is)
		eventually(t, hub.Gate(other), what, is)
		for _, g := range []*syncgate.Gate{held, open} {
			eventually(t, g, "ByField", func(s syncgate.State) bool { return s.Selection == informer.ByField })
		}
		if opened.Load() || held.State().Reason != syncgate.ReasonHeld {
			t.Errorf("State() = %+v; want Held all the time", held.State())
		}

		p.apply(localcluster.StockManagedClusterCRD())
		p.heartbeat("child", 1)
		eventually(t, held, "ByLabel", func(s syncgate.State) bool { return s.Selection == informer.ByLabel })
		if opened.Load() {
			t.Errorf("State() = %+v; want Held all the time", held.State())
		}
	})
}

// The server goes away and comes back with what happened in between.
func TestServerRestart(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		opts := localcluster.Options{DataDir: t.TempDir()}
		p := newParent(t, opts, localcluster.ManagedClusterCRD())
		opts.Port = p.Port()
		p.register("child", own)
		p.register("neighbour", other)
		p.patch("neighbour", pause)
		gate, paused, hub := p.agent(own), p.agent(other), p.hub()
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
			return gate.Check(nil) != nil && paused.Check(nil) != nil && hub.Check(nil) != nil, nil
		})
		if err != nil {
			t.Errorf("Check() = %v, %v, %v with the server down; want errors", gate.Check(nil), paused.Check(nil), hub.Check(nil))
		}
		if gate.Paused() || !paused.Paused() || hub.Gate(own).Paused() || !hub.Gate(other).Paused() {
			t.Error("the outage changed a decision")
		}
		p.start(opts)
		if err := p.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.patch("child", pause)
		p.patch("neighbour", resume)
		for _, g := range []*syncgate.Gate{gate, hub.Gate(own)} {
			what, is := reason(syncgate.ReasonSyncPaused)
			eventually(t, g, what, is)
		}
		for _, g := range []*syncgate.Gate{paused, hub.Gate(other)} {
			what, is := reason(syncgate.ReasonSyncAllowed)
			eventually(t, g, what, is)
		}
		if err := errors.Join(gate.Check(nil), hub.Check(nil)); err != nil {
			t.Errorf("Check() = %v after the recovery", err)
		}
	})
}

// A gate that lost its rights keeps its state, and finds back by itself.
func TestForbiddenThenAllowed(t *testing.T) {
	var forbidden atomic.Bool
	cut := make(chan struct{})
	p := newParent(t, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if forbidden.Load() && r.Method == http.MethodGet {
				http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, http.StatusForbidden)
				return
			}
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			if r.URL.Query().Has("watch") {
				go func() {
					select {
					case <-cut:
						cancel()
					case <-ctx.Done():
					}
				}()
			}
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	gate := p.agent(own)
	forbidden.Store(true)
	close(cut)
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		err := gate.Check(nil)
		return err != nil && strings.Contains(err.Error(), "allow this client to list and watch"), nil
	})
	if err != nil {
		t.Errorf("Check() = %v; want what to allow", gate.Check(nil))
	}
	p.patch("child", pause)
	if gate.Paused() {
		t.Error("the refusal changed the decision")
	}
	forbidden.Store(false)
	what, is := reason(syncgate.ReasonSyncPaused)
	eventually(t, gate, what, is)
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
		what, is := reason(step.reason)
		eventually(t, gate, what, is)
	}
}
