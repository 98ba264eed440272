//go:build go1.25

package syncgate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// How long a gate waits for a relist, and what it takes for the end of one.

// A hub that starts during a relist may get a half of it with the store.
func TestHubThatStartsDuringARelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHub(t, syncgate.Options{})
		f.Relist()
		f.Relist()
		f.run(t.Context())
		f.Add(duplicate("a"), duplicate("b"))
		f.SetContact(time.Now())
		f.Source.Sync()
		time.Sleep(20 * time.Millisecond)
		f.Update(duplicate("b"), duplicate("b", tu.Held("x", "why")))
		if err := f.hub.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.want(true, syncgate.Paused, syncgate.ReasonHeld)
		f.stop()
	})
}

// The limit of a deferral counts from the newest relist.
func TestSecondRelistIsNotSettledAtTheLimitOfTheFirst(t *testing.T) {
	one, two, busy := duplicate("a", tu.Paused(true)), duplicate("b"), tu.ManagedCluster(ns, "c", "other-id")
	inBubble(t, syncgate.Options{}, []any{one, two, busy}, func(_ *testing.T, f *fixture) {
		time.Sleep(2 * time.Second)
		events := func(n int) {
			for range n {
				f.Update(busy, busy)
				time.Sleep(20 * time.Millisecond)
			}
		}
		f.Relist()
		events(5080 / 20)
		f.Relist()
		f.Update(one, duplicate("a"))
		events(10)
		f.Update(two, duplicate("b", tu.Held("x", "why")))
		time.Sleep(time.Second)
		f.want(true, syncgate.Paused, syncgate.ReasonHeld)
		if n := f.gate.Stats().Resumes; n > 0 {
			f.Errorf("the gate opened %d times; want 0", n)
		}
	})
}

// The event that ends a silence opens nothing if the state behind it is still to be
// listed.
func TestStaleGateWaitsForTheRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obj := cluster()
		a := newSyncedAgent(t, syncgate.Options{StaleAfter: 3 * time.Minute}, obj)
		time.Sleep(4 * time.Minute)
		a.eventually(true, syncgate.ReasonStale)
		a.server.Fail(tu.Hang.On(tu.List, tu.WatchList))
		a.server.Update(tu.With(obj, tu.Heartbeat(time.Now())))
		a.server.SendError(410)
		synctest.Wait()
		a.server.Update(tu.With(obj, tu.Paused(true))) // the relist would show it
		time.Sleep(20 * time.Second)
		if s := a.gate.State(); !s.Paused || s.Reason != syncgate.ReasonStale {
			t.Errorf("State() = %+v while the relist hangs; want Stale", s)
		}
		if err := a.gate.Check(nil); err == nil {
			t.Error("Check() = nil while the relist hangs; want an error")
		}
	})
}

// A recheck that fails is reported, and closes no gate for longer than the silence.
func TestFailingRecheckLeavesNoGateStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSyncedAgent(t, syncgate.Options{StaleAfter: 3 * time.Minute}, duplicate("a"))
		a.eventually(false, syncgate.ReasonSyncAllowed)
		time.Sleep(10 * time.Second)
		a.server.Update(duplicate("a", tu.Heartbeat(time.Now())))
		synctest.Wait()
		time.Sleep(2 * time.Second) // a watch that ends at once is another fault
		a.server.Fail(tu.Status(403).On(tu.List))
		a.server.CutWatches()
		time.Sleep(4 * time.Minute)
		a.eventually(true, syncgate.ReasonStale)
		a.server.Bookmark()
		a.eventually(false, syncgate.ReasonSyncAllowed)
		if err := a.gate.Check(nil); err == nil || !strings.Contains(err.Error(), "recheck") {
			t.Errorf("Check() = %v; want the recheck", err)
		}
	})
}
