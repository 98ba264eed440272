//go:build go1.25

package report_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// The condition while a gate waits for the end of a relist, and of ManagedClusters that
// the informer does not select any more.

func conditionIn(object *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	if len(conditions) == 0 {
		return nil
	}
	return conditions[0].(map[string]any)
}

// The gate opens later than the relist that shows the release. Until then there is no
// True for the generation that is released.
func TestNoTrueForAReleasedGeneration(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Paused(true)), func(t *testing.T, f *fixture) {
		f.pass(2 * time.Second)
		f.server.Fail(tu.Refused)
		f.server.SendError(410)
		synctest.Wait()
		f.server.Update(tu.With(f.server.Get(ns, "child"), tu.Unpaused()))
		f.server.Heal()
		for range 6000 {
			f.pass(10 * time.Millisecond)
			o := f.server.Get(ns, "child")
			if c := conditionIn(o); c["status"] == "True" && c["observedGeneration"] == o.GetGeneration() {
				t.Fatalf("condition = %v; generation %d is released", c, o.GetGeneration())
			}
		}
		if c := conditionIn(f.server.Get(ns, "child")); c["reason"] != report.ReasonSyncing {
			t.Errorf("condition after the relist = %v; want Syncing", c)
		}
	})
}

// A holder that is hidden by the selection does not keep a pause from being acknowledged.
func TestAcknowledgedBesideAHiddenHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := tu.NewAPIServer(tu.ManagedCluster(ns, "a", id), tu.ManagedCluster(ns, "b", id, tu.Labelled("other"), tu.Held("x", "why")))
		t.Cleanup(server.Close)
		gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		stop := start(context.Background(), t, gate.Run)
		f := &fixture{T: t, server: server, gate: gate, logger: klog.Background()}
		f.report(gate, report.Options{})
		f.pass(5 * time.Second)
		server.SetSelectable(false)
		f.pass(10 * time.Minute)
		f.change("a", tu.Paused(true))
		f.pass(10 * time.Minute)
		a := server.Get(ns, "a")
		if c := conditionIn(a); c["status"] != "True" || c["observedGeneration"] != a.GetGeneration() {
			t.Errorf("condition = %v; want True for generation %d", c, a.GetGeneration())
		}
		f.stop()
		stop()
	})
}
