package placement_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clusternet/syncgate/placement"
)

// large returns a current and a target binding of n clusters each and three feeds,
// of which two are divided. A tenth of the clusters is paused; target has dropped
// half of these, and has as many new ones, of which every other is paused.
func large(n int) (current, target placement.Binding, paused func(string) bool) {
	flags := map[string]bool{}
	add := func(b *placement.Binding, cluster string, isPaused bool) {
		flags[cluster] = isPaused
		b.Clusters = append(b.Clusters, cluster)
		for _, feed := range []string{"apps/v1, kind=Deployment, shop/web", "apps/v1, kind=StatefulSet, shop/db"} {
			b.Replicas[feed] = append(b.Replicas[feed], int32(len(b.Clusters)))
		}
	}
	for _, b := range []*placement.Binding{&current, &target} {
		b.Replicas = map[string][]int32{"v1, kind=ConfigMap, shop/settings": {}}
	}
	for i := range n {
		cluster := fmt.Sprintf("clusternet-%05d/child-%05d", i, i)
		add(&current, cluster, i%10 == 0)
		if i%20 == 0 {
			cluster = "new-" + cluster
			add(&target, cluster, i%40 == 0)
		} else {
			add(&target, cluster, flags[cluster])
		}
	}
	return current, target, func(cluster string) bool { return flags[cluster] }
}

func always(string) bool { return true }

// BenchmarkKeep has 10,000 clusters. A part of the time is that of paused, which is
// shown beside.
func BenchmarkKeep(b *testing.B) {
	current, target, paused := large(10_000)
	b.Run("paused alone", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for _, cluster := range current.Clusters {
				paused(cluster)
			}
		}
	})
	b.Run("keep", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := placement.Keep(current, target, paused, always); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFeasible asks for one of 10,000 bound clusters: for the last, and for
// one that is not among them.
func BenchmarkFeasible(b *testing.B) {
	current, _, _ := large(10_000)
	for _, bm := range []struct {
		name, cluster  string
		paused, passes bool
	}{
		{"open", "clusternet-90000/child-90000", false, true},
		{"paused, bound", current.Clusters[len(current.Clusters)-1], true, true},
		{"paused, not bound", "clusternet-90000/child-90000", true, false},
	} {
		b.Run(bm.name, func(b *testing.B) {
			paused := func(string) bool { return bm.paused }
			b.ReportAllocs()
			for range b.N {
				if placement.Feasible(bm.cluster, current.Clusters, paused) != bm.passes {
					b.Fatalf("Feasible = %v", !bm.passes)
				}
			}
		})
	}
}

// So many clusters take tens of milliseconds. Were each looked for in a list, it
// would be far more than the bound, on any machine.
func TestKeepIsLinear(t *testing.T) {
	current, target, paused := large(200_000)
	start := time.Now()
	got, err := placement.Keep(current, target, paused, always)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Keep of 200,000 clusters took %v; want less than 10 s", took)
	}
	// Half of the new ones are left out, and as many as there were new are put back.
	if n := len(got.Clusters); n != 200_000-5_000+10_000 {
		t.Errorf("Keep has %d clusters; want 205000", n)
	}
}
