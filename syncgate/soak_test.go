package syncgate_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// The memory that a hub uses for a cluster does not grow with its heartbeats. make soak
// sends a million, with SYNCGATE_SOAK=25.
func TestSoakHeartbeats(t *testing.T) {
	const clusters, rounds = 1000, 40
	objects := make([]*unstructured.Unstructured, clusters)
	hub, source := running(t)
	for i := range objects {
		objects[i] = tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster-", i))
		source.Add(objects[i])
	}
	hub.OnChange(func(syncgate.Change) {})
	now := time.Now()
	var all []tu.Usage
	for range rounds {
		for range tu.SoakFactor(t) {
			now = now.Add(time.Minute)
			for i, old := range objects {
				objects[i] = tu.With(old, tu.Heartbeat(now))
				source.Update(old, objects[i])
			}
		}
		all = append(all, tu.Measure(0))
	}
	tu.CheckFlat(t, all, 64*clusters)
	t.Logf("%d heartbeats of %d clusters, %d bytes on the heap for each cluster", rounds*tu.SoakFactor(t)*clusters, clusters, all[rounds-1].Heap/clusters)
}
