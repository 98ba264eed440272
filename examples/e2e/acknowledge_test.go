package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// acknowledge runs a reporter until the test ends, or until stop.
func (p *parent) acknowledge(gates report.Gates, log logr.Logger) (stop func()) {
	p.Helper()
	return p.acknowledgeWith(gates, log, report.Options{})
}

func (p *parent) acknowledgeWith(gates report.Gates, log logr.Logger, opts report.Options) (stop func()) {
	p.Helper()
	reporter, err := report.New(p.client, gates, opts)
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

// withoutFingerprint returns a condition without the fingerprint of the holds.
func withoutFingerprint(summary string) string {
	summary, _, _ = strings.Cut(summary, " (holds ")
	return summary
}

// becomes waits for a condition and returns it.
func (p *parent) becomes(name, want string) (fields map[string]any) {
	p.Helper()
	var got string
	fleettest.Eventually(p, soon, func() bool {
		got, fields = fleettest.Condition(p.get(name))
		got = withoutFingerprint(got)
		return got == want
	}, func() string { return fmt.Sprintf("the condition of %s = %q; want %q", name, got, want) })
	if got != want {
		p.FailNow()
	}
	return fields
}

// history collects the distinct conditions of a ManagedCluster, by a watch.
func (p *parent) history(name string) (conditions func() []string) {
	p.Helper()
	list, err := p.managedClusters().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	w, err := p.managedClusters().Watch(context.Background(), metav1.ListOptions{
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
				summary, _ := fleettest.Condition(obj)
				if summary = withoutFingerprint(summary); summary != "" && (len(all) == 0 || all[len(all)-1] != summary) {
					all = append(all, summary)
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

// An operation is in flight when the pause comes.
func TestPauseIsAcknowledgedOnceDrained(t *testing.T) {
	for _, crd := range []string{"with the field", "stock"} {
		t.Run(crd, func(t *testing.T) {
			p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
			pauses, resumes, holder := pause, resume, syncgate.SyncPausedField
			if crd == "stock" {
				p.apply(localcluster.StockManagedClusterCRD())
				pauses = `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`
				resumes = `{"metadata":{"annotations":null}}`
				holder = "backup (nightly)"
			}
			draining := strings.Replace(draining, syncgate.SyncPausedField, holder, 1)
			paused := strings.Replace(paused, syncgate.SyncPausedField, holder, 1)
			p.register("child", own)
			p.heartbeat("child", 1)
			gate := p.agent(own)
			p.acknowledge(gate, klog.Background())
			conditions := p.history("child")

			finish := operate(t, gate)
			generation := p.patch("child", pauses)
			p.becomes("child", draining)
			if n := gate.InFlight(); n != 1 {
				t.Errorf("InFlight() = %d while the condition says 1", n)
			}
			ended := time.Now()
			finish()
			c := p.becomes("child", paused)
			t.Logf("acknowledged %v after the operation had ended", time.Since(ended).Round(time.Millisecond))
			if n := gate.InFlight(); n != 0 || !gate.Paused() {
				t.Errorf("InFlight() = %d, Paused() = %v at the acknowledgement; want 0, true", n, gate.Paused())
			}
			if err := gate.WaitDrained(t.Context()); err != nil {
				t.Error(err)
			}
			if c["observedGeneration"] != generation {
				t.Errorf("observedGeneration = %v; want %d, of the patch that paused", c["observedGeneration"], generation)
			}
			p.patch("child", resumes)
			p.becomes("child", syncing)
			want := []string{draining, paused, syncing}
			fleettest.Eventually(t, soon, func() bool { return slices.Equal(conditions(), want) }, func() string {
				return fmt.Sprintf("the conditions by a watch are %q; want %q", conditions(), want)
			})
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
		args := []string{"--kubeconfig", p.Kubeconfig(), "-n", namespace, "wait", "mcls/child", "--for=condition=SyncPaused=" + status, "--timeout=60s"}
		if i == 2 { // an edit of something else must not make the condition look outdated
			p.patch("child", `{"spec":{"syncMode":"Push"}}`)
			args[6] = "--for=condition=SyncPaused"
		}
		if out, err := exec.CommandContext(t.Context(), kubectl, args...).CombinedOutput(); err != nil {
			got, _ := fleettest.Condition(p.get("child"))
			t.Fatalf("kubectl %v: %v\n%s%s", args[4:], err, out, got)
		}
	}
}

func TestTwoHoldersOneReleases(t *testing.T) {
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	hub := p.hub()
	p.acknowledge(hub, klog.Background())
	conditions := p.history("child")
	first := p.patch("child", `{"spec":{"syncPaused":true},"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":"nightly"}}}`)
	before := p.becomes("child", "True Paused: held by spec.syncPaused, backup (nightly); nothing is in flight")
	second := p.patch("child", resume)
	after := p.becomes("child", "True Paused: held by backup (nightly); nothing is in flight")
	if before["observedGeneration"] != first || after["observedGeneration"] != second {
		t.Errorf("observedGeneration = %v, then %v; want %d, %d", before["observedGeneration"], after["observedGeneration"], first, second)
	}
	if before["lastTransitionTime"] != after["lastTransitionTime"] {
		t.Errorf("lastTransitionTime = %v, then %v; want the same", before["lastTransitionTime"], after["lastTransitionTime"])
	}
	for _, s := range conditions() {
		if !strings.HasPrefix(s, "True Paused: ") {
			t.Errorf("the conditions by a watch are %q; want True all the time", conditions())
		}
	}
	if !hub.Gate(own).Paused() {
		t.Error("Paused() = false with a holder left")
	}
}

// The log says what to do about it.
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
	awaitReason(t, syncgate.ReasonSyncPaused, gate)
}

// A new reporter keeps the condition of the old one.
func TestReporterRestarts(t *testing.T) {
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	stop := p.acknowledge(p.hub(), klog.Background())
	p.patch("child", pause)
	p.becomes("child", paused)
	stop()
	version := p.get("child").GetResourceVersion()
	stop = p.acknowledge(p.hub(), klog.Background())
	idle()
	if now := p.get("child").GetResourceVersion(); now != version {
		t.Errorf("resourceVersion = %s after a restart; want %s, nothing to write", now, version)
	}
	stop()
	p.patch("child", resume)
	p.acknowledge(p.hub(), klog.Background())
	p.becomes("child", syncing)
}
