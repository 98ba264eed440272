package api_test

import (
	"testing"

	"github.com/clusternet/syncgate/internal/api"
)

func TestNearMisses(t *testing.T) {
	for _, name := range []string{
		"hold.clusters.clusternet.io",
		"Hold.Clusters.Clusternet.io/team-a",
		"HOLD.CLUSTERS.CLUSTERNET.IO/",
		"holds.clusters.clusternet.io/team-a",
		"hold.cluster.clusternet.io/team-a",
		"holds.cluster.clusternet.io",
		"hold.managedclusters.clusternet.io/team-a",
		"hold-clusters.clusternet.io/team-a",
		"hold.clusternet.io/team-a",
		"clusters.clusternet.io/hold",
		"clusters.clusternet.io/hold.team-a",
	} {
		if !api.IsNearMiss(name) {
			t.Errorf("IsNearMiss(%q) = false; want true", name)
		}
	}
	for _, name := range []string{
		"hold.clusters.clusternet.io/team-a", // a hold
		"hold-until.clusters.clusternet.io/team-a",
		"clusters.clusternet.io/holder-name-of-something",
		"clusters.clusternet.io/cluster-id",
		"threshold.clusters.clusternet.io/x",
		"hold.clusters.example.com/team-a",
		"hold", "",
	} {
		if api.IsNearMiss(name) {
			t.Errorf("IsNearMiss(%q) = true; want false", name)
		}
	}
}
