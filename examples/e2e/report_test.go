package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// acknowledge runs a reporter until the test ends, or until stop.
func (p *parent) acknowledge(gates report.Gates, log logr.Logger) (stop func()) {
	p.Helper()
	reporter, err := report.New(p.client, gates, report.Options{})
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), log))
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := reporter.Run(ctx); err != nil {
			p.Errorf("Run of the reporter = %v", err)
		}
	})
	stop = func() { cancel(); ended.Wait() }
	p.Cleanup(stop)
	return stop
}

func (p *parent) get(name string) *unstructured.Unstructured {
	p.Helper()
	obj, err := p.client.Resource(informer.Resource).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return obj
}

// condition returns the condition of a ManagedCluster as "status reason: message",
// and whole.
func condition(obj *unstructured.Unstructured) (string, map[string]any) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range list {
		if c := c.(map[string]any); c["type"] == report.ConditionType {
			return fmt.Sprintf("%v %v: %v", c["status"], c["reason"], c["message"]), c
		}
	}
	return "", nil
}

// becomes waits for a condition and returns it.
func (p *parent) becomes(name, want string) map[string]any {
	p.Helper()
	var got string
	var c map[string]any
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		got, c = condition(p.get(name))
		return got == want, nil
	})
	if err != nil {
		p.Fatalf("after %v the condition of %s = %q; want %q", soon, name, got, want)
	}
	return c
}

// generation patches a ManagedCluster and returns the generation that this made.
func (p *parent) generation(name, patch string) int64 {
	p.Helper()
	obj, err := p.client.Resource(informer.Resource).Namespace(namespace).
		Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return obj.GetGeneration()
}

// history collects the distinct conditions of a ManagedCluster that a watch shows.
func (p *parent) history(name string) (seen func() []string) {
	p.Helper()
	list, err := p.client.Resource(informer.Resource).Namespace(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	w, err := p.client.Resource(informer.Resource).Namespace(namespace).Watch(context.Background(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + name, ResourceVersion: list.GetResourceVersion(),
	})
	if err != nil {
		p.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	var ended sync.WaitGroup
	ended.Go(func() {
		for event := range w.ResultChan() {
			if obj, ok := event.Object.(*unstructured.Unstructured); ok {
				mu.Lock()
				if brief, _ := condition(obj); brief != "" && (len(all) == 0 || all[len(all)-1] != brief) {
					all = append(all, brief)
				}
				mu.Unlock()
			}
		}
	})
	p.Cleanup(func() { w.Stop(); ended.Wait() })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

const (
	draining = "False Draining: held by spec.syncPaused; operations still in flight: 1"
	paused   = "True Paused: held by spec.syncPaused; nothing is in flight"
	syncing  = "False Syncing: nothing holds the cluster"
)

// An operation runs for two seconds when the pause comes.
func TestPauseIsAcknowledgedOnceDrained(t *testing.T) {
	for _, crd := range []string{"with the field", "stock"} {
		t.Run(crd, func(t *testing.T) {
			p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
			pauses, resumes, by := pause, resume, ""
			if crd == "stock" {
				p.apply(localcluster.StockManagedClusterCRD())
				pauses = `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`
				resumes = `{"metadata":{"annotations":null}}`
				by = "backup (nightly)"
			}
			in := func(s string) string {
				if by != "" {
					s = strings.Replace(s, syncgate.SyncPausedField, by, 1)
				}
				return s
			}
			p.register("child", own)
			p.heartbeat("child", 1)
			gate := p.agent(own)
			p.acknowledge(gate, klog.Background())
			seen := p.history("child")

			begun := make(chan struct{})
			var ended time.Time
			var work sync.WaitGroup
			work.Go(func() {
				if err := gate.Do(context.Background(), func(context.Context) error {
					close(begun)
					<-time.After(2 * time.Second)
					ended = time.Now()
					return nil
				}); err != nil {
					t.Errorf("Do = %v", err)
				}
			})
			<-begun
			generation := p.generation("child", pauses)
			p.becomes("child", in(draining))
			if n := gate.InFlight(); n != 1 {
				t.Errorf("InFlight() = %d while the condition tells of 1", n)
			}
			c := p.becomes("child", in(paused))
			if n := gate.InFlight(); n != 0 || !gate.Paused() {
				t.Errorf("InFlight() = %d, Paused() = %v at the acknowledgement; want 0, true", n, gate.Paused())
			}
			work.Wait()
			t.Logf("acknowledged %v after the operation had ended", time.Since(ended).Round(time.Millisecond))
			if err := gate.WaitDrained(t.Context()); err != nil {
				t.Error(err)
			}
			if c["observedGeneration"] != generation {
				t.Errorf("observedGeneration = %v; want %d, of the patch that paused", c["observedGeneration"], generation)
			}
			p.patch("child", resumes)
			p.becomes("child", in(syncing))
			want := []string{in(draining), in(paused), syncing}
			if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
				return len(seen()) >= len(want), nil
			}); err != nil || !slices.Equal(seen(), want) {
				t.Errorf("a watch has shown %q; want %q", seen(), want)
			}
		})
	}
}

func TestKubectlWaits(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not in PATH")
	}
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	p.acknowledge(p.hub(), klog.Background())
	for i, status := range []string{"true", "false", "true"} {
		p.patch("child", fmt.Sprintf(`{"spec":{"syncPaused":%s}}`, status))
		args := []string{"--kubeconfig", p.Kubeconfig(), "-n", namespace, "wait", "mcls/child", "--for=condition=SyncPaused=" + status, "--timeout=30s"}
		if i == 2 { // an edit of something else must not make the condition look outdated
			p.patch("child", `{"spec":{"syncMode":"Push"}}`)
			args[6] = "--for=condition=SyncPaused"
		}
		if out, err := exec.CommandContext(t.Context(), kubectl, args...).CombinedOutput(); err != nil {
			obj, _ := condition(p.get("child"))
			t.Fatalf("kubectl %v: %v\n%s%s", args[4:], err, out, obj)
		}
	}
}

