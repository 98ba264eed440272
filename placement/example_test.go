package placement_test

import (
	"fmt"

	"github.com/clusternet/syncgate/placement"
)

// A filter lets a paused cluster pass where the application runs already.
func ExampleFeasible() {
	bound := []string{"clusternet-bbbbb/paris"} // status.bindingClusters of the Subscription
	paused := func(cluster string) bool { return cluster != "clusternet-aaaaa/berlin" }

	fmt.Println("not paused:", placement.Feasible("clusternet-aaaaa/berlin", bound, paused))
	fmt.Println("paused, and bound:", placement.Feasible("clusternet-bbbbb/paris", bound, paused))
	fmt.Println("paused, not bound:", placement.Feasible("clusternet-ccccc/madrid", bound, paused))
	// Output:
	// not paused: true
	// paused, and bound: true
	// paused, not bound: false
}

// An application has six replicas in two clusters. One of the clusters is paused when
// the scheduler divides the replicas again, together with a third cluster.
func ExampleKeep() {
	current := placement.Binding{
		Clusters: []string{"clusternet-aaaaa/berlin", "clusternet-bbbbb/paris"},
		Replicas: map[string][]int32{"apps/v1, kind=Deployment, shop/web": {4, 2}},
	}
	candidates := []string{"clusternet-aaaaa/berlin", "clusternet-bbbbb/paris", "clusternet-ccccc/madrid"}
	paused := func(cluster string) bool { return cluster == "clusternet-bbbbb/paris" }
	exists := func(string) bool { return true } // see the package documentation

	// A filter that rejects paused clusters evicts the application from them.
	var passed []string
	for _, cluster := range candidates {
		if !paused(cluster) {
			passed = append(passed, cluster)
		}
	}
	fmt.Println("evicts:", passed)

	// Feasible does not. The scheduler then divides as if no cluster were paused.
	passed = nil
	for _, cluster := range candidates {
		if placement.Feasible(cluster, current.Clusters, paused) {
			passed = append(passed, cluster)
		}
	}
	target := placement.Binding{
		Clusters: passed,
		Replicas: map[string][]int32{"apps/v1, kind=Deployment, shop/web": {2, 1, 3}},
	}
	fmt.Println("wanted:", target.Clusters, target.Replicas)

	// Keep leaves the paused cluster as it is.
	binding, err := placement.Keep(current, target, paused, exists)
	if err != nil {
		panic(err)
	}
	fmt.Println("bound: ", binding.Clusters, binding.Replicas)

	// It is not evicted either when the scheduler finds no cluster at all.
	binding, err = placement.Keep(current, placement.Binding{}, paused, exists)
	if err != nil {
		panic(err)
	}
	fmt.Println("bound: ", binding.Clusters, binding.Replicas)
	// Output:
	// evicts: [clusternet-aaaaa/berlin clusternet-ccccc/madrid]
	// wanted: [clusternet-aaaaa/berlin clusternet-bbbbb/paris clusternet-ccccc/madrid] map[apps/v1, kind=Deployment, shop/web:[2 1 3]]
	// bound:  [clusternet-aaaaa/berlin clusternet-bbbbb/paris clusternet-ccccc/madrid] map[apps/v1, kind=Deployment, shop/web:[2 2 3]]
	// bound:  [clusternet-bbbbb/paris] map[apps/v1, kind=Deployment, shop/web:[2]]
}
