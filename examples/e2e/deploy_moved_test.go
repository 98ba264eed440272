package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// movable is a cluster of a hub that can move from one API server to another.
type movable struct {
	*fleettest.Child
	at   atomic.Pointer[fleettest.Child] // where it is
	late movedLate                       // how the hub sees ManagedClusters
}

// runHub runs a hub of the cluster.
func (m *movable) runHub(f *fleettest.Fleet) {
	parent := fleettest.As("hub", f.Parent.Config())
	parent.Wrap(m.late.wrap)
	fleettest.Run(f, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{
			Parent: parent,
			Child: func(string, types.UID) (*rest.Config, error) {
				return fleettest.As("hub", m.at.Load().Config()), nil
			},
		})
	})
}

// A child can be restored elsewhere while it is paused, or be registered anew with
// another address: then all is brought to the new one, and the old one is left alone.
func TestChildMoves(t *testing.T) {
	f := fleettest.New(t, 2, syncgate.Push)
	for _, c := range f.Children {
		c.Unregister()
	}
	for i, test := range []struct {
		name string
		run  func(*testing.T, *fleettest.Fleet, *movable)
	}{
		{"WhilePaused", movedWhilePaused},
		{"RegisteredAnew", movedRegisteredAnew},
		{"RegisteredUnseen", movedRegisteredUnseen},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := f.In(t)
			m := &movable{Child: modesClusterOf(f.Children[0], 600+i).Child}
			m.TB = t
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
	m.Patch(goneReported, "status")
}

func movedWhilePaused(t *testing.T, f *fleettest.Fleet, m *movable) {
	first, second, app := f.Children[0], f.Children[1], fleettest.App
	m.register()
	m.runHub(f)
	want := map[string]string{"edited": "2"}
	wrote := []string{"PATCH edited"}
	m.Describe("edited", app("edited", "1"))
	m.Describe("deleted", app("deleted", "1"))
	for i := range 5 {
		name := fmt.Sprintf("untouched-%d", i)
		m.Describe(name, app(name, "1"))
		want[name], wrote = "1", append(wrote, "PATCH "+name)
	}
	images(first, fleettest.Soon, with(want, map[string]string{"edited": "1", "deleted": "1"}))
	modesWait(movedSettled)

	m.Pause()
	modesAwaitPaused(m.Child)
	alone := leave(first)
	before := len(second.Writes())
	m.Describe("edited", app("edited", "2"))
	m.DeleteDescription("deleted")
	parked(m.Child, "edited", "deleted")
	m.notParked(t, "untouched-0", "untouched-1", "untouched-2", "untouched-3", "untouched-4")
	m.at.Store(second)
	m.Resume()
	images(second, fleettest.Soon, want) // not only what was parked
	goneAwaitNone(m.Child, "deleted")
	second.Quiet()
	checkWritten(t, second, before, "moved", wrote...)
	second.Drift("untouched-1", "x")
	images(second, fleettest.Soon, want)
	first.Drift("untouched-1", "x")
	second.Quiet()
	alone.check(t, "moved away", "MODIFIED untouched-1")
	for name := range want {
		first.Remove(name)
	}

	// And back, with nothing parked that would ask for it.
	modesWait(movedSettled)
	m.Pause()
	modesAwaitPaused(m.Child)
	alone = leave(second)
	m.notParked(t, slices.Sorted(maps.Keys(want))...)
	m.at.Store(first)
	m.Resume()
	back := with(want, map[string]string{"deleted": "1"}) // nobody knows of that any more
	images(first, fleettest.Soon, back)
	first.Drift("edited", "x")
	images(first, fleettest.Soon, back)
	second.Drift("edited", "x")
	first.Quiet()
	alone.check(t, "moved back", "MODIFIED edited")
}

// movedSettled is how long a deployer may look again at what it has written itself.
const movedSettled = 5 * time.Second / 4

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

func movedRegisteredAnew(t *testing.T, f *fleettest.Fleet, m *movable) {
	first, second, app := f.Children[0], f.Children[1], fleettest.App
	m.register()
	m.runHub(f)
	m.Describe("one", app("one", "1"))
	m.Describe("two", app("two", "1"))
	phases(m.Child, "Success", "one", "two")
	first.Quiet()
	alone := leave(first)
	m.Unregister()
	modesWait(modesQuiet / 2) // until the hub has seen it, which nothing tells
	m.at.Store(second)
	m.register()
	want := map[string]string{"one": "1", "two": "1"}
	images(second, fleettest.Soon, want)
	second.Drift("two", "x")
	images(second, fleettest.Soon, want)
	first.Drift("two", "x")
	second.Quiet()
	alone.check(t, "registered with another address", "MODIFIED two")
}

// The hub takes a cluster for lost whose ManagedCluster was registered a moment ago. It
// must not let its Descriptions go, since that can't be undone.
func movedRegisteredUnseen(t *testing.T, f *fleettest.Fleet, m *movable) {
	m.register()
	m.runHub(f)
	m.Describe("one", fleettest.App("one", "1"))
	m.Describe("two", fleettest.App("two", "1"))
	phases(m.Child, "Success", "one", "two")
	// One is deleted while the child is away: that the hub lets it go tells that it
	// has seen the deletion of the ManagedCluster.
	f.Children[0].Intercept(func(*http.Request) int { return http.StatusServiceUnavailable })
	m.DeleteDescription("one")
	phases(m.Child, "Failure", "one")
	m.Unregister()
	goneAwaitNone(m.Child, "one")
	f.Children[0].Intercept(func(*http.Request) int { return 0 })

	release := m.late.hold()
	m.register()
	asked := m.late.lists()
	m.DeleteDescription("two")
	fleettest.Eventually(t, fleettest.Soon, func() bool { return m.late.lists() > asked }, func() string {
		return "the hub has not asked the server whether the cluster is lost"
	})
	modesWait(modesQuiet)
	if m.Description("two") == nil {
		t.Error("the hub has let a Description go whose cluster is registered")
	}
	release()
	goneAwaitNone(m.Child, "two")
	goneAwaitImages(f.Children[0], "seen", map[string]string{"two": ""})
}

// movedLate is a way to the parent on which what the watches of ManagedClusters tell
// can be held up.
type movedLate struct {
	mu     sync.Mutex
	asked  int           // how often they were listed
	behind chan struct{} // closed when it is over
}

func (l *movedLate) wrap(next http.RoundTripper) http.RoundTripper {
	return modesTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/managedclusters") {
			return answer, err
		}
		if r.URL.Query().Has("watch") {
			answer.Body = &movedBody{ReadCloser: answer.Body, late: l, ended: r.Context().Done()}
			return answer, nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked++
		return answer, nil
	})
}

func (l *movedLate) lists() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

func (l *movedLate) hold() (release func()) {
	behind := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.behind = behind
	return func() { close(behind) }
}

type movedBody struct {
	io.ReadCloser
	late  *movedLate
	ended <-chan struct{}
}

func (b *movedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late.mu.Lock()
	behind := b.late.behind
	b.late.mu.Unlock()
	if behind != nil {
		select {
		case <-behind:
		case <-b.ended:
		}
	}
	return n, err
}