func TestTwoHoldersOneReleases(t *testing.T) {
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	hub := p.hub()
	p.acknowledge(hub, klog.Background())
	seen := p.history("child")
	first := p.generation("child", `{"spec":{"syncPaused":true},"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
	before := p.becomes("child", "True Paused: held by spec.syncPaused, backup (nightly); nothing is in flight")
	second := p.generation("child", resume)
	after := p.becomes("child", "True Paused: held by backup (nightly); nothing is in flight")
	if before["observedGeneration"] != first || after["observedGeneration"] != second {
		t.Errorf("observedGeneration = %v, then %v; want %d, %d", before["observedGeneration"], after["observedGeneration"], first, second)
	}
	if before["lastTransitionTime"] != after["lastTransitionTime"] {
		t.Errorf("lastTransitionTime = %v, then %v; want the same", before["lastTransitionTime"], after["lastTransitionTime"])
	}
	for _, s := range seen() {
		if !strings.HasPrefix(s, "True Paused: ") {
			t.Errorf("a watch has shown %q", seen())
		}
	}
	if !hub.Gate(own).Paused() {
		t.Error("Paused() = false with a holder left")
	}
}

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

// answered counts the answers with status 200 to updates of a status.
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
	var updates atomic.Int64
	p := newParent(t, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/status") {
				w = &answered{w, &updates}
			}
			next.ServeHTTP(w, r)
		})
	}}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	p.heartbeat("child", 0)
	stale := p.get("child")
	stale.SetResourceVersion("")
	p.acknowledge(p.hub(), klog.Background())
	p.patch("child", pause)
	p.becomes("child", paused)
	version := func() string { return p.get("child").GetResourceVersion() }
	if n := updates.Swap(0); n != 1 {
		t.Errorf("updates for the pause = %d; want 1", n)
	}
	var heartbeats int64
	for i := range 10 {
		// The whole status, from a copy of before the pause.
		if err := unstructured.SetNestedField(stale.Object, fmt.Sprintf("2026-01-01T00:00:%02dZ", i), "status", "lastObservedTime"); err != nil {
			t.Fatal(err)
		}
		stale.SetResourceVersion(version())
		if _, err := p.client.Resource(informer.Resource).Namespace(namespace).UpdateStatus(t.Context(), stale, metav1.UpdateOptions{}); err != nil {
			t.Logf("heartbeat %d: %v", i, err) // it lost against a repair
			continue
		}
		heartbeats++
	}
	p.becomes("child", paused)
	settled := version()
	repairs := updates.Load() - heartbeats
	t.Logf("%d repairs for %d heartbeats", repairs, heartbeats)
	if repairs > heartbeats {
		t.Errorf("repairs = %d for %d heartbeats; want one each at the most", repairs, heartbeats)
	}
	<-time.After(time.Second)
	if now := version(); now != settled {
		t.Errorf("resourceVersion = %s a second later; want %s, nobody fights on", now, settled)
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
			generation = p.generation("child", fmt.Sprintf(`{"spec":{"syncPaused":%v}}`, (i%2 == 1) == last))
		}
		end := time.Now()
		want := syncing
		if last {
			want = paused
		}
		agree := func(context.Context) (bool, error) {
			brief, c := condition(p.get("child"))
			return brief == want && c["observedGeneration"] == generation &&
				hub.Gate(own).Paused() == last && pausedMetric(t, hub) == last, nil
		}
		if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, soon, true, agree); err != nil {
			brief, _ := condition(p.get("child"))
			t.Fatalf("condition = %q, Paused() = %v; want %q of generation %d", brief, hub.Gate(own).Paused(), want, generation)
		}
		took := time.Since(end)
		t.Logf("200 patches in %v, agreement %v after the last", end.Sub(begin).Round(time.Millisecond), took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("agreement after %v; want a second at the most", took)
		}
	}
}

// pausedMetric returns what Prometheus is told of the cluster own.
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

// What a server answers then, and what we make of it.
func TestCRDWithoutStatusSubresource(t *testing.T) {
	crd := localcluster.ManagedClusterCRD()
	crd.Spec.Versions[0].Subresources = nil
	p := newParent(t, localcluster.Options{}, crd)
	p.register("child", own)
	gate := p.agent(own)
	lines := make(chan string, 100)
	log := funcr.New(func(_, args string) {
		select {
		case lines <- args:
		default:
		}
	}, funcr.Options{})
	p.acknowledge(gate, log)
	p.patch("child", pause)
	select {
	case line := <-lines:
		if !strings.Contains(line, "the CRD has no status subresource; add it") {
			t.Errorf("logged %s; want what to do", line)
		}
	case <-time.After(soon):
		t.Errorf("nothing logged after %v", soon)
	}
	what, is := reason(syncgate.ReasonSyncPaused)
	eventually(t, gate, what, is)
}

// A new process finds what the old one left.
func TestReporterRestarts(t *testing.T) {
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	stop := p.acknowledge(p.hub(), klog.Background())
	p.patch("child", pause)
	p.becomes("child", paused)
	stop()
	version := p.get("child").GetResourceVersion()
	stop = p.acknowledge(p.hub(), klog.Background())
	<-time.After(time.Second)
	if now := p.get("child").GetResourceVersion(); now != version {
		t.Errorf("resourceVersion = %s after a restart; want %s, nothing to write", now, version)
	}
	stop()
	p.patch("child", resume)
	p.acknowledge(p.hub(), klog.Background())
	p.becomes("child", syncing)
}
