//go:build go1.25

package report_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// fixture is a reporter that runs in a bubble of synctest, with a real client and
// a real informer over an API server that the test drives.
type fixture struct {
	*testing.T
	server   *tu.APIServer
	hub      *syncgate.Hub
	gate     *syncgate.Gate // of id
	reporter *report.Reporter
	logger   klog.Logger
	recorded recorder
	stopHub  func()
	stop     func()               // ends Run of the reporter, at once
	cancel   func() time.Duration // the same, and returns how long it took
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
	if opts.Recorder == nil {
		opts.Recorder = &f.recorded
	}
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

// refuses checks that the gate refuses an operation.
func (f *fixture) refuses() {
	f.Helper()
	if err := f.gate.Do(context.Background(), func(context.Context) error { return nil }); !errors.Is(err, syncgate.ErrPaused) {
		f.Errorf("Do = %v; want ErrPaused", err)
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

// reportsIf are options of the one party "deployer", which reports if a gate is in a
// certain state.
func reportsIf(reports func(syncgate.State) bool) report.Options {
	return report.Options{Party: "deployer", Parties: func(s syncgate.State) []string {
		if reports(s) {
			return []string{"deployer"}
		}
		return nil
	}}
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
	drained2 = "True Paused 2: held by spec.syncPaused; drained: deployer"
	syncing3 = "False Syncing 3: nothing holds the cluster"

	get = "get " + ns + "/child"
	put = "update status " + ns + "/child"
)
