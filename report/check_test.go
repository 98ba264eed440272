//go:build go1.25

package report_test

import (
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2/ktesting"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
)

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

// text returns "status reason generation: message", empty for no condition. The
// fingerprint of the holds is left out.
func text(c condition) string {
	if c == nil {
		return ""
	}
	message := holds.ReplaceAllString(c["message"].(string), "")
	return fmt.Sprintf("%v %v %v: %v", c["status"], c["reason"], c["observedGeneration"], message)
}

var holds = regexp.MustCompile(` \(holds [0-9a-f]{12}\)$`)

func (f *fixture) wants(name, want string) condition {
	f.Helper()
	c := f.condition(name)
	if got := text(c); got != want {
		f.Errorf("condition of %s = %q; want %q", name, got, want)
	}
	return c
}

// requests returns the requests of the reporter since the last call.
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
	if diff := cmp.Diff(want, f.requests(tu.Get, tu.UpdateStatus)); diff != "" {
		f.Errorf("requests %s (-want +got):\n%s", when, diff)
	}
}

// wantEvents checks "type reason: name" of all events.
func (f *fixture) wantEvents(want ...string) {
	f.Helper()
	if diff := cmp.Diff(want, brief(f.recorded.all()), cmpopts.EquateEmpty()); diff != "" {
		f.Errorf("events (-want +got):\n%s", diff)
	}
}

// recorder keeps the Events that it is given.
type recorder struct {
	record.EventRecorder // the other methods are not used

	mu     sync.Mutex
	events []corev1.Event
}

func (r *recorder) Event(object k8sruntime.Object, eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, corev1.Event{
		InvolvedObject: *object.(*corev1.ObjectReference), Type: eventType, Reason: reason, Message: message,
	})
}

func (r *recorder) all() []corev1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// brief returns "type reason: name" of events.
func brief(events []corev1.Event) (out []string) {
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.InvolvedObject.Name))
	}
	return out
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
