//go:build go1.25

package report_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

func TestPauseAndResume(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
		f.change("child", tu.Heartbeat(time.Now()))
		f.wantRequests("for a cluster that was never paused")

		end, end2 := f.operate(), f.operate()
		f.change("child", tu.Paused(true))
		began := f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 2")
		f.wantRequests("for the draining", get, put)
		end2()
		f.wantRequests("for one operation that has ended")
		f.pass(11 * time.Second)
		f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 1")
		f.wantRequests("ten seconds later", get, put)
		f.wantEvents()
		end()
		held := f.wants("child", paused2)
		if err := f.gate.WaitDrained(t.Context()); err != nil {
			t.Error(err)
		}
		f.wantEvents("Normal SyncPaused: child")
		f.wantRequests("for the pause", get, put)
		f.pass(time.Hour)
		f.change("child", tu.Heartbeat(time.Now()), withConditions(condition{"type": "Ready"}, held))
		f.wantRequests("for an hour and a heartbeat")

		f.refuses()
		f.change("child", tu.Unpaused())
		resumed := f.wants("child", syncing3)
		f.wantEvents("Normal SyncPaused: child", "Normal SyncResumed: child")
		f.wantRequests("for the resume", get, put)
		if began["lastTransitionTime"] == held["lastTransitionTime"] || held["lastTransitionTime"] == resumed["lastTransitionTime"] {
			t.Errorf("lastTransitionTime of %v, %v, %v; want one each", began, held, resumed)
		}
		want := corev1.Event{
			InvolvedObject: corev1.ObjectReference{APIVersion: "clusters.clusternet.io/v1beta1", Kind: "ManagedCluster", Namespace: ns, Name: "child", UID: "uid-child"},
			Type:           "Normal", Reason: "SyncPaused", Message: held["message"].(string),
		}
		if diff := cmp.Diff(want, f.recorded.all()[0]); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	})
}

func TestResumeBeforeThePauseTookHold(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		end := f.operate()
		f.change("child", tu.Paused(true))
		drained := f.condition("child")
		f.pass(2 * time.Second)
		f.change("child", tu.Unpaused())
		now := f.wants("child", syncing3)
		if now["lastTransitionTime"] != drained["lastTransitionTime"] {
			f.Errorf("lastTransitionTime = %v, before %v; want the same for the same status", now, drained)
		}
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), ".WaitDrained(") {
			f.Error("a goroutine waits for an open gate to drain")
		}
		end()
		f.wants("child", syncing3)
		f.wantEvents()
		f.requests()
		f.change("child", tu.Paused(true)) // the waiter of the first pause is no more
		f.wants("child", "True Paused 4: held by spec.syncPaused; nothing is in flight")
		f.wantEvents("Normal SyncPaused: child")
	})
}

// A gate that opened and closed between two reconciles has resumed.
func TestPausedAgainWithOperations(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Paused(true)), func(_ *testing.T, f *fixture) {
		f.wantEvents("Normal SyncPaused: child")
		f.server.Fail(tu.Status(http.StatusInternalServerError).On(tu.Get))
		f.change("child", tu.Unpaused())
		end := f.operate()
		f.change("child", tu.Paused(true))
		f.server.Heal()
		f.pass(time.Minute)
		f.wants("child", "False Draining 4: held by spec.syncPaused; operations still in flight: 1")
		end()
		f.wants("child", "True Paused 4: held by spec.syncPaused; nothing is in flight")
		f.wantEvents("Normal SyncPaused: child", "Normal SyncResumed: child", "Normal SyncPaused: child")
	})
}

func TestTwoHolders(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Held("backup", "nightly"), tu.Held("audit", "")), func(t *testing.T, f *fixture) {
		before := f.wants("child", "True Paused 1: held by audit, backup (nightly); nothing is in flight")
		f.pass(time.Minute)
		f.change("child", tu.Released("audit"), edited)
		after := f.wants("child", "True Paused 2: held by backup (nightly); nothing is in flight")
		if before["lastTransitionTime"] != after["lastTransitionTime"] {
			t.Errorf("lastTransitionTime = %v, before %v; want the same for the same status", after, before)
		}
		f.wantEvents("Normal SyncPaused: child")
	})
}

func TestMalformed(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.change("child", tu.Paused("true"))
		const unknown = `Unknown Malformed 2: ManagedCluster ` + ns + `/child: spec.syncPaused is the string "true"; set it to true or false, or remove it`
		f.wants("child", unknown)
		f.change("child", tu.Heartbeat(time.Now()))
		f.wants("child", unknown)
		f.wantEvents("Warning SyncPauseMalformed: child")
		f.change("child", tu.Paused(true))
		f.wants("child", "True Paused 3: held by spec.syncPaused; nothing is in flight")
		f.change("child", tu.Paused("false"))
		f.change("child", tu.Unpaused())
		f.wants("child", "False Syncing 5: nothing holds the cluster")
		f.wantEvents("Warning SyncPauseMalformed: child", "Normal SyncPaused: child", "Warning SyncPauseMalformed: child", "Normal SyncResumed: child")
	})
}

