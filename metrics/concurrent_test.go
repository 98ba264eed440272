//go:build go1.25

package metrics_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/syncgate"
)

// Scrapes while gates come, flip and operate: each is whole, and the last agrees
// with the gates.
func TestScrapesDuringFlips(t *testing.T) {
	const clusters, flipsEach = 8, 60
	hub, source, _ := newHub(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCollector(hub))
	backlog := syncgate.NewBacklog(func(int) {})
	ctx, cancel := context.WithCancel(t.Context())
	var flips, rest sync.WaitGroup
	for i := range clusters {
		flips.Go(func() {
			name := fmt.Sprint("c", i)
			was := tu.ManagedCluster(ns, name, "id-"+name)
			source.Add(was)
			for n := range flipsEach {
				is := tu.With(was, tu.Paused(n%2 == 0))
				source.Update(was, is)
				was = is
			}
		})
		rest.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = backlog.Do(ctx, hub.Gate(types.UID(fmt.Sprint("id-c", i))), n%10, func(context.Context) error { return nil })
			}
		})
	}
	for range 2 {
		rest.Go(func() {
			for ctx.Err() == nil {
				if _, err := registry.Gather(); err != nil {
					t.Errorf("Gather = %v", err)
				}
			}
		})
	}
	flips.Wait()
	cancel()
	rest.Wait()

	var admitted uint64
	for g := range hub.Gates() {
		admitted += g.Stats().Admitted
	}
	compare(t, metrics.NewTotalsCollector(hub),
		help("syncgate_clusters", "gauge", "Clusters by the phase that their gates are in.",
			`syncgate_clusters{phase="Gone"} 0`, fmt.Sprintf(`syncgate_clusters{phase="Open"} %d`, clusters),
			`syncgate_clusters{phase="Paused"} 0`, `syncgate_clusters{phase="Unknown"} 0`)+
			help("syncgate_operations_admitted_total", "counter", "Operations that all gates have admitted.",
				fmt.Sprintf("syncgate_operations_admitted_total %d", admitted))+
			help("syncgate_transitions_total", "counter", "How often gates have closed (pause) and opened (resume).",
				fmt.Sprintf(`syncgate_transitions_total{kind="pause"} %d`, flipsEach/2*clusters),
				fmt.Sprintf(`syncgate_transitions_total{kind="resume"} %d`, flipsEach/2*clusters)),
		"syncgate_clusters", "syncgate_operations_admitted_total", "syncgate_transitions_total")
}
