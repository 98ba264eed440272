package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	namespace = "clusternet-abcde"
	own       = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
	other     = "0b0d9a3c-74d4-4f3b-8d8e-2f1a9c0b6d22"

	soon = fleettest.Soon
)

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
	_, err := p.managedClusters().Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clusters.clusternet.io/v1beta1",
		"kind":       "ManagedCluster",
		"metadata":   map[string]any{"name": name, "labels": map[string]any{"clusters.clusternet.io/cluster-id": clusterID}},
		"spec":       map[string]any{"clusterId": clusterID, "syncMode": "Dual"},
	}}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
}

// patch returns the generation that it makes.
func (p *parent) patch(name, patch string, subresources ...string) (generation int64) {
	p.Helper()
	obj, err := p.managedClusters().Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		p.Fatal(err)
	}
	return obj.GetGeneration()
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

// eventually waits until the State of a gate is as wanted.
func eventually(tb testing.TB, gate *syncgate.Gate, want string, is func(syncgate.State) bool) {
	tb.Helper()
	fleettest.Eventually(tb, soon, func() bool { return is(gate.State()) }, func() string {
		return fmt.Sprintf("State() = %+v; want %s", gate.State(), want)
	})
}

// awaitReason waits until the State of these gates has a reason.
func awaitReason(tb testing.TB, want string, gates ...*syncgate.Gate) {
	tb.Helper()
	for _, gate := range gates {
		eventually(tb, gate, want, func(s syncgate.State) bool { return s.Reason == want })
	}
}

// managedClusters is a client of the namespace of all ManagedClusters here.
func (p *parent) managedClusters() dynamic.ResourceInterface {
	return p.client.Resource(informer.Resource).Namespace(namespace)
}

// eachWay runs a test with WatchList and without: both must work against a real
// server.
func eachWay(t *testing.T, test func(t *testing.T)) {
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", on), func(t *testing.T) {
			fleettest.SetWatchList(t, on)
			test(t)
		})
	}
}

func (p *parent) get(name string) *unstructured.Unstructured {
	p.Helper()
	obj, err := p.managedClusters().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return obj
}
