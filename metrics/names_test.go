//go:build go1.25

package metrics_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/metrics"
)

func TestLint(t *testing.T) {
	hub, source, _ := newHub(t, object("open"), object("paused", tu.Paused(true)))
	source.SetContact(time.Now())
	for name, c := range map[string]prometheus.Collector{"all": metrics.NewCollector(hub), "totals": metrics.NewTotalsCollector(hub)} {
		problems, err := testutil.CollectAndLint(c)
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: CollectAndLint = %v, %v; want nothing", name, problems, err)
		}
		registry := prometheus.NewPedanticRegistry()
		if err := registry.Register(c); err != nil {
			t.Errorf("%s: Register = %v", name, err)
		}
		if _, err := registry.Gather(); err != nil {
			t.Errorf("%s: Gather = %v", name, err)
		}
	}
}

// The tables in the documentation have all metrics, and no others.
func TestDocumentation(t *testing.T) {
	source, err := os.ReadFile("collector.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ := strings.Cut(string(source), "\npackage ")
	documented := map[string]bool{}
	for line := range strings.Lines(doc) {
		if row, ok := strings.CutPrefix(line, "//\tsyncgate_"); ok {
			documented["syncgate_"+row[:strings.IndexAny(row, "{ ")]] = true
		}
	}
	hub, informer, _ := newHub(t, object("open"))
	informer.SetContact(time.Now())
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(hub))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !documented[f.GetName()] {
			t.Errorf("%s is not in the documentation", f.GetName())
		}
		delete(documented, f.GetName())
	}
	if len(documented) > 0 {
		t.Errorf("the documentation has %v, which do not exist", documented)
	}
}
