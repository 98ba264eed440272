//go:build go1.25

package report_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	ns = "clusternet-abcde"
	id = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
)

var (
	_ report.Gates = (*syncgate.Gate)(nil)
	_ report.Gates = (*syncgate.Hub)(nil)
)

// fixture is a reporter that runs in a bubble of synctest, with a real client and
// a real informer over an API server that the test drives.
type fixture struct {
	*testing.T
	server   *tu.APIServer
	hub      *syncgate.Hub
	gate     *syncgate.Gate // of id
	reporter *report.Reporter
	logger   klog.Logger
	stopHub  func()
	stop     func()               // ends Run of the reporter, at once
	cancel   func() time.Duration // the same, and tells how long it took
	ended    chan struct{}
}

// inBubble calls test with a reporter of a hub that runs and has settled.
func inBubble(t *testing.T, opts report.Options, objs []*unstructured.Unstructured, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, tu.NewAPIServer(objs...), opts)
		t.Cleanup(f.server.Close)
		test(t, f)
		f.stop()
		f.stopHub()
	})
}

func newFixture(t *testing.T, server *tu.APIServer, opts report.Options) *fixture {
	t.Helper()
	f := &fixture{T: t, server: server, logger: ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))}
	inf, err := informer.ForHub(server.Client(), informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.hub, err = syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f.gate = f.hub.Gate(id)
	f.stopHub = start(context.Background(), t, f.hub.Run)
	f.report(f.hub, opts)
	return f
}

func (f *fixture) report(gates report.Gates, opts report.Options) {
	f.Helper()
	reporter, err := report.New(f.server.Client(), gates, opts)
	if err != nil {
		f.Fatal(err)
	}
	f.reporter = reporter
	f.stop = start(klog.NewContext(context.Background(), f.logger), f.T, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		f.cancel = func() time.Duration {
			begin := time.Now()
			cancel()
			<-f.ended
			return time.Since(begin)
		}
		f.ended = make(chan struct{})
		defer close(f.ended)
		return reporter.Run(ctx)
	})
	f.pass(time.Second)
}

func start(ctx context.Context, t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceFunc(func() {
		t.Helper()
		cancel()
		begin := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v; want nil", err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("Run returned %v after the end of its context; want at once", took)
		}
	})
}

// pass lets time pass, and then all that is due happen.
func (f *fixture) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// change applies options to the ManagedCluster called name.
func (f *fixture) change(name string, opts ...tu.Option) {
	f.Helper()
	f.server.Update(tu.With(f.server.Get(ns, name), opts...))
	f.pass(200 * time.Millisecond)
}

// operate begins an operation; the func returned ends it.
func (f *fixture) operate() (end func()) {
	f.Helper()
	running, ending, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := f.gate.Do(context.Background(), func(context.Context) error { close(running); <-ending; return nil }); err != nil {
			f.Errorf("Do = %v", err)
		}
	}()
	<-running
	return func() { close(ending); <-ended; f.pass(200 * time.Millisecond) }
}

type condition = map[string]any

func conditions(obj *unstructured.Unstructured) []any {
	status, _ := obj.Object["status"].(map[string]any)
	out, _ := status["conditions"].([]any)
	return out
}

// condition returns the condition of a ManagedCluster, nil for none.
func (f *fixture) condition(name string) condition {
	f.Helper()
	var own condition
	for _, c := range conditions(f.server.Get(ns, name)) {
		if c := c.(condition); c["type"] == report.ConditionType {
			if own != nil {
				f.Errorf("there are two: %v and %v", own, c)
			}
			own = c
		}
	}
	return own
}

// brief returns "status reason generation: message", empty for no condition.
func brief(c condition) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%v %v %v: %v", c["status"], c["reason"], c["observedGeneration"], c["message"])
}

func (f *fixture) wants(name, want string) condition {
	f.Helper()
	c := f.condition(name)
	if got := brief(c); got != want {
		f.Errorf("condition of %s = %q; want %q", name, got, want)
	}
	return c
}

// wrote returns the requests of the reporter since the last call.
func (f *fixture) requests(verbs ...string) []string {
	out := []string{}
	for _, r := range f.server.Requests() {
		if slices.Contains(verbs, r.Verb) {
			out = append(out, r.String())
		}
	}
	f.server.ForgetRequests()
	return out
}

func (f *fixture) wantRequests(when string, want ...string) {
	f.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, f.requests(tu.Get, tu.UpdateStatus, tu.CreateEvent)); diff != "" {
		f.Errorf("requests %s (-want +got):\n%s", when, diff)
	}
}

