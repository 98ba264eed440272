//go:build go1.25

package hold_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/hold"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	ns = "clusternet-abcde"
	id = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
)

var child = types.NamespacedName{Namespace: ns, Name: "child"}

func TestMain(m *testing.M) { tu.Main(m) }

// fixture is a server with a ManagedCluster, and the gate of its agent, which reports.
type fixture struct {
	*testing.T
	server *tu.APIServer
	gate   *syncgate.Gate
}

func inBubble(t *testing.T, test func(t *testing.T, f *fixture), opts ...tu.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := tu.NewAPIServer(tu.ManagedCluster(ns, "child", id, opts...))
		t.Cleanup(server.Close)
		gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		reporter, err := report.New(server.Client(), gate, report.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- gate.Run(ctx) }()
		go func() { ended <- reporter.Run(ctx) }()
		if err := gate.WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
		test(t, &fixture{t, server, gate})
		server.Heal()
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("Run = %v", err)
			}
		}
	})
}

// hold returns the hold of an owner.
func (f *fixture) hold(owner string) *hold.Hold {
	f.Helper()
	h, err := hold.New(f.server.Client(), child, owner)
	if err != nil {
		f.Fatal(err)
	}
	return h
}

func (f *fixture) object() *unstructured.Unstructured { return f.server.Get(ns, "child") }

func (f *fixture) annotations() map[string]string { return f.object().GetAnnotations() }

func TestDo(t *testing.T) {
	for _, owner := range []string{"backup", syncgate.SyncPausedField} {
		t.Run(owner, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				running, finish := make(chan struct{}), make(chan struct{})
				ended := make(chan error, 1)
				go func() {
					ended <- f.gate.Do(t.Context(), func(context.Context) error { close(running); <-finish; return nil })
				}()
				<-running
				called := false
				done := make(chan error, 1)
				go func() {
					done <- f.hold(owner).Do(t.Context(), "nightly", func(context.Context) error {
						called = true
						if !f.gate.Paused() || f.gate.InFlight() != 0 || !report.Acknowledged(f.object()) {
							t.Errorf("Paused() = %v, InFlight() = %d; want a pause that is in effect", f.gate.Paused(), f.gate.InFlight())
						}
						return nil
					})
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				if called {
					t.Error("called while an operation is in flight")
				}
				close(finish)
				if err := <-done; err != nil || !called {
					t.Errorf("Do = %v, called %v; want nil, true", err, called)
				}
				if err := f.gate.WaitOpen(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The holds of others stay, and their True is no answer for ours.
func TestOthersHold(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		time.Sleep(time.Second)
		if !report.Acknowledged(f.object()) {
			t.Fatal("the hold of ops is not acknowledged")
		}
		f.server.Fail(tu.Status(http.StatusInternalServerError).On(tu.UpdateStatus)) // no acknowledgement for now
		h := f.hold("backup")
		if err := h.Set(t.Context(), "nightly"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := h.Wait(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "held by ops (x)") {
			t.Errorf("Wait = %v; want the end of its context, and what the condition says", err)
		}
		f.server.Heal()
		if err := h.Wait(t.Context()); err != nil {
			t.Errorf("Wait = %v", err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Errorf("Release = %v", err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Errorf("second Release = %v; want no error", err)
		}
		if diff := cmp.Diff(map[string]string{syncgate.HoldPrefix + "ops": "x"}, f.annotations()); diff != "" {
			t.Errorf("annotations (-want +got):\n%s", diff)
		}
		if !f.gate.Paused() {
			t.Error("the gate is open; want it closed, since ops holds the cluster")
		}
	}, tu.Held("ops", "x"))
}

func TestWaitEndsEarly(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(f *fixture)
		want   string
	}{
		"released": {func(f *fixture) { f.server.Update(tu.With(f.object(), tu.Released("backup"))) }, "somebody has released it"},
		"false":    {func(f *fixture) { f.server.Update(tu.With(f.object(), tu.Held("backup", "false"))) }, "somebody has released it"},
		"deleted":  {func(f *fixture) { f.server.Delete(ns, "child") }, "was deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.server.Fail(tu.Status(http.StatusInternalServerError).On(tu.UpdateStatus))
				h := f.hold("backup")
				if err := h.Set(t.Context(), "nightly"); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- h.Wait(t.Context()) }()
				time.Sleep(time.Second)
				tt.change(f)
				if err := <-done; err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Wait = %v; want an error with %q", err, tt.want)
				}
			})
		})
	}
}

