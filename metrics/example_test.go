package metrics_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/syncgate"
)

// Register one collector for all gates of a program.
func ExampleNewCollector() {
	hub, stop := runningHub()
	defer stop()

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(hub))
	printGauges(registry, "syncgate_cluster_paused", "syncgate_clusters_paused")
	// Output:
	// syncgate_cluster_paused cluster_id=id-of-child cluster_name=child cluster_namespace=clusternet-abcde 0
	// syncgate_cluster_paused cluster_id=id-of-other cluster_name=other cluster_namespace=clusternet-fghij 1
	// syncgate_clusters_paused 1
}

// For large fleets: the number of series does not grow with the clusters.
func ExampleNewTotalsCollector() {
	hub, stop := runningHub()
	defer stop()

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewTotalsCollector(hub))
	printGauges(registry, "syncgate_cluster_paused", "syncgate_clusters")
	// Output:
	// syncgate_clusters phase=Gone 0
	// syncgate_clusters phase=Open 1
	// syncgate_clusters phase=Paused 1
	// syncgate_clusters phase=Unknown 0
}

// printGauges prints what a scrape of these metrics shows.
func printGauges(registry *prometheus.Registry, names ...string) {
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, name := range names {
			if family.GetName() != name {
				continue
			}
			for _, metric := range family.GetMetric() {
				var labels strings.Builder
				for _, label := range metric.GetLabel() {
					labels.WriteString(label.GetName() + "=" + label.GetValue() + " ")
				}
				fmt.Printf("%s %s%v\n", name, labels.String(), metric.GetGauge().GetValue())
			}
		}
	}
}

// runningHub returns a hub of two clusters, one of them paused. Its client is
// client-go's fake, which ignores field selectors; a program makes its client by
// dynamic.NewForConfig.
func runningHub() (hub *syncgate.Hub, stop func()) {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(),
		managedCluster("clusternet-abcde", "child", "id-of-child", false),
		managedCluster("clusternet-fghij", "other", "id-of-other", true))
	inf, err := informer.ForHub(client, informer.Options{})
	if err != nil {
		panic(err)
	}
	hub, err = syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	if err := hub.WaitForSync(ctx); err != nil {
		panic(err)
	}
	return hub, func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}

func managedCluster(namespace, name, clusterID string, paused bool) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": informer.Resource.GroupVersion().String(),
		"kind":       "ManagedCluster",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       map[string]any{"clusterId": clusterID, "syncPaused": paused},
	}}
}