// wantEvents checks "type reason: name" of all events.
func (f *fixture) wantEvents(want ...string) {
	f.Helper()
	var got []string
	for _, e := range f.server.Events() {
		name, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name")
		got = append(got, fmt.Sprintf("%s %s: %s", e.Object["type"], e.Object["reason"], name))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("events (-want +got):\n%s", diff)
	}
}

func (f *fixture) errorsLogged() []string {
	var out []string
	for _, entry := range f.logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if entry.Type == ktesting.LogError {
			out = append(out, fmt.Sprint(entry.Message, ": ", entry.Err, " ", entry.WithKVList, entry.ParameterKVList))
		}
	}
	return out
}

func child(opts ...tu.Option) *unstructured.Unstructured {
	return tu.ManagedCluster(ns, "child", id, opts...)
}

func one(opts ...tu.Option) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{child(opts...)}
}

// withConditions sets status.conditions.
func withConditions(list ...any) tu.Option {
	return func(object map[string]any) {
		status := map[string]any{}
		if old, ok := object["status"].(map[string]any); ok {
			for k, v := range old {
				status[k] = v
			}
		}
		status["conditions"] = list
		object["status"] = status
	}
}

func own(status, reason, message string, generation int64) condition {
	return condition{
		"type": "SyncPaused", "status": status, "reason": reason, "message": message,
		"observedGeneration": generation, "lastTransitionTime": "1999-01-01T00:00:00Z",
	}
}

func edited(object map[string]any) { // bumps the generation
	tu.Unpaused()(object)
}

const (
	paused2  = "True Paused 2: held by spec.syncPaused; nothing is in flight"
	syncing3 = "False Syncing 3: nothing holds the cluster"

	get = "get " + ns + "/child"
	put = "update status " + ns + "/child"
	evt = "create event " + ns
)

func TestNewRefusesBadInput(t *testing.T) {
	server := tu.NewAPIServer()
	defer server.Close()
	gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		client dynamic.Interface
		gates  report.Gates
		want   string
	}{
		"good":       {server.Client(), gate, ""},
		"no client":  {nil, gate, "client is nil"},
		"nil client": {(*dynamic.DynamicClient)(nil), gate, "client is nil"},
		"no gates":   {server.Client(), nil, "gates are nil"},
		"nil gates":  {server.Client(), (*syncgate.Hub)(nil), "gates are nil"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := report.New(tt.client, tt.gates, report.Options{})
			if tt.want == "" {
				if err != nil || r == nil {
					t.Errorf("New = %v, %v; want a reporter", r, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "report: ") {
				t.Errorf("New = %v; want an error with %q", err, tt.want)
			}
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	inBubble(t, report.Options{Component: "agent"}, one(), func(t *testing.T, f *fixture) {
		f.change("child", tu.Heartbeat(time.Now()))
		f.wantRequests("for a cluster that was never paused")

		end, end2 := f.operate(), f.operate()
		f.change("child", tu.Paused(true))
		began := f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 2")
		f.wantRequests("for the draining", get, put)
		end2()
		f.wantRequests("for one operation that has ended")
		f.pass(11 * time.Second)
		f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 1")
		f.wantRequests("ten seconds later", get, put)
		f.wantEvents()
		end()
		held := f.wants("child", paused2)
		if err := f.gate.WaitDrained(t.Context()); err != nil {
			t.Error(err)
		}
		f.wantEvents("Normal SyncPaused: child")
		f.wantRequests("for the pause", get, put, evt)
		f.pass(time.Hour)
		f.change("child", tu.Heartbeat(time.Now()), withConditions(condition{"type": "Ready"}, held))
		f.wantRequests("for an hour and a heartbeat")

		end = f.operate0(syncgate.ErrPaused)
		f.change("child", tu.Unpaused())
		end()
		resumed := f.wants("child", syncing3)
		f.wantEvents("Normal SyncPaused: child", "Normal SyncResumed: child")
		f.wantRequests("for the resume", get, put, evt)
		if began["lastTransitionTime"] == held["lastTransitionTime"] || held["lastTransitionTime"] == resumed["lastTransitionTime"] {
			t.Errorf("lastTransitionTime of %v, %v, %v; want one each", began, held, resumed)
		}
		event := f.server.Events()[0].Object
		at, _ := time.Parse(time.RFC3339, event["firstTimestamp"].(string))
		if at.IsZero() || event["message"] != held["message"] || event["reportingComponent"] != "agent" {
			t.Errorf("event = %v; want the time, the message and the component", event)
		}
		want := map[string]any{"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "namespace": ns, "name": "child", "uid": "uid-child"}
		ref := event["involvedObject"].(map[string]any)
		if diff := cmp.Diff(want, ref); diff != "" {
			t.Errorf("involvedObject (-want +got):\n%s", diff)
		}
	})
}

// What WatchMode finds is told as an Event, once for each change.
func TestModeEvents(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Add(1)
		go func() {
			defer watch.Done()
			if err := f.gate.WatchMode(ctx, syncgate.Pull, false, report.ModeEvents(ctx, f.server.Client(), f.gate, "agent")); err != nil {
				t.Errorf("WatchMode = %v", err)
			}
		}()
		mode := func(mode string) tu.Option {
			return func(object map[string]any) { object["spec"].(map[string]any)["syncMode"] = mode }
		}
		f.change("child", mode("Pull"))
		before := len(f.server.Events())
		f.change("child", mode("Push"))
		f.change("child", tu.Heartbeat(time.Now()))
		f.change("child", mode("Pull"))
		var got []string
		for _, e := range f.server.Events()[before:] {
			name, _, _ := unstructured.NestedString(e.Object, "involvedObject", "name")
			got = append(got, fmt.Sprintf("%s %s: %s", e.Object["type"], e.Object["reason"], name))
		}
		if diff := cmp.Diff([]string{"Warning SyncModeMismatch: child", "Normal SyncModeFits: child"}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		cancel()
		watch.Wait()
	})
}

// operate0 does nothing but prove that the gate refuses.
func (f *fixture) operate0(want error) (end func()) {
	if err := f.gate.Do(context.Background(), func(context.Context) error { return nil }); !errors.Is(err, want) {
		f.Errorf("Do = %v; want %v", err, want)
	}
	return func() {}
}

func TestResumeBeforeThePauseTookHold(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		end := f.operate()
		f.change("child", tu.Paused(true))
		drained := f.condition("child")
		f.pass(2 * time.Second)
		f.change("child", tu.Unpaused())
		now := f.wants("child", syncing3)
		if now["lastTransitionTime"] != drained["lastTransitionTime"] {
			f.Errorf("lastTransitionTime = %v, before %v; want the same for the same status", now, drained)
		}
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), ".WaitDrained(") {
			f.Error("a goroutine waits for an open gate to drain")
		}
		end()
		f.wants("child", syncing3)
		f.wantEvents()
		f.requests()
		f.change("child", tu.Paused(true)) // the waiter of the first pause is no more
		f.wants("child", "True Paused 4: held by spec.syncPaused; nothing is in flight")
		f.wantEvents("Normal SyncPaused: child")
	})
}

