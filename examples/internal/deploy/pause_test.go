package deploy

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

const owned = `"manifestStatuses":[
	{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"edited"},
	{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"removed"}]`

// A pause can come within any request. The gate is drained only when that request has ended, and
// none follows.
func TestPauseWithinAnyRequest(t *testing.T) {
	for _, test := range []struct {
		name, metadata, phase string
		want                  map[string]string // in the child at the end
		requests              []string
	}{
		{"edited", "", phaseSuccess, map[string]string{"edited": "2", "new": "2"}, []string{
			"GET kinds", "GET edited", "DRYRUN edited", "GET new", "PATCH edited", "PATCH new", "GET removed", "DELETE removed", "LIST", "WATCH",
		}},
		{"deleted", `"deletionTimestamp":"2026-01-01T00:00:00Z",`, "released", map[string]string{}, []string{
			"GET kinds", "GET edited", "DELETE edited", "GET removed", "DELETE removed", "LIST", "WATCH",
		}},
	} {
		for _, request := range test.requests {
			t.Run(test.name+"/"+strings.ReplaceAll(request, " ", "-"), func(t *testing.T) {
				child := newChildStub(t)
				child.put("edited", "1")
				child.put("removed", "1")
				ready, paused := make(chan *deployment, 1), make(chan struct{})
				var once sync.Once
				child.onRequest(func(got string) {
					if got != request {
						return
					}
					once.Do(func() {
						d := <-ready
						d.setPaused(true)
						if d.gate.InFlight() == 0 {
							t.Errorf("the gate is drained within %s", request)
						}
						close(paused)
					})
				})
				d := deployTo(t, child, of(t, test.metadata+`"finalizers":["`+Finalizer+`"]`,
					`"deployer":"Generic",`+encoded(configMap("edited", "2"), configMap("new", "2")), owned))
				ready <- d
				select {
				case <-paused:
				case <-d.ctx.Done():
					t.Fatalf("%s was not sent, but %q", request, child.since(0))
				}
				n := d.awaitDrained()
				d.await("the Description", func() bool { return slices.Contains([]string{phasePending, test.phase}, d.phase()) })
				if got := child.since(n); len(got) > 0 {
					t.Errorf("paused within %s: the child was sent %q after the gate was drained; want nothing", request, got)
				}
				d.setPaused(false)
				d.await("the Description after the resume", func() bool { return d.phase() == test.phase })
				if got := child.values(); !maps.Equal(got, test.want) {
					t.Errorf("at the end the child has %v; want %v", got, test.want)
				}
			})
		}
	}
}

// A watch stays open in a pause. One that ends in it begins again on resume.
func TestWatchEndsInPause(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child, of(t, "", `"deployer":"Generic",`+encoded(configMap("edited", "1")), ""))
	d.await("the Description", func() bool { return d.phase() == phaseSuccess })
	d.await("an open watch", func() bool {
		child.mu.Lock()
		defer child.mu.Unlock()
		return len(child.watches) > 0
	})
	d.setPaused(true)
	n := d.awaitDrained()
	refused := d.gate.Stats().Refused
	child.endWatches()
	d.await("the end of the watch", func() bool { return d.gate.Stats().Refused > refused || len(child.since(n)) > 0 })
	if got := child.since(n); len(got) > 0 {
		t.Errorf("the watch has ended in the pause: the child was sent %q; want nothing until the resume", got)
	}
	child.put("edited", "by somebody")
	d.setPaused(false)
	d.await("the repair of what has changed in the pause", func() bool { return child.values()["edited"] == "1" })
}

// What was decided before a pause is not done after it, also when another Description has
// been deployed since the resume.
func TestPauseWithinAPrune(t *testing.T) {
	child := newChildStub(t)
	child.put("removed", "1")
	ready := make(chan *deployment, 1)
	var once sync.Once
	child.onRequest(func(request string) {
		if request != "GET removed" {
			return
		}
		once.Do(func() {
			d := <-ready
			d.setPaused(true)
			d.edit("web", configMap("kept", "1"), configMap("removed", "1"))
			d.setPaused(false)
			d.create("other", configMap("other", "1"))
			d.await("the other Description", func() bool { return d.phaseOf("other") == phaseSuccess })
		})
	})
	d := deployTo(t, child, of(t, `"finalizers":["`+Finalizer+`"]`, `"deployer":"Generic",`+encoded(configMap("kept", "1")), owned))
	ready <- d
	want := map[string]string{"kept": "1", "removed": "1", "other": "1"}
	d.await("the Description", func() bool { return maps.Equal(child.values(), want) && d.phase() == phaseSuccess })
	if got := child.since(0); slices.Contains(got, "DELETE removed") {
		t.Errorf("the child was sent %q; want what was put back during the pause not to be deleted", got)
	}
}

// A parent that does not answer does not keep a pause from being acknowledged.
func TestPauseWhileTheParentHangs(t *testing.T) {
	child := newChildStub(t)
	hangs, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d := deployTo(t, child)
	d.beforePatch.Store(func() { once.Do(func() { close(hangs); <-answer }) })
	d.create("web", configMap("new", "1"))
	select {
	case <-hangs:
	case <-d.ctx.Done():
		t.Fatal("nothing was written to the parent")
	}
	d.setPaused(true)
	n := d.awaitDrained()
	close(answer)
	d.await("the parked Description", func() bool { return d.phase() == phasePending })
	if got := child.since(n); len(got) > 0 {
		t.Errorf("the child was sent %q after the gate was drained; want nothing", got)
	}
	d.setPaused(false)
	d.await("the Description", func() bool { return d.phase() == phaseSuccess && child.values()["new"] == "1" })
}
