//go:build go1.25

package syncgate_test

import (
	"testing"
	"testing/synctest"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check what notifies: a changed decision does. Heartbeats, resyncs,
// relists and clusters without a ManagedCluster do not.

func TestOnlyDecisionsNotify(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var got, byHub recorder
		f.gate.OnChange(got.change)
		f.hub.OnChange(byHub.change)
		got.want(t, "NotSynced>SyncAllowed")
		byHub.want(t, "NotSynced>SyncAllowed")

		f.Update(obj, obj) // a resync, or a relist without a change
		for range 3 {      // heartbeats
			time.Sleep(time.Minute)
			next := tu.With(obj, tu.Heartbeat(time.Now()))
			f.Update(obj, next)
			obj = next
		}
		next := tu.With(obj, tu.Paused(false), tu.Annotated("note", "x")) // an edit of other things
		f.Update(obj, next)
		got.want(t)
		byHub.want(t)
		if s := f.gate.State(); s.Generation != 2 || s.AppPusher == nil {
			t.Errorf("State() = %+v; want the fields that the heartbeats and the edit changed", s)
		}

		f.Update(next, tu.With(next, tu.Paused(true)))
		got.want(t, "SyncAllowed>SyncPaused")
		byHub.want(t, "SyncAllowed>SyncPaused")
	})
}

func TestOneResumeEach(t *testing.T) {
	for name, resume := range map[string]tu.Option{"true to false": tu.Paused(false), "true to absent": tu.Unpaused()} {
		t.Run(name, func(t *testing.T) {
			obj := cluster(tu.Paused(true))
			inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
				var calls []syncgate.Change
				f.gate.OnChange(func(c syncgate.Change) { calls = append(calls, c) })
				synctest.Wait()
				if len(calls) != 1 || !calls[0].New.Paused || calls[0].New.Phase != syncgate.Paused || calls[0].ClusterID != id {
					t.Fatalf("first call = %+v; want the pause that was there from the start", calls)
				}
				f.Update(obj, tu.With(obj, resume))
				synctest.Wait()
				if len(calls) != 2 || !calls[1].Resumed() || calls[1].Paused() {
					t.Errorf("calls after the resume = %+v; want one Resumed", calls[1:])
				}
			})
		})
	}
}

func TestHubIsNotNotifiedOfUnregisteredClusters(t *testing.T) {
	inBubble(t, syncgate.Options{StaleAfter: time.Hour}, nil, func(t *testing.T, f *fixture) {
		var got, ofGate recorder
		f.hub.OnChange(got.change)
		f.hub.Gate("a typing error").OnChange(ofGate.change)
		got.want(t)
		ofGate.want(t, "NotSynced>NotFound")
		time.Sleep(2 * time.Hour)
		got.want(t)
		ofGate.want(t, "NotFound>Stale")
		f.SetContact(time.Now())
		time.Sleep(time.Second)
		got.want(t)
		f.Add(cluster())
		got.want(t, "NotSynced>SyncAllowed")
	})
}
