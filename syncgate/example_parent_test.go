package syncgate_test

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// What the examples share: a parent cluster, and programs that run.

// parentCluster stands for a parent cluster. Its client is client-go's fake, which
// ignores field selectors: it shows each ManagedCluster to everyone. A program
// makes its client by dynamic.NewForConfig.
type parentCluster struct {
	client   *fake.FakeDynamicClient
	watching chan struct{} // closed when the first watch runs
}

func newParent(objects ...runtime.Object) *parentCluster {
	p := &parentCluster{
		client:   fake.NewSimpleDynamicClient(runtime.NewScheme(), objects...),
		watching: make(chan struct{}),
	}
	var once sync.Once
	p.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := p.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		once.Do(func() { close(p.watching) })
		return true, w, err
	})
	return p
}

// patch does to clusternet-abcde/child what kubectl patch --type=merge does. The fake forgets what
// happens between a list and its watch, so it waits for the watch.
func (p *parentCluster) patch(patch string) {
	<-p.watching
	_, err := p.client.Resource(informer.Resource).Namespace("clusternet-abcde").
		Patch(context.Background(), "child", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		panic(err)
	}
}

func managedCluster(namespace, name, clusterID string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": informer.Resource.GroupVersion().String(),
		"kind":       "ManagedCluster",
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "labels": map[string]any{"clusters.clusternet.io/cluster-id": clusterID},
		},
		"spec": map[string]any{"clusterId": clusterID, "syncMode": "Dual"},
	}}
}

func paused(managedCluster *unstructured.Unstructured) *unstructured.Unstructured {
	managedCluster.Object["spec"].(map[string]any)["syncPaused"] = true
	return managedCluster
}

// run runs a gate or a hub, and returns when it has synced. stop returns when Run
// has.
func run(runner interface {
	Run(ctx context.Context) error
	WaitForSync(ctx context.Context) error
}) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()
	if err := runner.WaitForSync(ctx); err != nil {
		panic(err)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}

// runningGate returns the running gate of an agent whose cluster is not paused.
func runningGate() (*parentCluster, *syncgate.Gate, func()) {
	parent := newParent(managedCluster("clusternet-abcde", "child", "id-of-child"))
	gate, err := syncgate.New(parent.client, "clusternet-abcde", "id-of-child", syncgate.Options{})
	if err != nil {
		panic(err)
	}
	return parent, gate, run(gate)
}

// waitPaused returns when the gate has seen the pause, whatever is in flight.
func waitPaused(gate *syncgate.Gate) {
	closed := make(chan struct{})
	var once sync.Once
	stop := gate.OnChange(func(c syncgate.Change) {
		if c.New.Paused {
			once.Do(func() { close(closed) })
		}
	})
	defer stop()
	<-closed
}
