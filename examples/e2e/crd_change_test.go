package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

func TestStockCRD(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.StockManagedClusterCRD())
		p.register("child", own)
		gate := p.agent(own)
		if s := gate.State(); s.Selection != informer.ByLabel || s.Phase != syncgate.Open {
			t.Errorf("State() = %+v; want Open, by label", s)
		}
		p.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
		awaitReason(t, syncgate.ReasonHeld, gate)

		byField, err := informer.ForCluster(p.client, namespace, own, informer.Options{Selection: informer.ByField})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { byField.RunWithContext(ctx) })
		fleettest.Eventually(t, soon, func() bool {
			err := byField.Err()
			return err != nil && strings.Contains(err.Error(), "selectableFields")
		}, func() string { return fmt.Sprintf("Err() = %v; want what to do about the CRD", byField.Err()) })
		cancel()
		ended.Wait()
	})
}

// The field is added to the CRD while gates run. For a second the server still sends
// objects under the old schema, and does not send them again.
func TestUpgradedCRD(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.StockManagedClusterCRD())
		p.register("child", own)
		p.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
		p.register("neighbour", other)
		held, open, hub := p.agent(own), p.agent(other), p.hub()
		var opened atomic.Bool
		defer held.OnChange(func(c syncgate.Change) {
			if !c.New.Paused {
				opened.Store(true)
			}
		})()
		p.apply(localcluster.ManagedClusterCRD())
		p.patch("neighbour", pause)
		awaitReason(t, syncgate.ReasonSyncPaused, open, hub.Gate(other))
		for _, g := range []*syncgate.Gate{held, open} {
			eventually(t, g, "ByField", func(s syncgate.State) bool { return s.Selection == informer.ByField })
		}
		if opened.Load() || held.State().Reason != syncgate.ReasonHeld {
			t.Errorf("State() = %+v; want Held all the time", held.State())
		}

		p.apply(localcluster.StockManagedClusterCRD())
		p.heartbeat("child", 1)
		eventually(t, held, "ByLabel", func(s syncgate.State) bool { return s.Selection == informer.ByLabel })
		if opened.Load() {
			t.Errorf("State() = %+v; want Held all the time", held.State())
		}
	})
}
