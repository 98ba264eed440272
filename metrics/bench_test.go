//go:build go1.25

package metrics_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/metrics"
)

// BenchmarkScrape measures a scrape of 10,000 clusters, without the
// encoding.
func BenchmarkScrape(b *testing.B) {
	objs := make([]any, 10_000)
	for i := range objs {
		objs[i] = object(fmt.Sprintf("cluster-%05d", i), tu.Paused(i%10 == 0))
	}
	hub, _, stop := newHub(b, objs...)
	defer stop()
	for name, c := range map[string]prometheus.Collector{"all": metrics.NewCollector(hub), "totals": metrics.NewTotalsCollector(hub)} {
		b.Run(name, func(b *testing.B) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(c)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/collect", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ch := make(chan prometheus.Metric, 1000)
				go func() { c.Collect(ch); close(ch) }()
				for range ch {
				}
			}
		})
	}
}
