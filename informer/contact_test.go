//go:build go1.25

package informer_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

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
		heard := inf.LastContact()
		if time.Since(heard) > 2*time.Second {
			t.Errorf("LastContact() after the first list = %v; want that of the list", heard)
		}

		pass(20 * time.Second)
		wantContact(t, inf, "in silence", heard)
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
			heard = time.Now()
			wantContact(t, inf, "after "+step.name, heard)
			pass(20 * time.Second)
			wantContact(t, inf, "in the silence after "+step.name, heard)
		}

		server.CutWatches()
		pass(20 * time.Second)
		wantContact(t, inf, "after a watch was merely opened", heard)

		server.Fail(testutil.Status(500))
		server.CutWatches()
		pass(time.Minute)
		wantContact(t, inf, "after failed requests", heard)
		server.Heal()
		pass(time.Minute)
		wantHealthy(t, inf, "after the outage")
		if got := inf.LastContact(); !got.After(heard) {
			t.Errorf("LastContact() after the outage = %v; want it later than %v", got, heard)
		}
	})
}

func TestContactIsNotMadeByErrorEvents(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		heard := inf.LastContact()
		pass(20 * time.Second)
		server.Fail(testutil.Refused)
		server.SendError(500)
		pass(20 * time.Second)
		wantContact(t, inf, "after an ERROR event", heard)
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
			}
		})
		run(t, server, inf)
		if want := []time.Time{{}, {}}; !slices.Equal(contacts, want) {
			t.Errorf("LastContact() at the later pages = %v; want %v", contacts, want)
		}
		wantContact(t, inf, "after the last page", time.Now())
	})
}

func TestExpiredHistoryIsNoFault(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		server.SendError(410)
		synctest.Wait()
		wantHealthy(t, inf, "before the relist")
	})
}