// A gate that opened and closed between two looks has resumed.
func TestPausedAgainWithOperations(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Paused(true)), func(_ *testing.T, f *fixture) {
		f.wantEvents("Normal SyncPaused: child")
		f.server.Fail(tu.Status(http.StatusInternalServerError).On(tu.Get))
		f.change("child", tu.Unpaused())
		end := f.operate()
		f.change("child", tu.Paused(true))
		f.server.Heal()
		f.pass(time.Minute)
		f.wants("child", "False Draining 4: held by spec.syncPaused; operations still in flight: 1")
		end()
		f.wants("child", "True Paused 4: held by spec.syncPaused; nothing is in flight")
		f.wantEvents("Normal SyncPaused: child", "Normal SyncResumed: child", "Normal SyncPaused: child")
	})
}

func TestTwoHolders(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Held("backup", "nightly"), tu.Held("audit", "")), func(t *testing.T, f *fixture) {
		before := f.wants("child", "True Paused 1: held by audit, backup (nightly); nothing is in flight")
		f.pass(time.Minute)
		f.change("child", tu.Released("audit"), edited)
		after := f.wants("child", "True Paused 2: held by backup (nightly); nothing is in flight")
		if before["lastTransitionTime"] != after["lastTransitionTime"] {
			t.Errorf("lastTransitionTime = %v, before %v; want the same for the same status", after, before)
		}
		f.wantEvents("Normal SyncPaused: child")
	})
}

func TestMalformed(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.change("child", tu.Paused("true"))
		const unknown = `Unknown Malformed 2: ManagedCluster ` + ns + `/child: spec.syncPaused is the string "true"; set it to true or false, or remove it`
		f.wants("child", unknown)
		f.change("child", tu.Heartbeat(time.Now()))
		f.wants("child", unknown)
		f.wantEvents("Warning SyncPauseMalformed: child")
		f.change("child", tu.Paused(true))
		f.wants("child", "True Paused 3: held by spec.syncPaused; nothing is in flight")
		f.change("child", tu.Paused("false"))
		f.change("child", tu.Unpaused())
		f.wants("child", "False Syncing 5: nothing holds the cluster")
		f.wantEvents("Warning SyncPauseMalformed: child", "Normal SyncPaused: child", "Warning SyncPauseMalformed: child", "Normal SyncResumed: child")
	})
}

