//go:build go1.25

package syncgate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that a fault of the server keeps the last decision, that Check
// reports it, and that the gate recovers by itself.

func TestFaultsKeepTheState(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		got := subscribe(f.gate)
		if err := errors.Join(f.gate.Check(nil), f.hub.Check(nil)); err != nil {
			t.Errorf("Check() = %v; want nil", err)
		}
		fault := errors.New("connection refused")
		f.SetErr(fault)
		time.Sleep(24 * time.Hour)
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		if !errors.Is(f.gate.Check(nil), fault) || !errors.Is(f.hub.Check(nil), fault) {
			t.Errorf("Check() = %v; want the fault", f.gate.Check(nil))
		}
		f.SetErr(nil)
		if err := f.gate.Check(nil); err != nil {
			t.Errorf("Check() = %v; want nil after the recovery", err)
		}
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		if err := f.gate.Check(nil); err != nil {
			t.Errorf("Check() = %v; want nil: a pause is not a fault", err)
		}
		got.want(t, "SyncAllowed>SyncPaused")
	})
}

func TestFaultsOfTheServer(t *testing.T) {
	for name, fault := range map[string]tu.Fault{
		"refused": tu.Refused, "reset": tu.Reset, "eof": tu.EOF,
		"401": tu.Status(401), "403": tu.Status(403), "404": tu.Status(404), "410": tu.Status(410),
		"429": tu.Status(429), "500": tu.Status(500), "503": tu.Status(503),
		"410 in the stream": tu.InStream(410), "401 in the stream": tu.InStream(401),
		"hang": tu.Hang,
	} {
		for _, paused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, paused=%v", name, paused), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					obj := cluster(tu.Paused(paused))
					reason := map[bool]string{false: syncgate.ReasonSyncAllowed, true: syncgate.ReasonSyncPaused}
					a := newSyncedAgent(t, syncgate.Options{}, obj)
					got := subscribe(a.gate)

					if name == "hang" {
						// The one request hangs until Run ends.
						a.server.Fail(fault.Times(1))
					} else {
						a.server.Fail(fault)
					}
					a.server.CutWatches()
					a.server.Update(tu.With(obj, tu.Paused(!paused))) // not observed
					time.Sleep(time.Minute)
					synctest.Wait()
					if s := a.gate.State(); s.Paused != paused || s.Reason != reason[paused] {
						t.Errorf("during the fault State() = %+v; want the last state", s)
					}
					if name != "hang" && !strings.Contains(name, "410 in") {
						if err := a.gate.Check(nil); err == nil {
							t.Error("Check() = nil during the fault; want it")
						}
					}
					got.want(t)
					if name == "hang" {
						a.stop()
						return
					}
					a.server.Heal()
					a.eventually(!paused, reason[!paused])
					if err := a.gate.Check(nil); err != nil {
						t.Errorf("Check() = %v after the recovery; want nil", err)
					}
					got.want(t, reason[paused]+">"+reason[!paused])
				})
			})
		}
	}
}
