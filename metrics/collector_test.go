//go:build go1.25

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/syncgate"
)

const ns = "clusternet-abcde"

// newHub returns a hub that runs over a source. It has synced with objs.
func newHub(t testing.TB, objs ...any) (*syncgate.Hub, *tu.Source, func()) {
	t.Helper()
	source := tu.NewSource()
	hub, err := syncgate.NewHub(source, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	for source.Handlers() == 0 {
		time.Sleep(time.Millisecond)
	}
	source.Add(objs...)
	source.Sync()
	if err := hub.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(stop)
	return hub, source, stop
}

func object(name string, opts ...tu.Option) any {
	return tu.ManagedCluster(ns, name, "id-"+name, opts...)
}

// compare tells whether what a collector shows is want, for all metrics or for
// those named.
func compare(t *testing.T, c prometheus.Collector, want string, names ...string) {
	t.Helper()
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// help adds the lines that every metric has.
func help(name, kind, text string, series ...string) string {
	return fmt.Sprintf("# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, text, kind) + strings.Join(series, "\n") + "\n"
}

const totalsText = `
# HELP syncgate_clusters Clusters by the phase that their gates are in.
# TYPE syncgate_clusters gauge
syncgate_clusters{phase="Gone"} 1
syncgate_clusters{phase="Open"} 1
syncgate_clusters{phase="Paused"} 2
syncgate_clusters{phase="Unknown"} 1
# HELP syncgate_clusters_draining Clusters whose gate is closed while admitted operations have not ended.
# TYPE syncgate_clusters_draining gauge
syncgate_clusters_draining 1
# HELP syncgate_clusters_paused Clusters whose gate is closed.
# TYPE syncgate_clusters_paused gauge
syncgate_clusters_paused 4
# HELP syncgate_last_contact_timestamp_seconds When the API server was last heard: the last list, event or bookmark.
# TYPE syncgate_last_contact_timestamp_seconds gauge
syncgate_last_contact_timestamp_seconds 1.0000000005e+09
# HELP syncgate_longest_pause_age_seconds The highest age of a pause, of the clusters in phase Paused; 0 while there are none.
# TYPE syncgate_longest_pause_age_seconds gauge
syncgate_longest_pause_age_seconds 7200
# HELP syncgate_operations_admitted_total Operations that all gates have admitted.
# TYPE syncgate_operations_admitted_total counter
syncgate_operations_admitted_total 4
# HELP syncgate_operations_in_flight Admitted operations of all clusters that have not ended.
# TYPE syncgate_operations_in_flight gauge
syncgate_operations_in_flight 2
# HELP syncgate_operations_refused_total Operations that closed gates have refused.
# TYPE syncgate_operations_refused_total counter
syncgate_operations_refused_total 5
# HELP syncgate_parked_keys Keys of all clusters that backlogs hold for when their gates open.
# TYPE syncgate_parked_keys gauge
syncgate_parked_keys 3
# HELP syncgate_transitions_total How often gates have closed (pause) and opened (resume).
# TYPE syncgate_transitions_total counter
syncgate_transitions_total{kind="pause"} 2
syncgate_transitions_total{kind="resume"} 1
`

const perClusterText = `
# HELP syncgate_cluster_operations_admitted_total Operations that the gate of the cluster has admitted.
# TYPE syncgate_cluster_operations_admitted_total counter
syncgate_cluster_operations_admitted_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 2
syncgate_cluster_operations_admitted_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_admitted_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_admitted_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 2
syncgate_cluster_operations_admitted_total{cluster_id="nobody",cluster_name="",cluster_namespace=""} 0
# HELP syncgate_cluster_operations_in_flight Admitted operations that have not ended.
# TYPE syncgate_cluster_operations_in_flight gauge
syncgate_cluster_operations_in_flight{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_operations_in_flight{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_in_flight{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_in_flight{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_operations_in_flight{cluster_id="nobody",cluster_name="",cluster_namespace=""} 0
# HELP syncgate_cluster_operations_refused_total Operations that the closed gate of the cluster has refused.
# TYPE syncgate_cluster_operations_refused_total counter
syncgate_cluster_operations_refused_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_refused_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_refused_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 4
syncgate_cluster_operations_refused_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_refused_total{cluster_id="nobody",cluster_name="",cluster_namespace=""} 1
# HELP syncgate_cluster_parked_keys Keys that backlogs hold for when the gate of the cluster opens.
# TYPE syncgate_cluster_parked_keys gauge
syncgate_cluster_parked_keys{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_parked_keys{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_parked_keys{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 2
syncgate_cluster_parked_keys{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_parked_keys{cluster_id="nobody",cluster_name="",cluster_namespace=""} 1
# HELP syncgate_cluster_pause_age_seconds How long the gate of the cluster has been closed for the same reason, as observed by this process; 0 while it is open.
# TYPE syncgate_cluster_pause_age_seconds gauge
syncgate_cluster_pause_age_seconds{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 3600
syncgate_cluster_pause_age_seconds{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 3600
syncgate_cluster_pause_age_seconds{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 7200
syncgate_cluster_pause_age_seconds{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_pause_age_seconds{cluster_id="nobody",cluster_name="",cluster_namespace=""} 10800
# HELP syncgate_cluster_paused Whether the gate of the cluster is closed: 1, or open: 0.
# TYPE syncgate_cluster_paused gauge
syncgate_cluster_paused{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_paused{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_paused{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_paused{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_paused{cluster_id="nobody",cluster_name="",cluster_namespace=""} 1
# HELP syncgate_cluster_phase 1 for the phase and the reason that the gate of the cluster is in.
# TYPE syncgate_cluster_phase gauge
syncgate_cluster_phase{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde",phase="Paused",reason="SyncPaused"} 1
syncgate_cluster_phase{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde",phase="Gone",reason="Deleted"} 1
syncgate_cluster_phase{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde",phase="Paused",reason="Held"} 1
syncgate_cluster_phase{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde",phase="Open",reason="SyncAllowed"} 1
syncgate_cluster_phase{cluster_id="nobody",cluster_name="",cluster_namespace="",phase="Unknown",reason="NotFound"} 1
# HELP syncgate_cluster_transitions_total How often the gate of the cluster has closed (pause) and opened (resume).
# TYPE syncgate_cluster_transitions_total counter
syncgate_cluster_transitions_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde",kind="pause"} 2
syncgate_cluster_transitions_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde",kind="resume"} 1
syncgate_cluster_transitions_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde",kind="resume"} 0
syncgate_cluster_transitions_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde",kind="resume"} 0
syncgate_cluster_transitions_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde",kind="resume"} 0
syncgate_cluster_transitions_total{cluster_id="nobody",cluster_name="",cluster_namespace="",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="nobody",cluster_name="",cluster_namespace="",kind="resume"} 0
`

// Every metric, of a cluster in every phase.
func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draining := tu.ManagedCluster(ns, "draining", "id-draining")
		gone := tu.ManagedCluster(ns, "gone", "id-gone", tu.Paused(true))
		hub, source, _ := newHub(t, object("open"), gone, draining)
		hub.Gate("nobody") // closed for longer than any pause
		time.Sleep(time.Hour)
		source.Add(object("held", tu.Held("backup", "nightly")))
		source.SetContact(time.Unix(1_000_000_000, 500_000_000))

		end := make(chan struct{})
		defer synctest.Wait()
		defer close(end)
		for _, id := range []types.UID{"id-open", "id-draining"} {
			if err := hub.Gate(id).Do(t.Context(), func(context.Context) error { return errors.New("its own") }); err == nil {
				t.Error("Do = nil; want the error of fn")
			}
			go func() {
				_ = hub.Gate(id).Do(context.Background(), func(ctx context.Context) error {
					_ = hub.Gate(id).Do(ctx, func(context.Context) error { return nil }) // nested: not counted
					<-end
					return nil
				})
			}()
		}
		synctest.Wait()
		backlog := syncgate.NewBacklog(func(string) {})
		for _, key := range []string{"a", "b", "a", "a"} {
			if parked, err := backlog.Do(t.Context(), hub.Gate("id-held"), key, nil); !parked {
				t.Errorf("Do = %v, %v; want parked", parked, err)
			}
		}
		time.Sleep(time.Hour)
		if parked, err := backlog.Do(t.Context(), hub.Gate("nobody"), "c", nil); !parked {
			t.Errorf("Do = %v, %v; want parked", parked, err)
		}
		paused := tu.With(draining, tu.Paused(true))
		source.Update(draining, paused)
		source.Update(paused, tu.With(draining, tu.Paused(false)))
		source.Update(draining, paused)
		source.Delete(gone)
		time.Sleep(time.Hour)

		compare(t, metrics.NewCollector(hub), perClusterText+totalsText)
		compare(t, metrics.NewTotalsCollector(hub), totalsText)
	})
}

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

