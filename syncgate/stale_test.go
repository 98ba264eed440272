//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check StaleAfter: a gate closes when the server was silent for too long,
// and opens again once the state is known again.

func TestStaleAfter(t *testing.T) {
	paused := tu.ManagedCluster(ns, "paused", "paused", tu.Paused(true))
	opts := syncgate.Options{StaleAfter: 5 * time.Minute, FailOpen: true}
	inBubble(t, opts, []any{cluster(), paused}, func(t *testing.T, f *fixture) {
		start := time.Now()
		got := subscribe(f.gate)
		unknown := f.hub.Gate("unknown")
		for range 10 { // bookmarks
			time.Sleep(4*time.Minute + 33*time.Millisecond)
			f.SetContact(time.Now())
			f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		}
		time.Sleep(5*time.Minute - time.Nanosecond)
		synctest.Wait()
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		s := f.want(true, syncgate.Unknown, syncgate.ReasonStale)
		if !strings.Contains(s.Message, "5m0s") || s.Since.Sub(start) != 45*time.Minute+330*time.Millisecond {
			t.Errorf("State() = %+v; want the length of the silence, and Since at its end", s)
		}
		if !unknown.Paused() {
			t.Error("FailOpen keeps a stale gate open")
		}
		if err := f.gate.Check(nil); err == nil || !strings.Contains(err.Error(), "silent") {
			t.Errorf("Check() = %v; want the silence in it", err)
		}
		time.Sleep(time.Hour)
		f.SetContact(time.Now())
		time.Sleep(time.Second)
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		got.want(t, "SyncAllowed>Stale", "Stale>SyncAllowed")
		if !f.hub.Gate("paused").Paused() || unknown.Paused() {
			t.Error("after the silence the gates do not have their last known state")
		}
	})
}

// The contact that ends a silence may come before the state that it brings.
func TestStaleOpensByStateOnly(t *testing.T) {
	obj := cluster()
	opts := syncgate.Options{StaleAfter: 5 * time.Minute}
	inBubble(t, opts, []any{obj, tu.ManagedCluster(ns, "noisy", "noisy")}, func(t *testing.T, f *fixture) {
		var got recorder
		f.gate.OnChange(got.change)
		time.Sleep(time.Hour)
		f.want(true, syncgate.Unknown, syncgate.ReasonStale)
		f.SetErr(errors.New("the list is under way"))
		f.SetContact(time.Now())
		time.Sleep(time.Minute)
		f.want(true, syncgate.Unknown, syncgate.ReasonStale)
		f.SetErr(nil)
		noisy := tu.ManagedCluster(ns, "noisy", "noisy")
		for range 20 { // a relist on its way through the handler
			f.SetContact(time.Now())
			next := tu.With(noisy, tu.Heartbeat(time.Now()))
			f.Update(noisy, next)
			noisy = next
			time.Sleep(50 * time.Millisecond)
			f.want(true, syncgate.Unknown, syncgate.ReasonStale)
		}
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		time.Sleep(time.Second)
		f.want(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		// The second change names the holder while the gate is still stale.
		got.want(t, "NotSynced>SyncAllowed", "SyncAllowed>Stale", "Stale>Stale", "Stale>SyncPaused")

		// Endless events do not keep the gate closed for ever.
		f.Update(nil, obj)
		time.Sleep(time.Hour)
		for range 200 {
			f.SetContact(time.Now())
			next := tu.With(noisy, tu.Heartbeat(time.Now()))
			f.Update(noisy, next)
			noisy = next
			time.Sleep(50 * time.Millisecond)
		}
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

// The handler of a large hub needs time for a relist.
func TestStaleHubWaitsByItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, syncgate.Options{StaleAfter: time.Minute})
		f.Add(cluster())
		for i := range 20_000 {
			f.Add(tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster-", i)))
		}
		f.sync()
		time.Sleep(time.Hour)
		f.SetContact(time.Now())
		time.Sleep(time.Second)
		f.want(true, syncgate.Unknown, syncgate.ReasonStale)
		time.Sleep(time.Second)
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

func TestStaleFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHub(t, syncgate.Options{StaleAfter: time.Minute})
		// The first line is logged after the sync.
		f.run(logTo(context.Background(), 9, func(string) {
			if !f.gate.Paused() {
				t.Error("a stale gate was open at its start")
			}
		}))
		f.Add(cluster())
		f.SetContact(time.Now().Add(-time.Hour))
		f.Sync()
		if err := f.hub.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.want(true, syncgate.Unknown, syncgate.ReasonStale)
	})
}

func TestContactInTheFuture(t *testing.T) {
	inBubble(t, syncgate.Options{StaleAfter: time.Minute}, []any{cluster()}, func(_ *testing.T, f *fixture) {
		f.SetContact(time.Now().AddDate(300, 0, 0))
		time.Sleep(time.Hour) // of a few checks
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

func TestBookmarksAreContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSyncedAgent(t, syncgate.Options{StaleAfter: 3 * time.Minute}, cluster())
		for range 10 {
			time.Sleep(2 * time.Minute)
			a.server.Bookmark()
			synctest.Wait()
			a.eventually(false, syncgate.ReasonSyncAllowed)
		}
		time.Sleep(3 * time.Minute)
		a.eventually(true, syncgate.ReasonStale)
		a.server.Bookmark()
		start := time.Now()
		a.eventually(false, syncgate.ReasonSyncAllowed)
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("open %v after the contact", took)
		}
	})
}
