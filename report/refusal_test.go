//go:build go1.25

package report_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
)

func TestConflictsAreTriedAgain(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		for _, code := range []int{http.StatusConflict, http.StatusInternalServerError, http.StatusTooManyRequests} {
			f.server.Fail(tu.Status(code).On(tu.UpdateStatus).Times(2))
		}
		f.server.Fail(tu.Refused.On(tu.Get).Times(2))
		f.change("child", tu.Paused(true))
		f.pass(time.Minute)
		f.wants("child", paused2)
		if n := len(f.requests(tu.UpdateStatus)); n != 7 {
			f.Errorf("writes = %d; want 7 for 6 that fail", n)
		}
		f.wantEvents("Normal SyncPaused: child")
	})
}

func TestRefusedWritesAreLoggedOnceAndTriedSlowly(t *testing.T) {
	noSubresource := tu.Status(http.StatusNotFound).On(tu.UpdateStatus)
	for name, tt := range map[string]struct {
		fault tu.Fault
		want  string
	}{
		"403 on the status":     {tu.Status(http.StatusForbidden).On(tu.UpdateStatus), "update on managedclusters/status"},
		"403 on get":            {tu.Status(http.StatusForbidden).On(tu.Get), "allow get on managedclusters"},
		"422":                   {tu.Status(http.StatusUnprocessableEntity).On(tu.UpdateStatus), "with its conditions"},
		"no status subresource": {noSubresource, "the CRD has no status subresource; add it"},
	} {
		t.Run(name, func(t *testing.T) {
			objs := append(one(), tu.ManagedCluster(ns, "other", "another"))
			inBubble(t, report.Options{}, objs, func(t *testing.T, f *fixture) {
				f.server.Fail(tt.fault)
				f.change("child", tu.Paused(true))
				f.change("other", tu.Paused(true))
				if !f.gate.Paused() {
					t.Error("the gate is open")
				}
				f.requests()
				f.pass(time.Hour)
				verb := tu.UpdateStatus
				if name == "403 on get" {
					verb = tu.Get
				}
				if n := len(f.requests(verb)); n != 2*15 {
					t.Errorf("attempts in an hour = %d; want 15 for each of two clusters", n)
				}
				if logged := f.errorsLogged(); len(logged) != 1 || !strings.Contains(logged[0], tt.want) {
					t.Errorf("errors logged = %q; want one with %q", logged, tt.want)
				}
				f.server.Heal()
				f.pass(5 * time.Minute)
				f.wants("child", paused2)
				f.wants("other", paused2)
				f.pass(time.Hour)
				f.requests()
				f.server.Fail(tt.fault)
				f.change("child", tu.Unpaused())
				f.server.Delete(ns, "child")
				f.pass(time.Hour)
				f.change("other", tu.Unpaused())
				if logged := f.errorsLogged(); len(logged) != 3 {
					t.Errorf("errors logged = %q; want one for each time that it began", logged)
				}
			})
		})
	}
}

func TestMalformedStatusIsLeftAlone(t *testing.T) {
	for name, status := range map[string]any{"text": "x", "conditions": map[string]any{"conditions": "x"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, report.Options{}, one(func(object map[string]any) { object["status"] = status }), func(t *testing.T, f *fixture) {
				f.change("child", tu.Paused(true))
				f.pass(time.Hour)
				if diff := cmp.Diff(status, f.server.Get(ns, "child").Object["status"]); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				if logged := f.errorsLogged(); len(logged) != 1 || !strings.Contains(logged[0], "correct it") {
					t.Errorf("errors logged = %q; want one with what to do", logged)
				}
			})
		})
	}
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
				if n := len(f.requests(tu.UpdateStatus)); n != 16 {
					t.Errorf("writes in an hour = %d; want 16", n)
				}
				if logged := f.errorsLogged(); len(logged) != 1 || !strings.Contains(logged[0], "the CRD has no status.conditions") {
					t.Errorf("errors logged = %q; want one about the CRD", logged)
				}
			})
		})
	}
}

func TestRefusedWhileItDrainsAndToggles(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized} {
		inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
			f.server.Fail(tu.Status(code).On(tu.Get))
			end, end2, end3 := f.operate(), f.operate(), f.operate()
			f.change("child", tu.Paused(true))
			for range 10 {
				f.refuses() // nothing begins while the gate drains
				f.pass(time.Second)
			}
			for _, end := range []func(){end2, end3} { // another number is no reason to try earlier
				end()
				f.pass(20 * time.Second)
			}
			f.pass(time.Hour)
			if n := len(f.requests(tu.Get)); n != 17 {
				t.Errorf("%d: attempts in an hour of draining = %d; want 17", code, n)
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
	r, err := report.New(middle{Interface: f.server.Client(), update: update}, f.hub, report.Options{Recorder: &f.recorded})
	if err != nil {
		f.Fatal(err)
	}
	f.stop = start(klog.NewContext(context.Background(), f.logger), f.T, r.Run)
	f.pass(time.Second)
	f.requests()
}

// A right that is missing for a moment, or credentials that are being rotated, delay an
// acknowledgement that somebody waits for by seconds, not by minutes.
func TestShortRefusalDelaysLittle(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized} {
		inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
			f.server.Fail(tu.Status(code).On(tu.Get))
			f.change("child", tu.Paused(true))
			f.pass(15 * time.Second)
			f.server.Heal()
			f.pass(20 * time.Second)
			f.wants("child", paused2)
		})
	}
	withParties(t, both, one(), func(_ *testing.T, p *parties) {
		p.server.Fail(tu.Status(http.StatusForbidden).On(tu.UpdateStatus))
		p.change("child", tu.Paused(true))
		p.pass(15 * time.Second)
		p.server.Heal()
		p.pass(20 * time.Second)
		p.wants("child", drainedBoth2)
	})
}