// mcls is a ManagedCluster as Clusternet's own Go type has it: no syncPaused.
type mcls struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		ClusterID string `json:"clusterId"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status"`
}

func TestTypedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, server: tu.NewAPIServer(child()), logger: ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))}
		defer f.server.Close()
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer start(context.Background(), t, hub.Run)()
		f.report(hub, report.Options{})
		typed := &mcls{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "child", UID: "uid-child", Generation: 1}}
		typed.Spec.ClusterID = id
		source.Add("no object", typed, (*mcls)(nil))
		source.Sync()
		f.pass(time.Second)
		c := f.condition("child")
		if c["status"] != "Unknown" || c["reason"] != syncgate.ReasonFieldNotVisible || !strings.Contains(c["message"].(string), "report_test.mcls") {
			t.Errorf("condition = %v; want Unknown/FieldNotVisible", c)
		}
		f.wantEvents()
		f.wantRequests("at the start", get, put)

		seen := *typed
		seen.Status.Conditions = []metav1.Condition{{
			Type: "SyncPaused", Status: "Unknown", Reason: c["reason"].(string), Message: c["message"].(string), ObservedGeneration: 1,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Second)),
		}}
		source.Update(typed, &seen)
		f.pass(time.Second)
		f.requests()
		source.Update(&seen, &seen)
		source.Update(&seen, typed) // somebody dropped it
		f.server.Update(child())
		f.pass(time.Second)
		if got := f.condition("child"); got["status"] != "Unknown" {
			t.Errorf("condition = %v; want it restored", got)
		}
		f.wantRequests("after it was dropped", get, put)
		f.stop()
		if n := source.Handlers(); n != 1 {
			t.Errorf("handlers left = %d; want that of the hub", n)
		}
	})
}

// What is not known is not told, and the end is no pause.
func TestSaysNothingOfTheUnknown(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		inBubble(t, report.Options{}, one(tu.Paused(true)), func(_ *testing.T, f *fixture) {
			end := f.operate0(syncgate.ErrPaused)
			defer end()
			f.requests()
			f.server.Delete(ns, "child")
			f.pass(time.Hour)
			f.wantRequests("after the deletion")
			f.server.Create(child(tu.UID("another")))
			f.pass(time.Second)
			f.wantRequests("for another one that is open")
			f.change("child", tu.Paused(true))
			f.wants("child", paused2)
		})
	})
	t.Run("gates stopped", func(t *testing.T) {
		inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
			end := f.operate()
			f.change("child", tu.Paused(true))
			f.requests()
			f.stopHub()
			f.pass(time.Minute)
			end()
			f.pass(time.Minute)
			f.wantRequests("after the end of the gates")
			f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 1")
		})
	})
	t.Run("reporter and gates stopped", func(t *testing.T) {
		inBubble(t, report.Options{}, one(own2()), func(_ *testing.T, f *fixture) {
			f.requests()
			go f.stopHub()
			f.stop()
			f.pass(time.Hour)
			f.wantRequests("after the end")
		})
	})
	t.Run("stale", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fixture{T: t, server: tu.NewAPIServer(child(own2())), logger: klog.Background()}
			defer f.server.Close()
			gate, err := syncgate.New(f.server.Client(), ns, id, syncgate.Options{StaleAfter: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer start(context.Background(), t, gate.Run)()
			f.report(gate, report.Options{})
			defer func() { f.stop() }()
			f.requests()
			f.pass(10 * time.Minute)
			if gate.State().Reason != syncgate.ReasonStale {
				t.Errorf("State() = %+v; want Stale", gate.State())
			}
			f.wantRequests("while the server is silent")
		})
	})
}

// own2 is a condition of a cluster that has resumed.
func own2() tu.Option { return withConditions(own("False", "Syncing", "nothing holds the cluster", 1)) }

