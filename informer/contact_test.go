//go:build go1.25

package informer_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

func wantContact(t *testing.T, inf *informer.Informer, when string, want time.Time) {
	t.Helper()
	if got := inf.LastContact(); !got.Equal(want) {
		t.Errorf("LastContact() %s = %v; want %v", when, got, want)
	}
}

func TestLastContact(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		wantContact(t, inf, "before Run", time.Time{})

		server.Fail(testutil.Status(500))
		run(t, server, inf)
		wantContact(t, inf, "after a refusal", time.Time{})
		server.Heal()
		pass(2 * time.Second)
		wantHealthy(t, inf, "after the first list")
		contact := inf.LastContact()
		if time.Since(contact) > 2*time.Second {
			t.Errorf("LastContact() after the first list = %v; want that of the list", contact)
		}

		pass(20 * time.Second)
		wantContact(t, inf, "in silence", contact)
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"an addition", func() { server.Create(mine("b")) }},
			{"a change", func() { server.Update(mine("b", testutil.Paused(true))) }},
			{"a deletion", func() { server.Delete(namespace, "b") }},
			{"a bookmark", server.Bookmark},
			{"a bookmark of a watch that went on", func() {
				server.CutWatches()
				synctest.Wait()
				server.Bookmark()
			}},
		} {
			step.do()
			synctest.Wait()
			contact = time.Now()
			wantContact(t, inf, "after "+step.name, contact)
			pass(20 * time.Second)
			wantContact(t, inf, "in the silence after "+step.name, contact)
		}

		server.CutWatches()
		pass(20 * time.Second)
		wantContact(t, inf, "after a watch was merely opened", contact)

		server.Fail(testutil.Status(500))
		server.CutWatches()
		pass(time.Minute)
		wantContact(t, inf, "after failed requests", contact)
		server.Heal()
		pass(time.Minute)
		wantHealthy(t, inf, "after the outage")
		if got := inf.LastContact(); !got.After(contact) {
			t.Errorf("LastContact() after the outage = %v; want it later than %v", got, contact)
		}
	})
}

func TestContactIsNotMadeByErrorEvents(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		contact := inf.LastContact()
		pass(20 * time.Second)
		server.Fail(testutil.Refused)
		server.SendError(500)
		pass(20 * time.Second)
		wantContact(t, inf, "after an ERROR event", contact)
		wantErr(t, inf, "after an ERROR event", "refused")
	})
}

// A list is contact once its last page has come.
func TestPagesAreNoContact(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		if way == watchList {
			t.Skip("has no pages")
		}
		server := newServer(t)
		for i := range 1201 {
			server.Create(testutil.ManagedCluster("ns", "c"+strconv.Itoa(i), "id"))
		}
		inf, err := informer.ForHub(server.Client(), informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var contacts []time.Time
		server.OnRequest(func(r testutil.Request) {
			if r.Query.Has("continue") {
				contacts = append(contacts, inf.LastContact())
				if n := inf.Relists(); n != 0 {
					t.Errorf("Relists() at a later page = %d; want 0", n)
				}
			}
		})
		run(t, server, inf)
		if want := []time.Time{{}, {}}; !slices.Equal(contacts, want) {
			t.Errorf("LastContact() at the later pages = %v; want %v", contacts, want)
		}
		wantContact(t, inf, "after the last page", time.Now())
	})
}

// What was read is no longer followed until the relist is answered.
func TestErrDuringARelist(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		server.SendError(410)
		synctest.Wait()
		if err := inf.Err(); err == nil || !strings.Contains(err.Error(), "lists again") {
			t.Errorf("Err() before the relist = %v; want that the informer lists again", err)
		}
		pass(10 * time.Second)
		wantHealthy(t, inf, "after the relist")

		server.Fail(testutil.Hang.On(testutil.List, testutil.WatchList))
		server.SetSelectable(false) // the next watch is refused, so the informer lists again
		server.CutWatches()
		pass(10 * time.Second)
		wantErr(t, inf, "before the relist by label", "lists again")
	})
}

func TestRelists(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		var during []uint64 // as the handler gets each object
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { during = append(during, inf.Relists()) },
			UpdateFunc: func(any, any) { during = append(during, inf.Relists()) },
		}); err != nil {
			t.Fatal(err)
		}
		run(t, server, inf)
		pass(10 * time.Second)
		server.CutWatches() // a watch that starts again is no relist
		pass(10 * time.Second)
		server.Fail(testutil.Refused)
		server.SendError(410)
		synctest.Wait()
		server.Update(mine("own", testutil.Paused(true)))
		server.Heal()
		pass(5 * time.Minute)
		if want := []uint64{1, 2}; !slices.Equal(during, want) || inf.Relists() != 2 {
			t.Errorf("Relists() during events = %v, at last %d; want %v, 2", during, inf.Relists(), want)
		}
	})
}
