//go:build go1.25

package report_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
)

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
		f.change("child", withConditions(last)) // written once, it stays
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

// A controller undoes each of our writes. Restoring slows down, and a new decision does
// not wait for that.
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
		for range 2 { // it is quick again after a quiet hour
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

func TestHeartbeatBetweenReadAndWrite(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
		f.on(tu.UpdateStatus, func() {
			f.server.Update(tu.With(f.server.Get(ns, "child"), tu.Heartbeat(time.Now())))
		})
		f.server.Update(tu.With(child(), tu.Paused(true)))
		f.pass(time.Second)
		f.wantRequests("", get, put, get, put)
		f.wants("child", paused2)
		if n := len(conditions(f.server.Get(ns, "child"))); n != 2 {
			f.Errorf("conditions = %d; want that of the heartbeat too", n)
		}
	})
}

// A write is undone before its response arrives.
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