func TestStart(t *testing.T) {
	pausedBefore := own("True", "Paused", "held by spec.syncPaused; nothing is in flight", 2)
	for name, tt := range map[string]struct {
		obj    *unstructured.Unstructured
		want   string
		wrote  bool
		events []string
	}{
		"never paused":                {child(), "", false, nil},
		"paused, told already":        {child(tu.Paused(true), withConditions(pausedBefore)), paused2, false, nil},
		"paused since":                {child(tu.Paused(true)), paused2, true, []string{"Normal SyncPaused: child"}},
		"resumed since":               {child(edited, edited, withConditions(pausedBefore)), syncing3, true, []string{"Normal SyncResumed: child"}},
		"paused, edited since":        {child(edited, tu.Paused(true), withConditions(pausedBefore)), strings.Replace(paused2, "2", "3", 1), true, nil},
		"open, told already":          {child(own2()), "False Syncing 1: nothing holds the cluster", false, nil},
		"malformed, told already":     {child(tu.Paused(1.5), withConditions(own("Unknown", "Malformed", "whatever", 1))), "Unknown Malformed 2: ManagedCluster " + ns + "/child: spec.syncPaused is 1.5 of type float64; set it to true or false, or remove it", true, nil},
		"a condition of another kind": {child(tu.Paused(true), withConditions(condition{"type": "SyncPaused", "status": true})), paused2, true, []string{"Normal SyncPaused: child"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, report.Options{}, []*unstructured.Unstructured{tt.obj}, func(_ *testing.T, f *fixture) {
				c := f.wants("child", tt.want)
				if got := len(f.requests(tu.UpdateStatus)) > 0; got != tt.wrote {
					f.Errorf("wrote %v; want %v", got, tt.wrote)
				}
				f.wantEvents(tt.events...)
				if was := conditions(tt.obj); len(was) > 0 && was[0].(condition)["status"] == c["status"] && c["lastTransitionTime"] != "1999-01-01T00:00:00Z" {
					f.Errorf("condition = %v; want the time of the last transition", c)
				}
			})
		})
	}
}

func TestAllDuplicatesHaveIt(t *testing.T) {
	objs := []*unstructured.Unstructured{child(), tu.ManagedCluster(ns, "double", id), tu.ManagedCluster(ns, "other", "another")}
	var looks atomic.Int64
	count := func(*syncgate.Gate) bool { looks.Add(1); return true }
	inBubble(t, report.Options{Acknowledge: count}, objs, func(_ *testing.T, f *fixture) {
		f.change("double", tu.Paused(true))
		f.wants("child", "True Paused 1: held by spec.syncPaused, see ManagedCluster "+ns+"/double; nothing is in flight")
		f.wants("double", paused2)
		f.wants("other", "")
		f.change("child", edited)
		f.wants("child", "True Paused 2: held by spec.syncPaused, see ManagedCluster "+ns+"/double; nothing is in flight")
		f.server.Create(tu.ManagedCluster(ns, "third", id))
		f.pass(time.Second)
		f.wants("third", "True Paused 1: held by spec.syncPaused, see ManagedCluster "+ns+"/double; nothing is in flight")
		f.change("third", tu.ClusterID("another"))
		f.wants("third", "False Syncing 1: nothing holds the cluster")
		f.server.Delete(ns, "double")
		f.pass(time.Second)
		f.wants("child", "False Syncing 2: nothing holds the cluster")
		f.pass(10 * time.Second) // the last look was at a closed gate
		looks.Store(0)
		f.pass(time.Hour)
		if n := looks.Load(); n != 0 {
			f.Errorf("looks at gates = %d in an hour in which nothing happens; want none", n)
		}
	})
}

func TestClobberedConditionsComeBack(t *testing.T) {
	first := condition{"type": "Ready", "status": "True", "reason": "R", "message": "m", "extra": []any{int64(1), 1.5, nil}}
	last := condition{"type": "Synced", "status": "False"}
	inBubble(t, report.Options{}, one(withConditions(first, last)), func(t *testing.T, f *fixture) {
		f.change("child", tu.Paused(true))
		ours := f.wants("child", paused2)
		if diff := cmp.Diff([]any{first, last, ours}, conditions(f.server.Get(ns, "child"))); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		f.pass(time.Hour)
		theirs := condition{"type": "Ready", "status": "False", "message": "new"}
		for name, clobber := range map[string]tu.Option{
			"dropped":        withConditions(last, theirs),
			"changed":        withConditions(last, theirs, own("False", "Nonsense", "", 1)),
			"doubled":        withConditions(last, theirs, own("False", "A", "", 1), own("False", "B", "", 1)),
			"contradicted":   withConditions(last, theirs, ours, own("False", "A", "", 1)),
			"all dropped":    withConditions(),
			"status dropped": func(object map[string]any) { delete(object, "status") },
		} {
			f.requests()
			f.change("child", clobber)
			f.wantRequests("after it was "+name, get, put)
			got := conditions(f.server.Get(ns, "child"))
			want := []any{last, theirs, ours}
			if strings.Contains(name, "dropped") && name != "dropped" {
				want = []any{ours}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("conditions after it was %s (-want +got):\n%s", name, diff)
			}
			f.pass(time.Hour)
		}
		f.wantEvents("Normal SyncPaused: child")

		f.change("child", tu.Unpaused())
		f.pass(time.Hour)
		f.requests()
		f.change("child", withConditions(last)) // told once, it stays
		f.wants("child", syncing3)
		f.wantRequests("after it was dropped", get, put)
	})
}