func TestAllDuplicatesHaveIt(t *testing.T) {
	objs := []*unstructured.Unstructured{child(), tu.ManagedCluster(ns, "double", id), tu.ManagedCluster(ns, "other", "another")}
	var calls atomic.Int64
	count := func(syncgate.State) bool { calls.Add(1); return true }
	inBubble(t, reportsIf(count), objs, func(_ *testing.T, f *fixture) {
		f.change("double", tu.Paused(true))
		f.wants("child", "True Paused 1: held by spec.syncPaused, see ManagedCluster "+ns+"/double; drained: deployer")
		f.wants("double", drained2)
		f.wants("other", "")
		f.change("child", edited)
		f.wants("child", "True Paused 2: held by spec.syncPaused, see ManagedCluster "+ns+"/double; drained: deployer")
		f.server.Create(tu.ManagedCluster(ns, "third", id))
		f.pass(time.Second)
		f.wants("third", "True Paused 1: held by spec.syncPaused, see ManagedCluster "+ns+"/double; drained: deployer")
		f.change("third", tu.ClusterID("another"))
		f.wants("third", "False Syncing 1: nothing holds the cluster")
		f.server.Delete(ns, "double")
		f.pass(time.Second)
		f.wants("child", "False Syncing 2: nothing holds the cluster")
		f.pass(10 * time.Second) // the last one was for a closed gate
		calls.Store(0)
		f.pass(time.Hour)
		if n := calls.Load(); n != 0 {
			f.Errorf("calls of Parties = %d in an hour in which nothing happens; want none", n)
		}
	})
}

// The spec is edited while the cluster is paused: kubectl wait would take an
// older observedGeneration for outdated.
func TestObservedGenerationFollows(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Paused(true)), func(_ *testing.T, f *fixture) {
		f.wants("child", paused2)
		f.requests()
		f.change("child", func(object map[string]any) {
			object["metadata"].(map[string]any)["generation"] = int64(7)
		})
		f.wants("child", "True Paused 7: held by spec.syncPaused; nothing is in flight")
		f.wantRequests("", get, put)
		f.wantEvents("Normal SyncPaused: child")
	})
}

func TestLongMessages(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Held("backup", strings.Repeat("ä", 40_000))), func(t *testing.T, f *fixture) {
		message := f.condition("child")["message"].(string)
		if len(message) > 4096 || !strings.HasPrefix(message, "held by backup (ä") || !strings.Contains(message, "ä...; nothing is in flight") {
			t.Errorf("message of %d bytes = %.40q...; want it cut", len(message), message)
		}
	})
}

func TestHoldsOfManyKinds(t *testing.T) {
	inBubble(t, report.Options{}, append(one(tu.Held("ops", "x")), tu.ManagedCluster(ns, "double", id, tu.Paused(true), tu.Held("audit", "y"), tu.Held("ops", ""), tu.Held("gone", "false"))),
		func(_ *testing.T, f *fixture) {
			const want = "held by spec.syncPaused, audit (y), ops (x), ops"
			f.wants("child", fmt.Sprintf("True Paused 1: %s, see ManagedCluster %s/double; nothing is in flight", want, ns))
			f.wants("double", fmt.Sprintf("True Paused 2: %s; nothing is in flight", want))
			f.change("child", tu.Annotated(syncgate.HoldPrefix+"bad", true))
			f.wants("child", fmt.Sprintf("Unknown Malformed 1: ManagedCluster %s/child: annotation %sbad is true of type bool; remove it, or give it a text as value", ns, syncgate.HoldPrefix))
			f.change("child", tu.Held("bad", "false"), tu.Held("spec.syncPaused", ""))
			f.wants("double", "True Paused 2: held by spec.syncPaused, audit (y), ops (x), ops, spec.syncPaused; nothing is in flight")
		})
}

func TestOnlyPartiesReport(t *testing.T) {
	deploys := func(s syncgate.State) bool { return s.AppPusher != nil && *s.AppPusher }
	inBubble(t, reportsIf(deploys), one(), func(_ *testing.T, f *fixture) {
		end := f.operate()
		f.change("child", tu.Paused(true))
		f.pass(time.Hour)
		f.wantRequests("for a cluster that others deploy to")
		f.change("child", tu.Heartbeat(time.Now())) // has appPusher
		f.pass(2 * time.Second)                     // kubectl wait may give up after half a minute
		f.wants("child", "False Draining 2: held by spec.syncPaused; waiting for the parties: deployer has 1 in flight")
		end()
		f.wants("child", drained2)
	})
}
