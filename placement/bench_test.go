package placement_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/clusternet/syncgate/placement"
)

// large returns a current and a target binding of n clusters each and three feeds.
// Two of the feeds are divided. A tenth of the clusters is paused. Target has dropped
// half of the paused ones and has as many new ones; every other new one is paused.
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

// BenchmarkKeep has 10,000 clusters. "paused alone" is the part of the time that the
// function paused takes.
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

// BenchmarkFeasible searches 10,000 bound clusters for the last one, and for one that
// is not among them.
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

// Keep takes linear time: a second or so for this many clusters. A Keep that searched
// a list for each cluster would need an hour, and does not end within the minute.
func TestKeepIsLinear(t *testing.T) {
	const n = 400_000
	current, target, paused := large(n)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	results := make(chan int, 1)
	go func() {
		got, err := placement.Keep(current, target, paused, always)
		if err != nil {
			t.Error(err)
		}
		results <- len(got.Clusters)
	}()
	select {
	case got := <-results:
		// A twentieth is new, and half of it is left out. Another twentieth is kept.
		if want := n - n/40 + n/20; got != want {
			t.Errorf("Keep has %d clusters; want %d", got, want)
		}
	case <-ctx.Done():
		t.Fatal("Keep has not returned within a minute")
	}
}
