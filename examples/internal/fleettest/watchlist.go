package fleettest

import (
	"testing"

	clientfeatures "k8s.io/client-go/features"
)

// SetWatchList sets whether clients stream their first list, until the test ends.
func SetWatchList(tb testing.TB, on bool) {
	before := clientfeatures.FeatureGates()
	clientfeatures.ReplaceFeatureGates(gates{before, on})
	tb.Cleanup(func() { clientfeatures.ReplaceFeatureGates(before) })
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