// The hold is released whatever happens.
func TestDoReleases(t *testing.T) {
	errWork := errors.New("the disk is full")
	for name, fn := range map[string]func(cancel context.CancelFunc) error{
		"error":     func(context.CancelFunc) error { return errWork },
		"panic":     func(context.CancelFunc) error { panic(errWork) },
		"goexit":    func(context.CancelFunc) error { runtime.Goexit(); return nil },
		"cancelled": func(cancel context.CancelFunc) error { cancel(); return errWork },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					if err := f.hold("backup").Do(ctx, "nightly", func(context.Context) error { return fn(cancel) }); !errors.Is(err, errWork) {
						t.Errorf("Do = %v; want the error of fn", err)
					}
				}()
				<-ended
				if got := f.annotations(); len(got) != 0 {
					t.Errorf("annotations = %v; want none", got)
				}
			})
		})
	}
}

// A request whose answer is lost may have been carried out.
func TestDoReleasesAHoldThatMayBeSet(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.server.Fail(tu.Hang.On(tu.Patch).Times(1))
		err := f.hold("backup").Do(ctx, "nightly", func(context.Context) error { t.Error("called"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do = %v; want the end of its context", err)
		}
		patches := 0
		for _, r := range f.server.Requests() {
			if r.Verb == tu.Patch {
				patches++
			}
		}
		if patches != 2 {
			t.Errorf("patches = %d; want the hold and its release", patches)
		}
	})
}

func TestErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.server.DropFlag()
		flag := f.hold(syncgate.SyncPausedField)
		if err := flag.Set(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "the CRD does not have the field") {
			t.Errorf("Set = %v; want an error about the CRD", err)
		}
		if err := flag.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "the hold is not set") {
			t.Errorf("Wait = %v; want an error at once", err)
		}
		if err := f.hold("backup").Set(t.Context(), "false"); err == nil || !strings.Contains(err.Error(), "give another one") {
			t.Errorf("Set = %v; want an error about the reason", err)
		}
		f.server.Fail(tu.Status(http.StatusForbidden).On(tu.Patch))
		if err := f.hold("backup").Do(t.Context(), "x", nil); err == nil || !strings.Contains(err.Error(), "hold ManagedCluster "+ns+"/child for backup") {
			t.Errorf("Do = %v; want an error that says what was tried", err)
		}
		f.server.Heal()
		f.server.Delete(ns, "child")
		if err := f.hold("backup").Set(t.Context(), "x"); err == nil {
			t.Error("Set = nil for what does not exist")
		}
		if err := f.hold("backup").Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no such ManagedCluster") {
			t.Errorf("Wait = %v; want an error at once", err)
		}
	})
}

func TestNewRefusesBadInput(t *testing.T) {
	server := tu.NewAPIServer()
	defer server.Close()
	for name, tt := range map[string]struct {
		client  dynamic.Interface
		cluster types.NamespacedName
		owner   string
		want    string
	}{
		"no client":    {nil, child, "backup", "client is nil"},
		"nil client":   {(*dynamic.DynamicClient)(nil), child, "backup", "client is nil"},
		"no namespace": {server.Client(), types.NamespacedName{Name: "child"}, "backup", "pass its namespace and name"},
		"no name":      {server.Client(), types.NamespacedName{Namespace: ns}, "backup", "pass its namespace and name"},
		"no owner":     {server.Client(), child, "", "use another name"},
		"a bad owner":  {server.Client(), child, "a b", "use another name"},
		"a long owner": {server.Client(), child, strings.Repeat("x", 64), "use another name"},
	} {
		if _, err := hold.New(tt.client, tt.cluster, tt.owner); err == nil || !strings.HasPrefix(err.Error(), "hold: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: New = %v; want an error with %q", name, err, tt.want)
		}
	}
}