// Each heartbeat rewrites the whole status from a copy of before the pause.
func TestStaleHeartbeatsCostARepairEach(t *testing.T) {
	for name, every := range map[string]time.Duration{"at once": 0, "fast": 20 * time.Millisecond, "steady": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
				f.change("child", tu.Heartbeat(time.Now()))
				f.change("child", tu.Paused(true))
				f.pass(time.Hour)
				f.requests()
				for i := range 10 {
					f.server.Update(tu.With(f.server.Get(ns, "child"), tu.Heartbeat(time.Now().Add(time.Duration(i)))))
					if every > 0 {
						f.pass(every)
					}
				}
				f.pass(5 * time.Second)
				f.wants("child", "True Paused 2: held by spec.syncPaused; nothing is in flight")
				n := len(f.requests(tu.UpdateStatus))
				t.Logf("%d repairs for 10 heartbeats", n)
				if n > 10 || every > time.Minute && n != 10 {
					t.Errorf("repairs = %d for 10 heartbeats", n)
				}
				f.wantEvents("Normal SyncPaused: child")
				f.pass(time.Hour)
				f.wantRequests("afterwards")
			})
		})
	}
}

// A controller that undoes our condition whenever it sees it gets a slow enemy,
// and a new decision does not wait for that.
func TestEndlessFightSlowsDown(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
		undo := func() {
			if f.condition("child") != nil {
				f.server.Update(tu.With(f.server.Get(ns, "child"), withConditions()))
			}
		}
		f.change("child", tu.Paused(true))
		f.requests()
		for range 10 * 60 * 10 {
			undo()
			f.pass(100 * time.Millisecond)
		}
		n := len(f.requests(tu.UpdateStatus))
		t.Logf("%d writes in ten minutes of fight", n)
		if n < 10 || n > 40 {
			t.Errorf("writes in ten minutes = %d; want 10 to 40", n)
		}
		f.pass(time.Hour)
		for range 2 { // an hour of peace has made it quick again
			undo()
			f.pass(500 * time.Millisecond)
			f.wants("child", paused2)
		}

		for range 100 {
			undo()
			f.pass(100 * time.Millisecond)
		}
		undo()
		f.change("child", tu.Unpaused())
		f.wants("child", syncing3)
		f.pass(time.Hour)
		f.wants("child", syncing3)
	})
}

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

func TestRefusedWritesAreToldOnceAndTriedSlowly(t *testing.T) {
	noSubresource := tu.Status(http.StatusNotFound).On(tu.UpdateStatus)
	for name, tt := range map[string]struct {
		fault tu.Fault
		says  string
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
				if n := len(f.requests(verb)); n != 2*12 {
					t.Errorf("attempts in an hour = %d; want 12 for each of two clusters", n)
				}
				if logged := f.errorsLogged(); len(logged) != 1 || !strings.Contains(logged[0], tt.says) {
					t.Errorf("errors logged = %q; want one with %q", logged, tt.says)
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

// on calls fn before the next request with the verb is answered.
func (f *fixture) on(verb string, fn func()) {
	var once sync.Once
	f.server.OnRequest(func(r tu.Request) {
		if r.Verb == verb {
			once.Do(fn)
		}
	})
}

func TestDeletedMeanwhile(t *testing.T) {
	for _, verb := range []string{tu.Get, tu.UpdateStatus} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
				f.on(verb, func() { f.server.Delete(ns, "child") })
				f.server.Update(tu.With(child(), tu.Paused(true)))
				f.pass(time.Hour)
				// It may look once more until it has heard of the deletion.
				if got := f.requests(tu.Get, tu.UpdateStatus, tu.CreateEvent); len(got) > 4 || slices.Contains(got, evt) {
					t.Errorf("requests = %q; want no event, and none for ever", got)
				}
				if logged := f.errorsLogged(); len(logged) != 0 {
					t.Errorf("errors logged = %q; want none", logged)
				}
			})
		})
	}
}

// Another one of the same name is not told what was meant for the first.
func TestReplacedMeanwhile(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.on(tu.Get, func() {
			f.server.Delete(ns, "child")
			f.server.Create(child(tu.UID("another")))
		})
		f.server.Update(tu.With(child(), tu.Paused(true)))
		f.pass(time.Hour)
		f.wants("child", "")
		if n := len(f.requests(tu.UpdateStatus)); n != 0 {
			f.Errorf("writes = %d; want none", n)
		}
	})
}

