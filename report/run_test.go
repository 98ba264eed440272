//go:build go1.25

package report_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

var (
	_ report.Gates = (*syncgate.Gate)(nil)
	_ report.Gates = (*syncgate.Hub)(nil)
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

func TestRunTwice(t *testing.T) {
	inBubble(t, report.Options{}, one(), func(t *testing.T, f *fixture) {
		if err := f.reporter.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
			t.Errorf("Run = %v; want ErrAlreadyRun", err)
		}
		f.stop()
		if err := f.reporter.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
			t.Errorf("Run after the end = %v; want ErrAlreadyRun", err)
		}
	})
}

func TestRunBeforeTheGatesAndWithout(t *testing.T) {
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
}

func TestRunOfGatesThatHaveEnded(t *testing.T) {
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
}

func TestRunEndsWhileRequestsFail(t *testing.T) {
	for _, fault := range []tu.Fault{tu.Hang, tu.Status(http.StatusForbidden), tu.Refused} {
		for _, verb := range []string{tu.Get, tu.UpdateStatus} {
			inBubble(t, report.Options{}, one(), func(_ *testing.T, f *fixture) {
				end := f.operate()
				f.server.Fail(fault.On(verb))
				f.change("child", tu.Paused(true))
				f.stop() // fails unless at once
				f.server.Heal()
				f.requests()
				end()
				f.pass(time.Hour)
				f.wantRequests("after the end")
			})
		}
	}
}

func TestRunWaitsForItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began, ended atomic.Bool
		f := newFixture(t, tu.NewAPIServer(child()), reportsIf(func(syncgate.State) bool {
			if began.Swap(true) {
				time.Sleep(500 * time.Millisecond)
				ended.Store(true)
			}
			return true
		}))
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
}

func TestRunEndsWhileTheClientSleeps(t *testing.T) {
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
