//go:build go1.25

package syncgate_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// A cluster that is held at each moment on the server is not opened by events that wait
// in the informer, in whatever order client-go would pass them on.
func TestWaitingEventsNeverOpenInBetween(t *testing.T) {
	held := tu.Held("x", "why")
	for name, round := range map[string]func(send func(watch.EventType, string, ...tu.Option)){
		"the hold moves between two": func(send func(watch.EventType, string, ...tu.Option)) {
			send(watch.Modified, "b", held)
			send(watch.Modified, "a")
			send(watch.Modified, "a", held)
			send(watch.Modified, "b")
		},
		"a new one is held before the only one is released": func(send func(watch.EventType, string, ...tu.Option)) {
			send(watch.Deleted, "b")
			send(watch.Modified, "a", held, tu.UID("heartbeat"))
			send(watch.Added, "b", held)
			send(watch.Modified, "a")
			send(watch.Modified, "a", held)
		},
		"a new one is held before the only one is deleted": func(send func(watch.EventType, string, ...tu.Option)) {
			send(watch.Deleted, "b")
			send(watch.Added, "b", held)
			send(watch.Modified, "a")
			send(watch.Deleted, "a")
			send(watch.Added, "a", held)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const rounds = 2000
			stream := tu.NewStream(10 * rounds)
			inf, err := informer.ForHub(stream, informer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			hub, err := syncgate.NewHub(inf, syncgate.Options{})
			if err != nil {
				t.Fatal(err)
			}
			stop := start(context.Background(), t, hub.Run)
			defer stop()
			if err := hub.WaitForSync(patience(t)); err != nil {
				t.Fatal(err)
			}
			send := func(event watch.EventType, name string, opts ...tu.Option) {
				stream.Send(event, tu.ManagedCluster(ns, name, id, opts...))
			}
			send(watch.Added, "a", held)
			send(watch.Added, "b")
			for range rounds {
				round(send)
			}
			begin := time.Now()
			send(watch.Deleted, "b")
			send(watch.Modified, "a") // the release at the end opens
			if err := hub.Gate(id).WaitOpen(patience(t)); err != nil {
				t.Fatal(err)
			}
			t.Logf("open %v after the last event was sent", time.Since(begin))
			ctx := patience(t)
			for ctx.Err() == nil && (hub.Gate(id).Paused() || len(hub.Gate(id).Objects()) != 1) {
				time.Sleep(time.Millisecond) // until all is handled, if it opened too early
			}
			if n := hub.Gate(id).Stats().Resumes; n != 1 {
				t.Errorf("the gate opened %d times; want 1", n)
			}
		})
	}
}
