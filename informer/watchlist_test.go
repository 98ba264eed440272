//go:build go1.25

package informer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusternet/syncgate/informer"
)

func TestWatchListWithoutItsBookmark(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		if way != watchList {
			t.Skip("of a WatchList")
		}
		server := newServer(t) // silent from the start
		server.WithholdInitialBookmark(true)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		wantErr(t, inf, "while the bookmark is awaited", "bookmark")
		wantContact(t, inf, "while the bookmark is awaited", time.Time{})

		pass(9 * time.Second)
		wantErr(t, inf, "after nine seconds", "bookmark")
		wantWire(t, server, "in nine seconds", []string{"watchlist" + byField})
		pass(time.Second)
		wantHealthy(t, inf, "after ten seconds")
		if n := server.Watches(); n != 1 {
			t.Errorf("watches open after ten seconds = %d; want 1", n)
		}
		wantWire(t, server, "after ten seconds", listWatch.read(byField))

		// Later on, nothing waits for that bookmark again.
		pass(10 * time.Second)
		server.SendError(410)
		pass(2 * time.Second)
		wantHealthy(t, inf, "after a relist")
		wantWire(t, server, "of a relist", listWatch.read(byField))
	})
}

func TestSlowWatchListIsWaitedFor(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		if way != watchList {
			t.Skip("of a WatchList")
		}
		server := newServer(t)
		server.WithholdInitialBookmark(true)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		for _, name := range []string{"a", "b", "c", "d"} {
			pass(9 * time.Second)
			server.Create(mine(name))
			synctest.Wait()
			// What ends a silence must be a whole state.
			wantContact(t, inf, "at the initial event "+name, time.Time{})
			wantErr(t, inf, "at the initial event "+name, "bookmark")
		}
		pass(9 * time.Second)
		server.WithholdInitialBookmark(false)
		synctest.Wait()
		wantHealthy(t, inf, "after the bookmark")
		wantContact(t, inf, "after the bookmark", time.Now())
		wantStore(t, inf, "after the bookmark", "a", "b", "c", "d")
		pass(time.Minute)
		wantWire(t, server, "in all", []string{"watchlist" + byField})
	})
}
