//go:build go1.25

package metrics_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/clusternet/syncgate/report"
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

// compare checks what a collector exports: all metrics, or only
// the named ones.
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

// Every metric, of a cluster in every phase.
func TestCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draining := tu.ManagedCluster(ns, "draining", "id-draining", tu.Annotated("holds.clusters.clusternet.io/ops", "x"))
		gone := tu.ManagedCluster(ns, "gone", "id-gone", tu.Paused(true))
		hub, source, _ := newHub(t, object("open"), gone, draining)
		hub.Gate("nobody") // closed for longer than any pause
		time.Sleep(time.Hour)
		source.Add(object("held", tu.Held("backup", "nightly"), acknowledged))
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

// The metrics of an agent with a real informer, before, during and after Run.
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
				text = help("syncgate_last_contact_timestamp_seconds", "gauge", "When the last list, event or bookmark came from the API server.",
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

// One cluster with an odd ID must not break the scrape of the others.
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
					if text, ok := recover().(string); !ok || !strings.Contains(text, "the gates are nil") {
						t.Errorf("%s: recovered %q; want what is nil", name, text)
					}
				}()
				newCollector(gates)
			}()
		}
	}
}

// acknowledged is the condition that package report writes for the hold of a backup.
func acknowledged(object map[string]any) {
	object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": report.ConditionType, "status": "True", "observedGeneration": int64(1),
		"message": "held by backup (nightly); nothing is in flight (holds d2ca3cd10f2a)",
	}}}
}
