//go:build go1.25

package syncgate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check a hub: the gates that it has, the informer that it runs, and that
// it logs without a lock.

func TestHubGates(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster(), tu.ManagedCluster("other", "x", "other")}, func(t *testing.T, f *fixture) {
		f.hub.Gate("unregistered")
		var ids []string
		for g := range f.hub.Gates() {
			ids = append(ids, string(g.ClusterID()))
		}
		slices.Sort(ids)
		if diff := cmp.Diff([]string{id, "other", "unregistered"}, ids); diff != "" {
			t.Errorf("Gates() (-want +got):\n%s", diff)
		}
		if g, ok := f.hub.GateOf(ns, "child"); !ok || g != f.gate {
			t.Errorf("GateOf = %v, %v; want the gate of its cluster", g, ok)
		}
		if g, ok := f.hub.GateOf(ns, "nobody"); ok || g != nil {
			t.Errorf("GateOf = %v, %v; want nil, false", g, ok)
		}
		if f.hub.Name() == f.gate.Name() || !strings.Contains(f.gate.Name(), id) {
			t.Errorf("Name() = %q and %q; want different names", f.hub.Name(), f.gate.Name())
		}
		if got := f.hub.Gate("a/b {c}").Name(); got != "syncgate-a%2Fb%20%7Bc%7D" {
			t.Errorf("Name() = %q; want what can be a part of a URL", got)
		}
	})
}

// A hub runs an informer.Informer unless it runs already.
func TestHubRunsItsInformer(t *testing.T) {
	for _, runs := range []bool{false, true} {
		t.Run(fmt.Sprintf("runs already: %v", runs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := tu.NewAPIServer(cluster(), tu.ManagedCluster("other", "child", "other", tu.Paused(true)))
				t.Cleanup(server.Close)
				inf, err := informer.ForHub(server.Client(), informer.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if runs {
					start(context.Background(), t, func(ctx context.Context) error { inf.Run(ctx.Done()); return nil })
					synctest.Wait()
				}
				hub, err := syncgate.NewHub(inf, syncgate.Options{StaleAfter: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				start(context.Background(), t, hub.Run)
				if err := hub.WaitForSync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if hub.Gate(id).Paused() || !hub.Gate("other").Paused() {
					t.Errorf("Paused() = %v and %v; want false and true", hub.Gate(id).Paused(), hub.Gate("other").Paused())
				}
				if err := hub.Check(nil); err != nil {
					t.Errorf("Check() = %v", err)
				}
			})
		})
	}
}

// Hubs that follow one informer end apart if the informer is run by itself. Otherwise it
// ends with the first hub.
func TestHubsThatShareAnInformer(t *testing.T) {
	for _, runs := range []bool{false, true} {
		t.Run(fmt.Sprintf("runs already: %v", runs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := tu.NewAPIServer(cluster())
				t.Cleanup(server.Close)
				inf, err := informer.ForHub(server.Client(), informer.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if runs {
					start(context.Background(), t, func(ctx context.Context) error { inf.RunWithContext(ctx); return nil })
					synctest.Wait()
				}
				var hubs [2]*syncgate.Hub
				var ends [2]context.CancelFunc
				var ended [2]chan error
				for i := range hubs {
					if hubs[i], err = syncgate.NewHub(inf, syncgate.Options{}); err != nil {
						t.Fatal(err)
					}
					var ctx context.Context
					ctx, ends[i] = context.WithCancel(context.Background())
					defer ends[i]()
					ended[i] = make(chan error, 1)
					go func() { ended[i] <- hubs[i].Run(ctx) }()
					if err := hubs[i].WaitForSync(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				ends[0]()
				if err := <-ended[0]; err != nil {
					t.Errorf("Run of the first hub = %v; want nil", err)
				}
				time.Sleep(time.Minute)
				if open := !hubs[1].Gate(id).Paused(); open != runs {
					t.Errorf("the gate of the second hub is open: %t; want %t", open, runs)
				}
				ends[1]()
				if err := <-ended[1]; (err == nil) != runs {
					t.Errorf("Run of the second hub = %v; want an error: %t", err, !runs)
				}
			})
		})
	}
}

// A logger may block and may call the hub.
func TestLogsHoldNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHub(t, syncgate.Options{})
		var logged atomic.Int64 // Run and the goroutine of Update log
		f.run(logTo(context.Background(), 9, func(string) {
			logged.Add(1)
			_ = f.hub.Gate("made in a log")
			_ = f.hub.Check(nil)
		}))
		obj := cluster()
		f.Add(obj)
		f.sync()
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		f.stop()
		if n := logged.Load(); n < 2 {
			t.Errorf("%d lines were logged; want the sync and the pause", n)
		}
	})
}
