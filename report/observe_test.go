//go:build go1.25

package report_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// mcls is a ManagedCluster as Clusternet's own Go type has it: no syncPaused.
type mcls struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		ClusterID string `json:"clusterId"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status"`
}

func TestTypedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, server: tu.NewAPIServer(child()), logger: ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))}
		defer f.server.Close()
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer start(context.Background(), t, hub.Run)()
		f.report(hub, report.Options{})
		typed := &mcls{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "child", UID: "uid-child", Generation: 1}}
		typed.Spec.ClusterID = id
		source.Add("no object", typed, (*mcls)(nil))
		source.Sync()
		f.pass(time.Second)
		c := f.condition("child")
		if c["status"] != "Unknown" || c["reason"] != syncgate.ReasonFieldNotVisible || !strings.Contains(c["message"].(string), "report_test.mcls") {
			t.Errorf("condition = %v; want Unknown/FieldNotVisible", c)
		}
		f.wantEvents()
		f.wantRequests("at the start", get, put)

		reported := *typed
		reported.Status.Conditions = []metav1.Condition{{
			Type: "SyncPaused", Status: "Unknown", Reason: c["reason"].(string), Message: c["message"].(string), ObservedGeneration: 1,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Second)),
		}}
		source.Update(typed, &reported)
		f.pass(time.Second)
		f.requests()
		source.Update(&reported, &reported)
		f.server.Update(child()) // somebody drops it
		source.Update(&reported, typed)
		f.pass(time.Second)
		if got := f.condition("child"); got["status"] != "Unknown" {
			t.Errorf("condition = %v; want it restored", got)
		}
		f.wantRequests("after it was dropped", get, put)
		f.stop()
		if n := source.Handlers(); n != 1 {
			t.Errorf("handlers left = %d; want that of the hub", n)
		}
	})
}

// labelled is a ManagedCluster of a Go type without a field for the cluster ID.
type labelled struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              *struct {
		Paused bool `json:"syncPaused,omitempty"`
	} `json:"spec,omitempty"`
}

func TestLabelOfTypedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, server: tu.NewAPIServer(child(tu.Paused(true))), logger: klog.Background()}
		defer f.server.Close()
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer start(context.Background(), t, hub.Run)()
		f.report(hub, report.Options{})
		defer func() { f.stop() }()
		typed := &labelled{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "child", UID: "uid-child", Generation: 2,
			Labels: child().GetLabels(), Annotations: map[string]string{"other": "x"},
		}}
		typed.Spec = &struct {
			Paused bool `json:"syncPaused,omitempty"`
		}{true}
		nameless := &mcls{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stray", UID: "uid-stray", Generation: 1, Labels: child().GetLabels()}}
		source.Add(typed, nameless, (*unstructured.Unstructured)(nil))
		source.Sync()
		f.pass(time.Second)
		f.wants("child", paused2)
		f.wantRequests("", get, put)
	})
}

// For unstructured objects the gate reads the spec only, so the label does not count.
func TestLabelIsNoClusterID(t *testing.T) {
	var calls atomic.Int64
	count := func(syncgate.State) bool { calls.Add(1); return true }
	stray := tu.ManagedCluster(ns, "stray", id, func(object map[string]any) { delete(object["spec"].(map[string]any), "clusterId") })
	inBubble(t, reportsIf(count), append(one(), stray), func(t *testing.T, f *fixture) {
		calls.Store(0)
		f.pass(time.Hour)
		if n := calls.Load(); n != 0 {
			t.Errorf("calls of Parties in an hour = %d; want none", n)
		}
		f.change("child", tu.Paused(true))
		f.wants("child", drained2)
		f.wants("stray", "")
		f.change("child", tu.ClusterID(""))
		f.requests()
		f.pass(time.Hour)
		f.wantRequests("for what has no cluster any more")
	})
}

func TestDeletedMeanwhile(t *testing.T) {
	for _, verb := range []string{tu.Get, tu.UpdateStatus} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
				f.on(verb, func() { f.server.Delete(ns, "child") })
				f.server.Update(tu.With(child(), tu.Paused(true)))
				f.pass(time.Hour)
				// It may try once more until it observes the deletion.
				if got := f.requests(tu.Get, tu.UpdateStatus); len(got) > 4 {
					t.Errorf("requests = %q; want a few only", got)
				}
				f.wantEvents()
				if logged := f.errorsLogged(); len(logged) != 0 {
					t.Errorf("errors logged = %q; want none", logged)
				}
			})
		})
	}
}

// A new object of the same name does not get the condition of the first.
func TestReplacedMeanwhile(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.on(tu.Get, func() {
			f.server.Delete(ns, "child")
			f.server.Create(child(tu.UID("another")))
		})
		f.server.Update(tu.With(child(), tu.Paused(true)))
		f.pass(time.Hour)
		f.wants("child", "")
		if n := len(f.requests(tu.UpdateStatus)); n != 0 {
			f.Errorf("writes = %d; want none", n)
		}
	})
}
