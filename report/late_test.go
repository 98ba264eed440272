//go:build go1.25

package report_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

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

// blockCallbacks blocks all callbacks of the hub from the next resume on, until the
// returned func is called.
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

// apart are gates whose reporter has an informer of its own.
type apart struct {
	*syncgate.Hub
	informer cache.SharedIndexInformer
}

func (a apart) Informer() cache.SharedIndexInformer { return a.informer }

// The gate opens and closes later than the reporter observes it, or the reporter
// observes nothing at all.
func TestClosedGatesAreReconciledAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		observed bool
		within   time.Duration
	}{"observed too early": {true, 2 * time.Second}, "not observed": {false, 11 * time.Second}} {
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

				if tt.observed {
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
