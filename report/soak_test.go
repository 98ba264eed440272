//go:build go1.25

package report_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// Two processes live through days of pauses, operations, outages and restarts of a party.
// What they use does not grow. make soak takes minutes, with SYNCGATE_SOAK=25.
func TestSoakLife(t *testing.T) {
	const rounds = 24
	synctest.Test(t, func(t *testing.T) {
		w := newReportWorld(t)
		var requeued atomic.Int64 // each of the gates has a goroutine for it
		backlog := syncgate.NewBacklog(func(int) { requeued.Add(1) })
		var all []tu.Usage
		begin := time.Now()
		for range rounds {
			for i := range 4 * tu.SoakFactor(t) {
				w.live(i, backlog)
			}
			w.pass(10 * time.Minute) // informers wait in a backoff after a fault
			w.server.ForgetRequests()
			w.server.ForgetLog()
			all = append(all, tu.Measure(w.server.Watches()))
		}
		if w.err != nil {
			t.Error(w.err)
		}
		tu.CheckFlat(t, all, 64<<10)
		t.Logf("%v, %d keys requeued, usage at the end %+v", time.Since(begin), requeued.Load(), all[rounds-1])
		if err := w.quiet(); err != nil {
			t.Error(err)
		}
		for i := range both {
			if err := w.stop(i); err != nil {
				t.Error(err)
			}
		}
		w.server.Close()
	})
}

// live is one pause, with all that goes with it.
func (w *reportWorld) live(i int, backlog *syncgate.Backlog[int]) {
	for _, p := range w.parties {
		stop := p.gate.OnChange(func(syncgate.Change) {})
		defer stop()
		w.operate(p)
	}
	w.change(tu.Paused(true))
	w.pass(time.Second)
	for _, p := range w.parties {
		for key := range 20 {
			_, _ = backlog.Do(context.Background(), p.gate, key, func(context.Context) error { return nil })
		}
		p.leave()
	}
	switch i % 4 {
	case 0:
		w.server.CutWatches()
	case 1:
		w.server.SendError(410)
	case 2:
		w.server.Fail(tu.Status(500).Times(10))
	case 3:
		_ = w.stop(0)
		w.start(0)
	}
	w.pass(time.Minute)
	w.change(tu.Unpaused())
	for range 10 {
		w.do(reportStep{Do: "heartbeat"}) //nolint:errcheck // a heartbeat has none
	}
	w.pass(time.Minute)
}