func TestHeartbeatBetweenReadAndWrite(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.on(tu.UpdateStatus, func() {
			f.server.Update(tu.With(f.server.Get(ns, "child"), tu.Heartbeat(time.Now())))
		})
		f.server.Update(tu.With(child(), tu.Paused(true)))
		f.pass(time.Second)
		f.wantRequests("", get, put, get, put, evt)
		f.wants("child", paused2)
		if n := len(conditions(f.server.Get(ns, "child"))); n != 2 {
			f.Errorf("conditions = %d; want that of the heartbeat too", n)
		}
	})
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
					t.Errorf("errors logged = %q; want one that tells what to do", logged)
				}
			})
		})
	}
}

// A server without the core API, or without the right to create events.
func TestEventsAreTriedOnce(t *testing.T) {
	for _, fault := range []tu.Fault{tu.Status(http.StatusNotFound), tu.Status(http.StatusForbidden), tu.Refused, tu.Hang} {
		inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
			f.server.Fail(fault.On(tu.CreateEvent))
			f.change("child", tu.Paused(true))
			f.wants("child", paused2)
			f.pass(time.Hour)
			f.wantRequests("", get, put, evt)
			f.change("child", tu.Unpaused())
			f.wants("child", syncing3)
			if logged := f.errorsLogged(); len(logged) != 0 {
				t.Errorf("errors logged = %q; want none", logged)
			}
		})
	}
}

func TestAcknowledge(t *testing.T) {
	deploys := func(g *syncgate.Gate) bool {
		s := g.State()
		return s.AppPusher != nil && *s.AppPusher
	}
	inBubble(t, report.Options{Acknowledge: deploys}, one(), func(_ *testing.T, f *fixture) {
		end := f.operate()
		f.change("child", tu.Paused(true))
		f.pass(time.Hour)
		f.wantRequests("for a cluster that others deploy to")
		f.change("child", tu.Heartbeat(time.Now())) // has appPusher
		f.pass(2 * time.Second)                     // kubectl wait may give up after half a minute
		f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 1")
		end()
		f.wants("child", paused2)
	})
}

// The spec is edited while the cluster is paused: kubectl wait would take an
// older observedGeneration for outdated.
func TestObservedGenerationFollows(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Paused(true)), func(_ *testing.T, f *fixture) {
		f.wants("child", paused2)
		f.requests()
		f.change("child", func(object map[string]any) {
			object["metadata"].(map[string]any)["generation"] = int64(7)
		})
		f.wants("child", "True Paused 7: held by spec.syncPaused; nothing is in flight")
		f.wantRequests("", get, put)
		f.wantEvents("Normal SyncPaused: child")
	})
}

// The watch lags behind the server: a resume that is on the server already must
// not be answered by an acknowledgement.
func TestNoAcknowledgementOfWhatIsOver(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		end := f.operate()
		f.change("child", tu.Paused(true))
		newer := f.server.Get(ns, "child")
		tu.Unpaused()(newer.Object)
		f.server.Rewrite(newer) // without an event
		end()
		f.pass(5 * time.Second)
		f.wants("child", "False Draining 2: held by spec.syncPaused; operations still in flight: 1")
		f.change("child", edited)
		f.wants("child", "False Syncing 4: nothing holds the cluster")
	})
}

func TestToggling(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
		for i := range 201 {
			f.server.Update(tu.With(f.server.Get(ns, "child"), tu.Paused(i%2 == 0)))
			if i%7 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
		}
		f.pass(time.Second)
		f.wants("child", "True Paused 202: held by spec.syncPaused; nothing is in flight")
		t.Logf("%d writes", len(f.requests(tu.UpdateStatus)))
	})
}

func TestHealthyClustersCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, server: tu.NewAPIServer(child(tu.Paused(true))), logger: klog.Background()}
		defer f.server.Close()
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer start(context.Background(), t, hub.Run)()
		var looks atomic.Int64
		f.report(hub, report.Options{Acknowledge: func(*syncgate.Gate) bool { looks.Add(1); return true }})
		defer func() { f.stop() }()
		for i := range 10_000 {
			source.Add(tu.ManagedCluster(ns, fmt.Sprintf("c%05d", i), fmt.Sprintf("id-%05d", i)))
		}
		source.Add(child())
		source.Sync()
		f.pass(time.Minute)
		looks.Store(0)
		for i := range 10_000 {
			obj := tu.ManagedCluster(ns, fmt.Sprintf("c%05d", i), fmt.Sprintf("id-%05d", i))
			source.Update(obj, tu.With(obj, tu.Heartbeat(time.Now())))
		}
		f.pass(time.Minute)
		f.wantRequests("for healthy clusters")
		if n := looks.Load(); n != 0 {
			t.Errorf("looks at gates = %d for 10,000 heartbeats; want none", n)
		}
		source.Update(child(), child(tu.Paused(true)))
		f.pass(500 * time.Millisecond) // this source does not tell of our write, so it may be asked for once more
		f.wants("child", paused2)
		f.wantRequests("for the one that is paused", get, put, evt)
	})
}

