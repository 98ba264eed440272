//go:build go1.25

package report_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
)

// limiter is the rate limiter of a client. The request with the number waits until the
// func that wait returns is called.
type limiter struct {
	flowcontrol.RateLimiter // the other methods are not used
	requests, waits         atomic.Int64
	release                 chan struct{}
}

func (l *limiter) QPS() float32 { return 1 }

func (l *limiter) Wait(ctx context.Context) error {
	if l.requests.Add(1) != l.waits.Load() {
		return nil
	}
	select {
	case <-l.release:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the rate limiter: %w", ctx.Err())
	}
}

// The True of one ManagedCluster waits in the client, and the other one, which holds the
// gate, is released. The resourceVersion of the first does not change.
func TestGateOpensWhileTheWriteWaits(t *testing.T) {
	for _, party := range []string{"", report.PartyAgent} { // it would report that it has drained
		t.Run("party "+party, func(t *testing.T) { testGateOpensWhileTheWriteWaits(t, party) })
	}
}

func testGateOpensWhileTheWriteWaits(t *testing.T, party string) {
	objs := []*unstructured.Unstructured{child(), tu.ManagedCluster(ns, "double", id)}
	inBubble(t, report.Options{}, objs, func(t *testing.T, f *fixture) {
		f.stop()
		limiter := &limiter{release: make(chan struct{})}
		config := f.server.Config()
		config.RateLimiter = limiter
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		reporter, err := report.New(client, f.hub, report.Options{Recorder: &f.recorded, Party: party})
		if err != nil {
			t.Fatal(err)
		}
		f.stop = start(klog.NewContext(context.Background(), f.logger), t, reporter.Run)
		f.pass(time.Second)

		limiter.waits.Store(2) // the first write, after one read
		f.server.Update(tu.With(f.server.Get(ns, "double"), tu.Held("ops", "x")))
		f.pass(time.Second)
		f.server.Update(tu.With(f.server.Get(ns, "double"), tu.Released("ops")))
		f.pass(time.Second)
		end := f.operate()
		close(limiter.release)
		f.pass(time.Minute)
		f.wants("child", "")
		f.wants("double", "")
		f.wantEvents()
		if n := len(f.requests(tu.UpdateStatus)); n != 0 {
			t.Errorf("writes = %d; want none", n)
		}
		end()
	})
}
