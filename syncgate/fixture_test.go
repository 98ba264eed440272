//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// The fixture of the tests in testing/synctest bubbles: a hub over a fake informer,
// a recorder for callbacks, and a logger.

var errCause = errors.New("the cause")

// fixture is a hub that runs in a bubble over a source that the test drives.
type fixture struct {
	*testing.T
	*tu.Source
	hub  *syncgate.Hub
	gate *syncgate.Gate // of id
	stop func()         // ends Run and waits for it
}

// inBubble calls test with a hub that runs and that has synced with initial.
func inBubble(t *testing.T, opts syncgate.Options, initial []any, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, opts)
		f.Add(initial...)
		f.sync()
		test(t, f)
	})
}

// newFixture returns a hub that runs and has not synced.
func newFixture(t *testing.T, opts syncgate.Options) *fixture {
	t.Helper()
	f := newHub(t, opts)
	f.run(context.Background())
	return f
}

// run starts Run and waits until the hub has its handler.
func (f *fixture) run(ctx context.Context) {
	f.stop = start(ctx, f.T, f.hub.Run)
	synctest.Wait()
}

// newHub returns a hub that does not run.
func newHub(t *testing.T, opts syncgate.Options) *fixture {
	t.Helper()
	source := tu.NewSource()
	hub, err := syncgate.NewHub(source, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, Source: source, hub: hub, gate: hub.Gate(id)}
}

// sync completes the first list and waits until the hub has synced.
func (f *fixture) sync() {
	f.Helper()
	f.Source.SetContact(time.Now())
	f.Source.Sync()
	if err := f.hub.WaitForSync(f.Context()); err != nil {
		f.Fatal(err)
	}
	synctest.Wait()
}

// want checks the decision, the Phase and the Reason of the gate of id.
func (f *fixture) want(paused bool, phase syncgate.Phase, reason string) syncgate.State {
	f.Helper()
	s := f.gate.State()
	if s.Paused != paused || f.gate.Paused() != paused || s.Phase != phase || s.Reason != reason {
		f.Errorf("Paused() = %v, State() = %v %v %s (%s); want %v %v %s",
			f.gate.Paused(), s.Paused, s.Phase, s.Reason, s.Message, paused, phase, reason)
	}
	return s
}

// wantReason checks that the gate of id is decided by an object, for reason.
func (f *fixture) wantReason(reason string) syncgate.State {
	f.Helper()
	if reason == syncgate.ReasonSyncAllowed {
		return f.want(false, syncgate.Open, reason)
	}
	return f.want(true, syncgate.Paused, reason)
}

// recorder records the calls of a callback as text.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) add(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

// change records a Change as "Old>New" reasons.
func (r *recorder) change(c syncgate.Change) { r.add(c.Old.Reason + ">" + c.New.Reason) }

// subscribe records the changes of a gate from now on.
func subscribe(g *syncgate.Gate) *recorder {
	r := &recorder{}
	g.OnChange(r.change)
	r.take() // the first call has the current state
	return r
}

// take returns the calls since the last take.
func (r *recorder) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// want takes the calls and compares them.
func (r *recorder) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.take()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// logTo returns a context whose logger calls line for each line.
func logTo(ctx context.Context, verbosity int, line func(string)) context.Context {
	return klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(
		textlogger.Verbosity(verbosity), textlogger.Output(writer(func(b []byte) { line(string(b)) })))))
}
