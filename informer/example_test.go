package informer_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// An agent's informer asks the server for the ManagedCluster of one cluster.
// syncgate.New makes it by itself; make one to set options or to share it.
func ExampleForCluster() {
	// client-go's fake ignores field selectors: do not test a selection with it.
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(),
		managedCluster("clusternet-abcde", "child", "id-of-child"))
	ctx, stop := context.WithCancel(context.Background())

	inf, err := informer.ForCluster(client, "clusternet-abcde", "id-of-child", informer.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println("before Run:", inf.Selection(), inf.Err() != nil, inf.LastContact().IsZero())

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		inf.RunWithContext(ctx)
	}()
	cache.WaitForCacheSync(ctx.Done(), inf.HasSynced)
	fmt.Println("synced:", inf.Selection(), inf.LastContact().IsZero(), inf.GetStore().ListKeys())

	stop()
	<-ended
	// Output:
	// before Run: Auto true true
	// synced: ByField false [clusternet-abcde/child]
}

// A hub's informer has the ManagedClusters of all namespaces. Hub.Run runs it.
func ExampleForHub() {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(),
		managedCluster("clusternet-abcde", "child", "id-of-child"),
		managedCluster("clusternet-fghij", "other", "id-of-other"))
	ctx, stop := context.WithCancel(context.Background())

	inf, err := informer.ForHub(client, informer.Options{})
	if err != nil {
		panic(err)
	}
	hub, err := syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	if err := hub.WaitForSync(ctx); err != nil {
		panic(err)
	}
	fmt.Println(len(inf.GetStore().ListKeys()), "ManagedClusters")
	fmt.Println("paused:", hub.Gate("id-of-child").Paused(), hub.Gate("id-of-other").Paused())

	stop()
	fmt.Println("Run returned:", <-ended)
	// Output:
	// 2 ManagedClusters
	// paused: false false
	// Run returned: <nil>
}

func managedCluster(namespace, name, clusterID string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": informer.Resource.GroupVersion().String(),
		"kind":       "ManagedCluster",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       map[string]any{"clusterId": clusterID},
	}}
}
