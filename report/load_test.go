//go:build go1.25

package report_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

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
		var calls atomic.Int64
		f.report(hub, reportsIf(func(syncgate.State) bool { calls.Add(1); return true }))
		defer func() { f.stop() }()
		for i := range 10_000 {
			source.Add(tu.ManagedCluster(ns, fmt.Sprintf("c%05d", i), fmt.Sprintf("id-%05d", i)))
		}
		source.Add(child())
		source.Sync()
		f.pass(time.Minute)
		calls.Store(0)
		for i := range 10_000 {
			obj := tu.ManagedCluster(ns, fmt.Sprintf("c%05d", i), fmt.Sprintf("id-%05d", i))
			source.Update(obj, tu.With(obj, tu.Heartbeat(time.Now())))
		}
		f.pass(time.Minute)
		f.wantRequests("for healthy clusters")
		if n := calls.Load(); n != 0 {
			t.Errorf("calls of Parties = %d for 10,000 heartbeats; want none", n)
		}
		source.Update(child(), child(tu.Paused(true)))
		f.pass(500 * time.Millisecond) // this source does not deliver our write, so there may be one more read
		f.wants("child", drained2)
		f.wantRequests("for the one that is paused", get, put)
	})
}
