package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// movable is a cluster of a hub that can move from one API server to another.
type movable struct {
	*fleettest.Child
	at      atomic.Pointer[fleettest.Child] // where it is
	watches delayedWatches                  // of ManagedClusters, by the hub
}

// push runs a hub of the cluster.
func (m *movable) push(f *fleettest.Fleet) {
	parent := fleettest.As("hub", f.Parent.Config())
	parent.Wrap(m.watches.wrap)
	fleettest.Run(f, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{
			Parent: parent, Parties: []string{report.PartyHub},
			Child: func(string, types.UID) (*rest.Config, error) {
				return fleettest.As("hub", m.at.Load().Config()), nil
			},
		})
	})
}

// A child can be restored elsewhere while it is paused, or be registered again with
// another address: then all is deployed to the new one, and the old one is left alone.
func TestChildMoves(t *testing.T) {
	f := fleettest.New(t, 2, syncgate.Push)
	for _, c := range f.Children {
		c.Unregister()
	}
	for i, test := range []struct {
		name string
		run  func(*testing.T, *fleettest.Fleet, *movable)
	}{
		{"WhilePaused", testMovedWhilePaused},
		{"RegisteredAnew", testMovedRegisteredAnew},
		{"RegisteredUnseen", testMovedRegisteredUnseen},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := f.In(t)
			m := &movable{Child: clusterOn(t, f.Children[0], 600+i).Child}
			m.at.Store(f.Children[0])
			t.Cleanup(func() { // for the next one, once the hub has ended
				m.Unregister()
				for _, c := range f.Children {
					for app := range c.Images() {
						c.Remove(app)
					}
				}
			})
			test.run(t, f, m)
		})
	}
}

func (m *movable) register() {
	m.Helper()
	m.Register(syncgate.Push)
	m.ReportAppPusher(true)
}

func testMovedWhilePaused(t *testing.T, f *fleettest.Fleet, m *movable) {
	first, second, app := f.Children[0], f.Children[1], fleettest.App
	m.register()
	m.push(f)
	want := map[string]string{"edited": "2"}
	wrote := []string{"PATCH edited"}
	m.Describe("edited", app("edited", "1"))
	m.Describe("deleted", app("deleted", "1"))
	for i := range 5 {
		name := fmt.Sprintf("untouched-%d", i)
		m.Describe(name, app(name, "1"))
		want[name], wrote = "1", append(wrote, "PATCH "+name)
	}
	first.AwaitAllImages("at first", with(want, map[string]string{"edited": "1", "deleted": "1"}))
	first.AwaitRecheck()

	m.Pause()
	m.AwaitPaused()
	alone := leave(first)
	before := len(second.Writes())
	m.Describe("edited", app("edited", "2"))
	m.DeleteDescription("deleted")
	m.AwaitParked("edited", "deleted")
	m.notParked(t, "untouched-0", "untouched-1", "untouched-2", "untouched-3", "untouched-4")
	m.at.Store(second)
	m.Resume()
	second.AwaitAllImages("moved", want) // not only what was parked
	m.AwaitNoDescription("deleted")
	second.Quiet()
	checkWritten(t, second, before, "moved", wrote...)
	second.Drift("untouched-1", "x")
	second.AwaitAllImages("drifted", want)
	first.Drift("untouched-1", "x")
	second.Quiet()
	alone.check(t, "moved away", "MODIFIED untouched-1")
	for name := range want {
		first.Remove(name)
	}

	// And back, with nothing parked that would lead there.
	second.AwaitRecheck()
	m.Pause()
	m.AwaitPaused()
	alone = leave(second)
	m.notParked(t, slices.Sorted(maps.Keys(want))...)
	m.at.Store(first)
	m.Resume()
	back := with(want, map[string]string{"deleted": "1"}) // no Description has it
	first.AwaitAllImages("moved back", back)
	first.Drift("edited", "x")
	first.AwaitAllImages("drifted", back)
	second.Drift("edited", "x")
	first.Quiet()
	alone.check(t, "moved back", "MODIFIED edited")
}

func (m *movable) notParked(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if phase, reason := m.Phase(name); phase != "Success" {
			t.Errorf("Description %s is %s (%s); want it not parked, or it is deployed for that", name, phase, reason)
		}
	}
}

// with returns images with others added or in their place.
func with(images, others map[string]string) map[string]string {
	all := maps.Clone(images)
	maps.Copy(all, others)
	return all
}

func testMovedRegisteredAnew(t *testing.T, f *fleettest.Fleet, m *movable) {
	first, second, app := f.Children[0], f.Children[1], fleettest.App
	m.register()
	m.push(f)
	m.Describe("one", app("one", "1"))
	m.Describe("two", app("two", "1"))
	m.AwaitPhase("Success", "one", "two")
	first.AwaitRecheck()
	alone := leave(first)
	m.Unregister()
	awaitHubObserved(f)
	m.at.Store(second)
	m.register()
	want := map[string]string{"one": "1", "two": "1"}
	second.AwaitAllImages("registered again", want)
	second.Drift("two", "x")
	second.AwaitAllImages("drifted", want)
	first.Drift("two", "x")
	second.Quiet()
	alone.check(t, "registered with another address", "MODIFIED two")
}

// A ManagedCluster was registered again, and the hub has not observed that yet. It must not
// release the Descriptions of the cluster as those of a lost one: that can't be undone.
func testMovedRegisteredUnseen(t *testing.T, f *fleettest.Fleet, m *movable) {
	m.register()
	m.push(f)
	m.Describe("one", fleettest.App("one", "1"))
	m.Describe("two", fleettest.App("two", "1"))
	m.AwaitPhase("Success", "one", "two")
	// One is deleted while the child is away: once the hub releases it, it has observed
	// the deletion of the ManagedCluster.
	f.Children[0].Intercept(func(*http.Request) int { return http.StatusServiceUnavailable })
	m.DeleteDescription("one")
	m.AwaitPhase("Failure", "one")
	m.Unregister()
	m.AwaitNoDescription("one")
	f.Children[0].Intercept(func(*http.Request) int { return 0 })

	release := m.watches.hold()
	m.register()
	lists := m.watches.lists()
	m.DeleteDescription("two")
	fleettest.Eventually(t, fleettest.Soon, func() bool { return m.watches.lists() > lists }, func() string {
		return "the hub has not read from the server whether the cluster is lost"
	})
	idle()
	if m.Description("two") == nil {
		t.Error("the hub has released a Description whose cluster is registered")
	}
	release()
	m.AwaitNoDescription("two")
	f.Children[0].AwaitImages("observed", map[string]string{"two": ""})
}
