//go:build go1.25

package syncgate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check the decision: a cluster is paused while the flag or a hold
// annotation of any of its ManagedClusters says so, and each holder counts by itself.

func TestDecision(t *testing.T) {
	field := syncgate.Hold{Owner: syncgate.SyncPausedField}
	for name, tc := range map[string]struct {
		objects []any
		reason  string
		holds   []syncgate.Hold
	}{
		"absent":                {[]any{cluster()}, "SyncAllowed", nil},
		"false":                 {[]any{cluster(tu.Paused(false))}, "SyncAllowed", nil},
		"true":                  {[]any{cluster(tu.Paused(true))}, "SyncPaused", []syncgate.Hold{field}},
		"annotation":            {[]any{cluster(tu.Held("backup", "nightly"))}, "Held", []syncgate.Hold{{Owner: "backup", Reason: "nightly"}}},
		"annotation, no reason": {[]any{cluster(tu.Held("backup", ""))}, "Held", []syncgate.Hold{{Owner: "backup"}}},
		"annotation, true":      {[]any{cluster(tu.Held("backup", "true"))}, "Held", []syncgate.Hold{{Owner: "backup", Reason: "true"}}},
		"annotation, released":  {[]any{cluster(tu.Held("backup", "false"))}, "SyncAllowed", nil},
		"annotation, FALSE":     {[]any{cluster(tu.Held("backup", "FALSE"))}, "Held", []syncgate.Hold{{Owner: "backup", Reason: "FALSE"}}},
		"another annotation":    {[]any{cluster(tu.Annotated("clusters.clusternet.io/hold", "x"))}, "SyncAllowed", nil},
		"flag false, held": {
			[]any{cluster(tu.Paused(false), tu.Held("b", "2"), tu.Held("a", "1"))},
			"Held", []syncgate.Hold{{Owner: "a", Reason: "1"}, {Owner: "b", Reason: "2"}},
		},
		"flag true, one of two released": {
			[]any{cluster(tu.Paused(true), tu.Held("b", "2"), tu.Held("a", "false"))},
			"SyncPaused", []syncgate.Hold{field, {Owner: "b", Reason: "2"}},
		},
		"duplicates, open":         {[]any{cluster(), tu.ManagedCluster(ns, "a", id)}, "SyncAllowed", nil},
		"duplicates, first paused": {[]any{tu.ManagedCluster(ns, "a", id, tu.Paused(true)), cluster()}, "SyncPaused", []syncgate.Hold{field}},
		"duplicates, last paused":  {[]any{cluster(), tu.ManagedCluster("z", "z", id, tu.Paused(true))}, "SyncPaused", []syncgate.Hold{field}},
		"duplicates, held apart": {
			[]any{cluster(tu.Held("a", "1")), tu.ManagedCluster(ns, "a", id, tu.Held("b", "2"))},
			"Held", []syncgate.Hold{{Owner: "a", Reason: "1"}, {Owner: "b", Reason: "2"}},
		},
		"duplicates, last held": {
			[]any{cluster(), tu.ManagedCluster("z", "z", id, tu.Held("b", "2"))}, "Held", []syncgate.Hold{{Owner: "b", Reason: "2"}},
		},
		"another cluster is paused": {[]any{cluster(), tu.ManagedCluster(ns, "other", "other", tu.Paused(true))}, "SyncAllowed", nil},
		"label is ours, spec is not": {
			[]any{cluster(), tu.ManagedCluster(ns, "other", "other", tu.Labelled(id), tu.Paused(true))},
			"SyncAllowed", nil,
		},
		"spec is ours, label is not": {[]any{cluster(tu.Labelled("other"), tu.Paused(true))}, "SyncPaused", []syncgate.Hold{field}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{}, tc.objects, func(t *testing.T, f *fixture) {
				s := f.wantReason(tc.reason)
				if diff := cmp.Diff(tc.holds, s.Holds); diff != "" {
					t.Errorf("Holds (-want +got):\n%s", diff)
				}
				for _, hold := range s.Holds {
					if !strings.Contains(s.Message, hold.Owner) || !strings.Contains(s.Message, hold.Reason) {
						t.Errorf("Message = %q; want it to name %+v", s.Message, hold)
					}
				}
			})
		})
	}
}

func TestHoldersAreIndependent(t *testing.T) {
	both := cluster(tu.Paused(true), tu.Held("backup", "nightly"))
	inBubble(t, syncgate.Options{}, []any{both}, func(t *testing.T, f *fixture) {
		var got []syncgate.Change
		f.gate.OnChange(func(c syncgate.Change) { got = append(got, c) })
		one := tu.With(both, tu.Unpaused())
		f.Update(both, one)
		f.want(true, syncgate.Paused, syncgate.ReasonHeld)
		none := tu.With(one, tu.Released("backup"))
		f.Update(one, none)
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		synctest.Wait()
		resumed := 0
		for _, c := range got {
			if c.Resumed() {
				resumed++
			}
		}
		if resumed != 1 {
			t.Errorf("%d changes were Resumed; want 1: %+v", resumed, got)
		}
	})
}

func TestStateDescribesTheObject(t *testing.T) {
	obj := cluster(tu.Heartbeat(time.Now()), tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{tu.ManagedCluster(ns, "a-duplicate", id), obj}, func(t *testing.T, f *fixture) {
		got := f.gate.State()
		yes := true
		want := syncgate.State{
			Phase: syncgate.Paused, Paused: true, Reason: "SyncPaused",
			Message: "ManagedCluster clusternet-abcde/child is held by spec.syncPaused",
			Holds:   []syncgate.Hold{{Owner: "spec.syncPaused"}},
			Since:   time.Now(), Object: types.NamespacedName{Namespace: ns, Name: "child"},
			UID: "uid-child", Generation: 2, SyncMode: syncgate.Dual, AppPusher: &yes,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("State() (-want +got):\n%s", diff)
		}

		got.Holds[0].Owner, *got.AppPusher = "nobody", false
		if diff := cmp.Diff(want, f.gate.State()); diff != "" {
			t.Errorf("State() after its result was changed (-want +got):\n%s", diff)
		}

		// A second hold changes neither Phase nor Reason, so Since stays.
		time.Sleep(time.Minute)
		f.Update(obj, tu.With(obj, tu.Paused(true), tu.Held("backup", "nightly")))
		want.Generation, want.Holds = 3, []syncgate.Hold{{Owner: "spec.syncPaused"}, {Owner: "backup", Reason: "nightly"}}
		want.Message = "ManagedCluster clusternet-abcde/child is held by spec.syncPaused, backup (nightly)"
		if diff := cmp.Diff(want, f.gate.State()); diff != "" {
			t.Errorf("State() with a second hold (-want +got):\n%s", diff)
		}

		// Another Reason does.
		f.Update(obj, tu.With(obj, tu.Paused(false), tu.Held("backup", "nightly")))
		if s := f.wantReason(syncgate.ReasonHeld); !s.Since.Equal(time.Now()) {
			t.Errorf("Since = %v for another Reason; want now, %v", s.Since, time.Now())
		}
	})
}
