//go:build go1.25

package report_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// blockCallbacks makes the hub tell nobody of changes any more, once it has told of a
// resume, until the func returned is called.
func (f *fixture) blockCallbacks() (release func()) {
	f.Helper()
	f.stop()
	block := make(chan struct{})
	f.hub.OnChange(func(c syncgate.Change) {
		if c.Resumed() {
			<-block
		}
	})
	f.pass(time.Second)
	f.report(f.hub, report.Options{}) // its callback comes after that one
	return func() { close(block) }
}

// A callback of somebody else blocks, and holds bump no generation.
func TestHoldsWhileCallbacksBlock(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Held("ops", "x")), func(_ *testing.T, f *fixture) {
		defer f.blockCallbacks()()
		f.wants("child", "True Paused 1: held by ops (x); nothing is in flight")
		f.change("child", tu.Held("ops", "false"))
		f.wants("child", "False Syncing 1: nothing holds the cluster")
		end := f.operate()
		f.change("child", tu.Held("ops", "x"))
		f.wants("child", "False Draining 1: held by ops (x); operations still in flight: 1")
		end()
		f.wants("child", "True Paused 1: held by ops (x); nothing is in flight")
		f.wantEvents("Normal SyncPaused: child", "Normal SyncResumed: child", "Normal SyncPaused: child")
	})
}

// apart are gates of which the reporter hears by an informer of its own.
type apart struct {
	*syncgate.Hub
	informer cache.SharedIndexInformer
}

func (a apart) Informer() cache.SharedIndexInformer { return a.informer }

// The gate opens and closes later than the reporter hears of it, or the reporter
// hears of nothing at all.
func TestClosedGatesAreLookedAtAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		heard  bool
		within time.Duration
	}{"heard too early": {true, 2 * time.Second}, "not heard": {false, 11 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held, released := child(tu.Held("ops", "x")), child(tu.Held("ops", "false"))
				f := &fixture{T: t, server: tu.NewAPIServer(held), logger: klog.Background()}
				defer f.server.Close()
				source, ours := tu.NewSource(), tu.NewSource()
				var err error
				if f.hub, err = syncgate.NewHub(source, syncgate.Options{}); err != nil {
					t.Fatal(err)
				}
				f.gate = f.hub.Gate(id)
				defer start(context.Background(), t, f.hub.Run)()
				block := make(chan struct{})
				defer close(block)
				f.hub.OnChange(func(c syncgate.Change) {
					if c.Resumed() {
						<-block
					}
				})
				f.report(apart{f.hub, ours}, report.Options{})
				defer func() { f.stop() }()
				source.Add(held)
				ours.Add(held)
				source.Sync()
				ours.Sync()
				f.pass(5*time.Minute + 100*time.Millisecond)
				f.wants("child", "True Paused 1: held by ops (x); nothing is in flight")

				if tt.heard {
					ours.Update(held, released)
					ours.Update(released, held)
					f.pass(10 * time.Millisecond)
				}
				source.Update(held, released)
				end := f.operate()
				source.Update(released, held)
				f.pass(tt.within)
				f.wants("child", "False Draining 1: held by ops (x); operations still in flight: 1")
				end()
				f.wants("child", "True Paused 1: held by ops (x); nothing is in flight")
			})
		})
	}
}

// While the request waits, the hold goes.
func TestHoldIsReleasedBeforeTheRead(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.on(tu.Get, func() {
			newer := f.server.Get(ns, "child")
			tu.Released("ops")(newer.Object)
			f.server.Rewrite(newer) // without an event
		})
		f.change("child", tu.Held("ops", "x"))
		f.pass(time.Minute)
		f.wants("child", "")
		f.change("child", tu.Heartbeat(time.Now()))
		f.wants("child", "")
		f.wantEvents()
	})
}

// While the request waits, the gate opens by another ManagedCluster.
func TestGateOpensBeforeTheWrite(t *testing.T) {
	inBubble(t, report.Options{}, append(one(), tu.ManagedCluster(ns, "double", id)), func(_ *testing.T, f *fixture) {
		double := true
		f.server.OnRequest(func(r tu.Request) {
			if r.Verb == tu.Get && double {
				double = false
				f.server.Update(tu.With(f.server.Get(ns, "double"), tu.Released("ops")))
				time.Sleep(50 * time.Millisecond)
			}
		})
		f.change("double", tu.Held("ops", "x"))
		f.pass(time.Second)
		f.wants("child", "")
		f.wants("double", "")
		f.wantEvents()
	})
}

// Operations that end all the time keep no number from being written.
func TestDrainsWhileItIsWritten(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		end := f.operate()
		ending := make(chan struct{})
		go func() {
			_ = f.gate.Do(context.Background(), func(context.Context) error { <-ending; return nil })
		}()
		f.pass(0)
		f.on(tu.Get, func() {
			close(ending)
			time.Sleep(time.Millisecond)
		})
		f.change("child", tu.Paused(true))
		f.pass(time.Second)
		f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 1")
		f.wantRequests("", get, put)
		end()
	})
}