func TestLongMessages(t *testing.T) {
	inBubble(t, report.Options{}, one(tu.Held("backup", strings.Repeat("ä", 40_000))), func(t *testing.T, f *fixture) {
		message := f.condition("child")["message"].(string)
		if len(message) > 4096 || !strings.HasPrefix(message, "held by backup (ä") || !strings.HasSuffix(message, "ä...") {
			t.Errorf("message of %d bytes = %.40q...; want it cut", len(message), message)
		}
	})
}

func TestRun(t *testing.T) {
	t.Run("twice", func(t *testing.T) {
		inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
			if err := f.reporter.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
				t.Errorf("Run = %v; want ErrAlreadyRun", err)
			}
			f.stop()
			if err := f.reporter.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
				t.Errorf("Run after the end = %v; want ErrAlreadyRun", err)
			}
		})
	})
	t.Run("before the gates, and without", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fixture{T: t, server: tu.NewAPIServer(child(tu.Paused(true))), logger: klog.Background()}
			defer f.server.Close()
			for _, runs := range []bool{true, false} {
				gate, err := syncgate.New(f.server.Client(), ns, id, syncgate.Options{})
				if err != nil {
					t.Fatal(err)
				}
				f.report(gate, report.Options{})
				if runs {
					defer start(context.Background(), t, gate.Run)()
					f.pass(time.Second)
					f.wants("child", paused2)
				}
				f.stop()
			}
		})
	})
	t.Run("gates that have ended", func(t *testing.T) {
		inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
			f.stopHub()
			r, err := report.New(f.server.Client(), f.hub, report.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "report: ") {
				t.Errorf("Run = %v; want an error", err)
			}
		})
	})
	t.Run("ends while it draws breath", func(t *testing.T) {
		for _, fault := range []tu.Fault{tu.Hang, tu.Status(http.StatusForbidden), tu.Refused} {
			for _, verb := range []string{tu.Get, tu.UpdateStatus, tu.CreateEvent} {
				inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
					end := f.operate()
					f.server.Fail(fault.On(verb))
					f.change("child", tu.Paused(true))
					if verb == tu.CreateEvent {
						end()
						end = func() {}
					}
					f.stop() // fails unless at once
					f.server.Heal()
					f.requests()
					end()
					f.pass(time.Hour)
					f.wantRequests("after the end")
				})
			}
		}
	})
	t.Run("waits for what is under way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var began, ended atomic.Bool
			f := newFixture(t, tu.NewAPIServer(child()), report.Options{Acknowledge: func(*syncgate.Gate) bool {
				if began.Swap(true) {
					time.Sleep(500 * time.Millisecond)
					ended.Store(true)
				}
				return true
			}})
			defer f.server.Close()
			f.server.Update(tu.With(child(), tu.Paused(true)))
			f.pass(100 * time.Millisecond)
			ended.Store(false)
			f.cancel()
			if !ended.Load() {
				t.Error("Run has returned before its worker")
			}
			f.stopHub()
		})
	})
	t.Run("ends although the client sleeps out a Retry-After", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, tu.NewAPIServer(child()), report.Options{})
			defer f.server.Close()
			f.server.Fail(tu.Status(http.StatusTooManyRequests).RetryAfter(20 * time.Second).On(tu.Get))
			f.change("child", tu.Paused(true))
			f.server.Heal()
			f.requests()
			if took := f.cancel(); took > time.Second {
				t.Errorf("Run returned after %v; want a second at most", took)
			}
			f.pass(time.Minute)
			f.wantRequests("after the end")
			f.stopHub()
		})
	})
}

// This one runs in real time, so that goleak sees what a bubble would hide.
func TestNoGoroutineIsLeft(t *testing.T) {
	server := tu.NewAPIServer(child(tu.Paused(true)))
	defer goleak.VerifyNone(t)
	defer server.Close()
	for i := range 50 {
		gate, err := syncgate.New(server.Client(), ns, types.UID(id), syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := report.New(server.Client(), gate, report.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		for _, run := range []func(context.Context) error{gate.Run, r.Run} {
			parts.Add(1)
			go func() {
				defer parts.Done()
				if err := run(ctx); err != nil {
					t.Errorf("Run = %v", err)
				}
			}()
		}
		if i%2 == 0 { // every other one ends as it starts
			if err := gate.WaitForSync(ctx); err != nil {
				t.Error(err)
			}
		}
		cancel()
		parts.Wait()
	}
}
