//go:build go1.25

package syncgate_test

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that the last decision stays when the ManagedCluster is deleted,
// and that a new object is evaluated again.

func TestDeletionLatches(t *testing.T) {
	for name, tc := range map[string]struct {
		obj    *unstructured.Unstructured
		paused bool
	}{
		"paused":    {cluster(tu.Paused(true)), true},
		"open":      {cluster(), false},
		"malformed": {cluster(tu.Paused("no")), true},
	} {
		for how, gone := range map[string]any{
			"object":          tc.obj,
			"tombstone":       cache.DeletedFinalStateUnknown{Key: ns + "/child", Obj: tc.obj},
			"empty tombstone": cache.DeletedFinalStateUnknown{Key: ns + "/child"},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				inBubble(t, syncgate.Options{}, []any{tc.obj}, func(t *testing.T, f *fixture) {
					got := subscribe(f.gate)
					f.Delete(gone)
					s := f.want(tc.paused, syncgate.Gone, syncgate.ReasonDeleted)
					if s.Object.Name != "child" || s.UID != "uid-child" {
						t.Errorf("State() = %+v; want the last known fields of the object", s)
					}
					if len(got.take()) != 1 {
						t.Error("want one change")
					}
					if _, ok := f.hub.GateOf(ns, "child"); ok {
						t.Error("GateOf finds a ManagedCluster that is gone")
					}
					f.Delete(gone) // once more is harmless
					if f.hub.Gate(id) != f.gate {
						t.Error("Gate returned another pointer for the same ID")
					}

					f.Add(cluster(tu.UID("another")))
					f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
				})
			})
		}
	}
}

func TestRecreatedWithinARelist(t *testing.T) {
	old := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{old}, func(t *testing.T, f *fixture) {
		got := subscribe(f.gate)
		f.Update(old, cluster(tu.UID("another")))
		if s := f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed); s.UID != "another" {
			t.Errorf("UID = %s; want that of the new object", s.UID)
		}
		got.want(t, "SyncPaused>SyncAllowed")
		f.Update(nil, cluster(tu.UID("a third")))
		got.want(t, "SyncAllowed>SyncAllowed") // the same decision of another object
	})
}

func TestRecreatedDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSyncedAgent(t, syncgate.Options{}, cluster(tu.Paused(true)))
		got := subscribe(a.gate)
		a.server.Fail(tu.InStream(410).Times(1))
		a.server.CutWatches()
		a.server.Delete(ns, "child")
		a.server.Create(cluster(tu.UID("another")))
		a.eventually(false, syncgate.ReasonSyncAllowed)
		got.want(t, "SyncPaused>SyncAllowed")
		if uid := a.gate.State().UID; uid != "another" {
			t.Errorf("UID = %s; want that of the new object", uid)
		}
	})
}

func TestDeletionOfDuplicates(t *testing.T) {
	a, b := cluster(tu.Paused(true)), tu.ManagedCluster(ns, "duplicate", id)
	inBubble(t, syncgate.Options{}, []any{a, b}, func(_ *testing.T, f *fixture) {
		f.want(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		f.Delete(a)
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed) // by the other
		f.Delete(b)
		f.want(false, syncgate.Gone, syncgate.ReasonDeleted)
	})
}

func TestAnObjectMovesToAnotherCluster(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		moved := tu.With(obj, tu.ClusterID("other"))
		f.Update(obj, moved)
		f.want(true, syncgate.Gone, syncgate.ReasonDeleted)
		if g, ok := f.hub.GateOf(ns, "child"); !ok || g.ClusterID() != "other" || g.State().Reason != "SyncPaused" {
			t.Errorf("GateOf = %v, %v; want the gate of the other cluster, paused", g, ok)
		}
		f.Update(moved, tu.With(moved, tu.ClusterID("")))
		if s := f.hub.Gate("other").State(); s.Phase != syncgate.Gone {
			t.Errorf("State() = %+v; want Gone", s)
		}
	})
}