// middle is a client whose UpdateStatus is done by update, which may call next.
type middle struct {
	dynamic.Interface
	dynamic.ResourceInterface
	update func(obj *unstructured.Unstructured, next func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error)
}

func (m middle) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return middleResource{m.Interface.Resource(r), m}
}

type middleResource struct {
	dynamic.NamespaceableResourceInterface
	middle middle
}

func (m middleResource) Namespace(ns string) dynamic.ResourceInterface {
	m.middle.ResourceInterface = m.NamespaceableResourceInterface.Namespace(ns)
	return m.middle
}

func (m middle) UpdateStatus(ctx context.Context, obj *unstructured.Unstructured, opts metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	return m.update(obj, func() (*unstructured.Unstructured, error) { return m.ResourceInterface.UpdateStatus(ctx, obj, opts) })
}

// reportBy replaces the reporter by one whose writes go through update.
func (f *fixture) reportBy(update func(*unstructured.Unstructured, func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error)) {
	f.Helper()
	f.stop()
	r, err := report.New(middle{Interface: f.server.Client(), update: update}, f.hub, report.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.stop = start(klog.NewContext(context.Background(), f.logger), f.T, r.Run)
	f.pass(time.Second)
	f.requests()
}

// What we wrote is undone before we have the answer.
func TestUndoneBeforeTheAnswer(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		var writes atomic.Int64
		f.reportBy(func(_ *unstructured.Unstructured, next func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
			written, err := next()
			if n := writes.Add(1); n == 1 || n == 3 {
				f.server.Update(tu.With(f.server.Get(ns, "child"), withConditions()))
				time.Sleep(time.Millisecond)
			}
			return written, err
		})
		f.change("child", tu.Paused(true))
		f.pass(time.Second)
		f.wants("child", paused2)
		f.change("child", tu.Unpaused())
		f.pass(time.Second)
		f.wants("child", syncing3)
	})
}

// The server takes the status and drops what its schema lacks.
func TestCRDWithoutConditions(t *testing.T) {
	for name, prune := range map[string]func(object map[string]any){
		"all": func(object map[string]any) { unstructured.RemoveNestedField(object, "status", "conditions") },
		"one field": func(object map[string]any) {
			for _, c := range object["status"].(map[string]any)["conditions"].([]any) {
				delete(c.(condition), "observedGeneration")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
				f.reportBy(func(obj *unstructured.Unstructured, next func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
					prune(obj.Object)
					return next()
				})
				f.change("child", tu.Paused(true))
				f.pass(time.Hour)
				f.wantEvents()
				if n := len(f.requests(tu.UpdateStatus)); n != 13 {
					t.Errorf("writes in an hour = %d; want 13", n)
				}
				if logged := f.errorsLogged(); len(logged) != 1 || !strings.Contains(logged[0], "the CRD has no status.conditions") {
					t.Errorf("errors logged = %q; want one that tells of the CRD", logged)
				}
			})
		})
	}
}

func TestRefusedWhileItDrainsAndToggles(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized} {
		inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
			f.server.Fail(tu.Status(code).On(tu.Get))
			end := f.operate()
			f.change("child", tu.Paused(true))
			for range 10 {
				f.operateMore(t)
			}
			f.pass(time.Hour)
			if n := len(f.requests(tu.Get)); n != 13 {
				t.Errorf("%d: attempts in an hour of draining = %d; want 13", code, n)
			}
			for i := range 100 {
				f.change("child", tu.Paused(i%2 == 0))
			}
			if n := len(f.requests(tu.Get)); n < 1 || n > 4 {
				t.Errorf("%d: attempts in 20 s of toggling = %d; want one in 10 s", code, n)
			}
			if logged := f.errorsLogged(); len(logged) != 1 {
				t.Errorf("%d: errors logged = %q; want one", code, logged)
			}
			f.server.Heal()
			f.change("child", tu.Paused(true))
			f.pass(10 * time.Second)
			f.wants("child", "False Draining 103: held by spec.syncPaused; operations still in flight: 1")
			end()
			f.wants("child", "True Paused 103: held by spec.syncPaused; nothing is in flight")
		})
	}
}

// operateMore proves that nothing begins while the gate drains.
func (f *fixture) operateMore(t *testing.T) {
	t.Helper()
	f.operate0(syncgate.ErrPaused)()
	f.pass(time.Second)
}