// The table in the documentation names what there is, and nothing else.
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
		t.Errorf("the documentation has %v, which there are not", documented)
	}
}

// From before Run to after it: of an agent, over a real informer.
func TestAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := tu.NewAPIServer(tu.ManagedCluster(ns, "child", "an-id"))
		defer server.Close()
		gate, err := syncgate.New(server.Client(), ns, "an-id", syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c := metrics.NewCollector(gate)
		phase := func(namespace, name, phase, reason string) {
			t.Helper()
			compare(t, c, help("syncgate_cluster_phase", "gauge", "1 for the phase and the reason that the gate of the cluster is in.",
				fmt.Sprintf(`syncgate_cluster_phase{cluster_id="an-id",cluster_name=%q,cluster_namespace=%q,phase=%q,reason=%q} 1`, name, namespace, phase, reason)),
				"syncgate_cluster_phase")
		}
		contact := func(want ...string) {
			t.Helper()
			text := ""
			if len(want) > 0 {
				text = help("syncgate_last_contact_timestamp_seconds", "gauge", "When the API server was last heard: the last list, event or bookmark.",
					"syncgate_last_contact_timestamp_seconds "+want[0])
			}
			compare(t, c, text, "syncgate_last_contact_timestamp_seconds")
		}
		phase("", "", "Unknown", "NotSynced")
		contact()

		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- gate.Run(ctx) }()
		time.Sleep(time.Second)
		phase(ns, "child", "Open", "SyncAllowed")
		time.Sleep(time.Minute)
		server.Bookmark()
		synctest.Wait()
		contact(fmt.Sprint(float64(time.Now().Unix())))

		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		phase(ns, "child", "Unknown", "Stopped")
	})
}

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

// One cluster with an odd ID must not take the scrape of all others away.
func TestOddClusterID(t *testing.T) {
	hub, _, _ := newHub(t)
	hub.Gate("\xff\"\n")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCollector(hub))
	if _, err := registry.Gather(); err != nil {
		t.Errorf("Gather = %v", err)
	}
}

func TestNilGates(t *testing.T) {
	var gate *syncgate.Gate
	for name, gates := range map[string]metrics.Gates{"nil": nil, "nil pointer": gate} {
		for _, newCollector := range []func(metrics.Gates) prometheus.Collector{metrics.NewCollector, metrics.NewTotalsCollector} {
			func() {
				defer func() {
					if text, ok := recover().(string); !ok || !strings.Contains(text, "nil gates") {
						t.Errorf("%s: recovered %q; want what is nil", name, text)
					}
				}()
				newCollector(gates)
			}()
		}
	}
}

// BenchmarkScrape is what a scrape of 10,000 clusters costs, as far as a registry
// hands it over.
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
