//go:build go1.25

package report_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

func TestStart(t *testing.T) {
	pausedBefore := own("True", "Paused", "held by spec.syncPaused; nothing is in flight", 2)
	for name, tt := range map[string]struct {
		obj    *unstructured.Unstructured
		want   string
		wrote  bool
		events []string
	}{
		"never paused":                {child(), "", false, nil},
		"paused, written before":      {child(tu.Paused(true), withConditions(pausedBefore)), paused2, false, nil},
		"paused since":                {child(tu.Paused(true)), paused2, true, []string{"Normal SyncPaused: child"}},
		"resumed since":               {child(edited, edited, withConditions(pausedBefore)), syncing3, true, []string{"Normal SyncResumed: child"}},
		"paused, edited since":        {child(edited, tu.Paused(true), withConditions(pausedBefore)), strings.Replace(paused2, "2", "3", 1), true, nil},
		"open, written before":        {child(own2()), "False Syncing 1: nothing holds the cluster", false, nil},
		"malformed, written before":   {child(tu.Paused(1.5), withConditions(own("Unknown", "Malformed", "whatever", 1))), "Unknown Malformed 2: ManagedCluster " + ns + "/child: spec.syncPaused is 1.5 of type float64; set it to true or false, or remove it", true, nil},
		"a malformed one, open":       {child(withConditions(condition{"type": "SyncPaused", "status": true})), "False Syncing 1: nothing holds the cluster", true, nil},
		"malformed and True, open":    {child(withConditions(condition{"type": "SyncPaused", "status": "True", "message": int64(1)})), "False Syncing 1: nothing holds the cluster", true, []string{"Normal SyncResumed: child"}},
		"a condition of another kind": {child(tu.Paused(true), withConditions(condition{"type": "SyncPaused", "status": true})), paused2, true, []string{"Normal SyncPaused: child"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, report.Options{}, []*unstructured.Unstructured{tt.obj}, func(_ *testing.T, f *fixture) {
				c := f.wants("child", tt.want)
				if got := len(f.requests(tu.UpdateStatus)) > 0; got != tt.wrote {
					f.Errorf("wrote %v; want %v", got, tt.wrote)
				}
				f.wantEvents(tt.events...)
				if was := conditions(tt.obj); len(was) > 0 && was[0].(condition)["status"] == c["status"] && c["lastTransitionTime"] != "1999-01-01T00:00:00Z" {
					f.Errorf("condition = %v; want the time of the last transition", c)
				}
			})
		})
	}
}

// Nothing is reported while nothing is known, and the end of a process is no pause.
func TestUnknownIsNotReported(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		inBubble(t, report.Options{}, one(tu.Paused(true)), func(_ *testing.T, f *fixture) {
			f.refuses()
			f.requests()
			f.server.Delete(ns, "child")
			f.pass(time.Hour)
			f.wantRequests("after the deletion")
			f.server.Create(child(tu.UID("another")))
			f.pass(time.Second)
			f.wantRequests("for another one that is open")
			f.change("child", tu.Paused(true))
			f.wants("child", paused2)
		})
	})
	t.Run("gates stopped", func(t *testing.T) {
		inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
			end := f.operate()
			f.change("child", tu.Paused(true))
			f.requests()
			f.stopHub()
			f.pass(time.Minute)
			end()
			f.pass(time.Minute)
			f.wantRequests("after the end of the gates")
			f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 1")
		})
	})
	t.Run("reporter and gates stopped", func(t *testing.T) {
		inBubble(t, report.Options{}, one(own2()), func(_ *testing.T, f *fixture) {
			f.requests()
			go f.stopHub()
			f.stop()
			f.pass(time.Hour)
			f.wantRequests("after the end")
		})
	})
	t.Run("stale", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fixture{T: t, server: tu.NewAPIServer(child(own2())), logger: klog.Background()}
			defer f.server.Close()
			gate, err := syncgate.New(f.server.Client(), ns, id, syncgate.Options{StaleAfter: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer start(context.Background(), t, gate.Run)()
			f.report(gate, report.Options{})
			defer func() { f.stop() }()
			f.requests()
			f.pass(10 * time.Minute)
			if gate.State().Reason != syncgate.ReasonStale {
				t.Errorf("State() = %+v; want Stale", gate.State())
			}
			f.wantRequests("while the server is silent")
		})
	})
}

// own2 is a condition of a cluster that has resumed.
func own2() tu.Option { return withConditions(own("False", "Syncing", "nothing holds the cluster", 1)) }