// One object that is bad for ever hides nothing of the others.
func TestRefusalsOfOneObjectHideNothing(t *testing.T) {
	var objs []*unstructured.Unstructured
	for _, name := range []string{"bad", "worse"} {
		objs = append(objs, tu.ManagedCluster(ns, name, name, tu.Paused(true), func(object map[string]any) { object["status"] = "x" }))
	}
	for _, name := range []string{"child", "other", "third"} {
		objs = append(objs, tu.ManagedCluster(ns, name, "id-"+name))
	}
	inBubble(t, report.Options{}, objs, func(t *testing.T, f *fixture) {
		logged := func(n int, when string) {
			t.Helper()
			if got := f.errorsLogged(); len(got) != n {
				t.Errorf("errors logged %s = %q; want %d", when, got, n)
			}
		}
		logged(2, "for two that are bad")
		f.server.Fail(tu.Status(http.StatusForbidden).On(tu.UpdateStatus))
		f.change("child", tu.Paused(true))
		f.change("other", tu.Paused(true))
		logged(3, "for the missing right")

		// All that was refused is found right, or over.
		f.change("child", withConditions(own("True", "Paused", "held by spec.syncPaused; nothing is in flight", 2)))
		f.change("other", tu.Unpaused())
		f.pass(5 * time.Minute)
		f.change("third", tu.Paused(true))
		logged(4, "after the refusals had ended")
	})
}

// The gate goes by the spec of an unstructured object, so the label counts for nothing.
func TestLabelIsNoClusterID(t *testing.T) {
	var looks atomic.Int64
	count := func(*syncgate.Gate) bool { looks.Add(1); return true }
	stray := tu.ManagedCluster(ns, "stray", id, func(object map[string]any) { delete(object["spec"].(map[string]any), "clusterId") })
	inBubble(t, report.Options{Acknowledge: count}, append(one(), stray), func(t *testing.T, f *fixture) {
		looks.Store(0)
		f.pass(time.Hour)
		if n := looks.Load(); n != 0 {
			t.Errorf("looks at gates in an hour = %d; want none", n)
		}
		f.change("child", tu.Paused(true))
		f.wants("child", paused2)
		f.wants("stray", "")
		f.change("child", tu.ClusterID(""))
		f.requests()
		f.pass(time.Hour)
		f.wantRequests("for what has no cluster any more")
	})
}

// labelled is a ManagedCluster of a Go type without a field for the cluster ID.
type labelled struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              *struct {
		Paused bool `json:"syncPaused,omitempty"`
	} `json:"spec,omitempty"`
}

func TestLabelOfTypedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, server: tu.NewAPIServer(child(tu.Paused(true))), logger: klog.Background()}
		defer f.server.Close()
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer start(context.Background(), t, hub.Run)()
		f.report(hub, report.Options{})
		defer func() { f.stop() }()
		typed := &labelled{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "child", UID: "uid-child", Generation: 2,
			Labels: child().GetLabels(), Annotations: map[string]string{"other": "x"},
		}}
		typed.Spec = &struct {
			Paused bool `json:"syncPaused,omitempty"`
		}{true}
		nameless := &mcls{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stray", UID: "uid-stray", Generation: 1, Labels: child().GetLabels()}}
		source.Add(typed, nameless, (*unstructured.Unstructured)(nil))
		source.Sync()
		f.pass(time.Second)
		f.wants("child", paused2)
		f.wantRequests("", get, put, evt)
	})
}

// An Event that nobody answers does not keep the next condition for long.
func TestHangingEventsHoldUpLittle(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.server.Fail(tu.Hang.On(tu.CreateEvent))
		f.change("child", tu.Paused(true))
		f.change("child", tu.Unpaused())
		f.pass(time.Second)
		f.wants("child", syncing3)
	})
}

func TestHoldsOfManyKinds(t *testing.T) {
	inBubble(t, report.Options{}, append(one(tu.Held("ops", "x")), tu.ManagedCluster(ns, "double", id, tu.Paused(true), tu.Held("audit", "y"), tu.Held("ops", ""), tu.Held("gone", "false"))),
		func(_ *testing.T, f *fixture) {
			const want = "held by spec.syncPaused, audit (y), ops (x), ops"
			f.wants("child", fmt.Sprintf("True Paused 1: %s, see ManagedCluster %s/double; nothing is in flight", want, ns))
			f.wants("double", fmt.Sprintf("True Paused 2: %s; nothing is in flight", want))
			f.change("child", tu.Annotated(syncgate.HoldPrefix+"bad", true))
			f.wants("child", fmt.Sprintf("Unknown Malformed 1: ManagedCluster %s/child: annotation %sbad is true of type bool; remove it, or give it a text as value", ns, syncgate.HoldPrefix))
			f.change("child", tu.Held("bad", "false"), tu.Held("spec.syncPaused", ""))
			f.wants("double", "True Paused 2: held by spec.syncPaused, audit (y), ops (x), ops, spec.syncPaused; nothing is in flight")
		})
}
