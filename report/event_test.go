//go:build go1.25

package report_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// The modes are recorded, once for each change.
func TestModeEvents(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		var watches sync.WaitGroup
		for _, recorder := range []record.EventRecorder{&f.recorded, nil} {
			watches.Go(func() {
				if err := f.gate.WatchMode(ctx, syncgate.Pull, false, report.ModeEvents(recorder, f.gate)); err != nil {
					t.Errorf("WatchMode = %v", err)
				}
			})
		}
		mode := func(mode string) tu.Option {
			return func(object map[string]any) { object["spec"].(map[string]any)["syncMode"] = mode }
		}
		f.change("child", mode("Pull"))
		before := len(f.recorded.all())
		f.change("child", mode("Push"))
		f.change("child", tu.Heartbeat(time.Now()))
		f.change("child", mode("Pull"))
		got := brief(f.recorded.all()[before:])
		if diff := cmp.Diff([]string{"Warning SyncModeMismatch: child", "Normal SyncModeFits: child"}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		cancel()
		watches.Wait()
	})
}

func TestNoEventsWithoutARecorder(t *testing.T) {
	for name, recorder := range map[string]record.EventRecorder{"nil": nil, "nil pointer": (*record.FakeRecorder)(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := tu.NewAPIServer(child(tu.Paused(true)))
				f := &fixture{T: t, server: server, logger: klog.Background()}
				gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
				if err != nil {
					t.Fatal(err)
				}
				reporter, err := report.New(server.Client(), gate, report.Options{Recorder: recorder})
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				defer start(context.Background(), t, gate.Run)()
				defer start(context.Background(), t, reporter.Run)()
				f.pass(time.Second)
				f.wants("child", paused2)
			})
		})
	}
}

// broadcast replaces the reporter by one whose recorder is client-go's, with a sink
// on the server.
func (f *fixture) broadcast() {
	f.Helper()
	f.stop()
	client, err := typedcorev1.NewForConfig(f.server.Config())
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{})) // logs nothing
	f.Cleanup(cancel)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	recorder := broadcaster.NewRecorder(k8sruntime.NewScheme(), corev1.EventSource{Component: "agent"})
	f.report(f.hub, report.Options{Recorder: recorder})
}

// What arrives at the server by client-go's recorder is a valid Event.
func TestRecorder(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
		f.broadcast()
		f.change("child", tu.Paused(true))
		held := f.wants("child", paused2)
		f.change("child", tu.Unpaused())
		f.pass(time.Second)
		var reasons []any
		for _, e := range f.server.Events() {
			reasons = append(reasons, e.Object["reason"])
		}
		if diff := cmp.Diff([]any{"SyncPaused", "SyncResumed"}, reasons); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
		event := f.server.Events()[0]
		at, _ := time.Parse(time.RFC3339, event.Object["firstTimestamp"].(string))
		if at.IsZero() || event.Object["message"] != held["message"] || event.Object["reportingComponent"] != "agent" ||
			event.GetNamespace() != ns || !strings.HasPrefix(event.GetName(), "child.") {
			t.Errorf("event = %v; want the time, the message, the component, and a name", event)
		}
		want := map[string]any{"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "namespace": ns, "name": "child", "uid": "uid-child"}
		if diff := cmp.Diff(want, event.Object["involvedObject"]); diff != "" {
			t.Errorf("involvedObject (-want +got):\n%s", diff)
		}
	})
}

// client-go makes the name of an Event from the name of its object, which may be longer
// than the rest leaves room for.
func TestEventsOfLongNames(t *testing.T) {
	long := strings.Repeat("a", 214) + "." + strings.Repeat("e", 30) // cut off after the dot
	names := []string{strings.Repeat("b", 236), strings.Repeat("c", 237), strings.Repeat("d", 250) + ".d1", long + "1", long + "2"}
	var objs []*unstructured.Unstructured
	for i, name := range names {
		objs = append(objs, tu.ManagedCluster(ns, name, fmt.Sprint("id-", i)))
	}
	inBubble(t, report.Options{}, objs, func(t *testing.T, f *fixture) {
		f.broadcast()
		for _, name := range names {
			f.change(name, tu.Paused(true))
		}
		f.pass(time.Second)
		events := f.server.Events()
		if len(events) != len(names) {
			t.Fatalf("events = %d; want one of each of %d", len(events), len(names))
		}
		objects := map[any]bool{}
		for _, e := range events {
			if problems := validation.IsDNS1123Subdomain(e.GetName()); len(problems) > 0 {
				t.Errorf("the name of an Event is %q: %v", e.GetName(), problems)
			}
			objects[e.Object["involvedObject"].(map[string]any)["name"]] = true
			if message := e.Object["message"].(string); !objects[names[0]] && !strings.Contains(message, "ManagedCluster "+ns+"/") {
				t.Errorf("message = %q; want the name of the ManagedCluster in it", message)
			}
		}
		if len(objects) != len(names) || !objects[names[0]] {
			t.Errorf("objects of Events = %v; want one for each name, and the short one as it is", objects)
		}
	})
}

// A server without the core API, without the right to create events, or that does not
// answer delays no condition.
func TestEventsDelayNothing(t *testing.T) {
	for _, fault := range []tu.Fault{tu.Status(http.StatusNotFound), tu.Status(http.StatusForbidden), tu.Refused, tu.Hang} {
		inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
			f.broadcast()
			f.server.Fail(fault.On(tu.CreateEvent))
			f.change("child", tu.Paused(true))
			f.wants("child", paused2)
			f.wantRequests("for the pause", get, put)
			f.change("child", tu.Unpaused())
			f.wants("child", syncing3)
			f.stop() // fails unless at once
			f.server.Heal()
			if logged := f.errorsLogged(); len(logged) != 0 {
				t.Errorf("errors logged = %q; want none by the reporter", logged)
			}
		})
	}
}
