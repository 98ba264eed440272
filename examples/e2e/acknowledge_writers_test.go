package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/syncgate"
)

// Another client replaces the list of conditions by a merge patch.
func TestClobberedConditionComesBack(t *testing.T) {
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	p.acknowledge(p.hub(), klog.Background())
	p.patch("child", pause)
	before := p.becomes("child", paused)
	p.heartbeat("child", 7)
	after := p.becomes("child", paused)
	if before["lastTransitionTime"] != after["lastTransitionTime"] {
		t.Errorf("lastTransitionTime = %v, before %v; want the same", after["lastTransitionTime"], before["lastTransitionTime"])
	}
	list, _, _ := unstructured.NestedSlice(p.get("child").Object, "status", "conditions")
	if len(list) != 2 || list[0].(map[string]any)["message"] != "7" || list[0].(map[string]any)["type"] != "Ready" {
		t.Errorf("conditions = %v; want theirs as it was, and ours", list)
	}
	if appPusher, _, _ := unstructured.NestedBool(p.get("child").Object, "status", "appPusher"); !appPusher {
		t.Error("appPusher of the heartbeat is lost")
	}
}

// statusUpdates counts updates of a status.
type statusUpdates struct{ begun, ended, accepted atomic.Int64 }

func (u *statusUpdates) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/status") {
			next.ServeHTTP(w, r)
			return
		}
		u.begun.Add(1)
		defer u.ended.Add(1)
		next.ServeHTTP(&answered{w, &u.accepted}, r)
	})
}

// await waits until no update is being handled, and returns how many were accepted. An
// effect is visible before its handler answers.
func (u *statusUpdates) await(tb testing.TB) int64 {
	tb.Helper()
	fleettest.Eventually(tb, soon, func() bool { return u.ended.Load() == u.begun.Load() }, func() string { return "updates of the status do not end" })
	return u.accepted.Load()
}

// answered counts the answers with status 200.
type answered struct {
	http.ResponseWriter
	count *atomic.Int64
}

func (w *answered) WriteHeader(code int) {
	if code == http.StatusOK {
		w.count.Add(1)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *answered) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestStaleHeartbeatsConverge(t *testing.T) {
	var updates statusUpdates
	p := newParent(t, localcluster.Options{Handler: updates.handler}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	p.heartbeat("child", 0)
	stale := p.get("child")
	stale.SetResourceVersion("")
	p.acknowledge(p.hub(), klog.Background())
	p.patch("child", pause)
	p.becomes("child", paused)
	version := func() string { return p.get("child").GetResourceVersion() }
	if n := updates.await(t); n != 1 {
		t.Errorf("updates for the pause = %d; want 1", n)
	}
	var heartbeats int64
	for i := range 10 {
		// The whole status, from a copy of before the pause.
		if err := unstructured.SetNestedField(stale.Object, fmt.Sprintf("2026-01-01T00:00:%02dZ", i), "status", "lastObservedTime"); err != nil {
			t.Fatal(err)
		}
		stale.SetResourceVersion(version())
		if _, err := p.managedClusters().UpdateStatus(t.Context(), stale, metav1.UpdateOptions{}); err != nil {
			t.Logf("heartbeat %d: %v", i, err) // it lost against a repair
			continue
		}
		heartbeats++
	}
	p.becomes("child", paused)
	settled := version()
	repairs := updates.await(t) - 1 - heartbeats
	t.Logf("%d repairs for %d heartbeats", repairs, heartbeats)
	if repairs > heartbeats {
		t.Errorf("repairs = %d for %d heartbeats; want one each at the most", repairs, heartbeats)
	}
	idle()
	if now := version(); now != settled {
		t.Errorf("resourceVersion = %s a second later; want %s, since nobody writes any more", now, settled)
	}
}

// 200 patches as fast as the server takes them.
func TestTogglingConverges(t *testing.T) {
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	hub := p.hub()
	p.acknowledge(hub, klog.Background())
	for _, last := range []bool{true, false} {
		var generation int64
		begin := time.Now()
		for i := range 200 {
			generation = p.patch("child", fmt.Sprintf(`{"spec":{"syncPaused":%v}}`, (i%2 == 1) == last))
		}
		end := time.Now()
		want := syncing
		if last {
			want = paused
		}
		agree := func() bool {
			summary, c := fleettest.Condition(p.get("child"))
			return summary == want && c["observedGeneration"] == generation &&
				hub.Gate(own).Paused() == last && pausedMetric(t, hub) == last
		}
		fleettest.Eventually(t, soon, agree, func() string {
			summary, _ := fleettest.Condition(p.get("child"))
			return fmt.Sprintf("condition = %q, Paused() = %v; want %q of generation %d", summary, hub.Gate(own).Paused(), want, generation)
		})
		t.Logf("200 patches in %v, agreement %v after the last", end.Sub(begin).Round(time.Millisecond), time.Since(end).Round(time.Millisecond))
	}
}

// pausedMetric returns the metric of the cluster own.
func pausedMetric(t *testing.T, hub *syncgate.Hub) bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(hub))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "syncgate_cluster_paused" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "cluster_id" && label.GetValue() == own {
					return metric.GetGauge().GetValue() == 1
				}
			}
		}
	}
	t.Fatal("there is no metric of the cluster")
	return false
}
