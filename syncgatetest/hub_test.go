//go:build go1.25

package syncgatetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
	"github.com/clusternet/syncgate/syncgatetest"
)

const id = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"

func TestMain(m *testing.M) { testutil.Main(m) }

func TestEachChangeIsThereAtOnce(t *testing.T) {
	hub := syncgatetest.NewHub(t, id, "other")
	gate := hub.Gate(id)
	for _, step := range []struct {
		name   string
		do     func()
		phase  syncgate.Phase
		paused bool
		reason string
	}{
		{"new", func() {}, syncgate.Open, false, syncgate.ReasonSyncAllowed},
		{"pause", func() { hub.Pause(id) }, syncgate.Paused, true, syncgate.ReasonSyncPaused},
		{"hold", func() { hub.Hold(id, "backup", "nightly") }, syncgate.Paused, true, syncgate.ReasonSyncPaused},
		{"resume", func() { hub.Resume(id) }, syncgate.Paused, true, syncgate.ReasonHeld},
		{"release", func() { hub.Release(id, "backup") }, syncgate.Open, false, syncgate.ReasonSyncAllowed},
		{"malform", func() { hub.Malform(id) }, syncgate.Paused, true, syncgate.ReasonMalformed},
		{"delete", func() { hub.Delete(id) }, syncgate.Gone, true, syncgate.ReasonDeleted},
		{"register", func() { hub.Register(id) }, syncgate.Open, false, syncgate.ReasonSyncAllowed},
		{"another cluster", func() { hub.Pause("other") }, syncgate.Open, false, syncgate.ReasonSyncAllowed},
		{"mode", func() { hub.SetMode(id, syncgate.Pull, true) }, syncgate.Open, false, syncgate.ReasonSyncAllowed},
	} {
		step.do()
		if s := gate.State(); s.Phase != step.phase || s.Paused != step.paused || s.Reason != step.reason || gate.Paused() != step.paused {
			t.Errorf("after %s: %v %v %s; want %v %v %s", step.name, s.Phase, s.Paused, s.Reason, step.phase, step.paused, step.reason)
		}
	}
	if s := gate.State(); s.SyncMode != syncgate.Pull || s.AppPusher == nil || !*s.AppPusher {
		t.Errorf("State() = %+v; want the mode", s)
	}
	away := errors.New("connection refused")
	hub.SetError(away)
	if err := gate.Check(nil); !errors.Is(err, away) || gate.Paused() {
		t.Errorf("Check = %v, Paused() = %v while the server is away; want its error, and the state as it was", err, gate.Paused())
	}
	hub.SetError(nil)
	if err := gate.Check(nil); err != nil {
		t.Errorf("Check = %v; want nil", err)
	}
}

func TestUnsynced(t *testing.T) {
	hub := syncgatetest.NewUnsyncedHub(t)
	hub.Register(id)
	if s := hub.Gate(id).State(); !s.Paused || s.Reason != syncgate.ReasonNotSynced {
		t.Errorf("State() = %+v before Sync; want NotSynced", s)
	}
	hub.Sync()
	if hub.Gate(id).Paused() {
		t.Error("Paused() = true after Sync; want false")
	}
}

// What is parked comes back in a bubble, without waiting.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hub := syncgatetest.NewHub(t, id)
		var requeued []string
		backlog := syncgate.NewBacklog(func(key string) { requeued = append(requeued, key) })
		hub.Pause(id)
		if parked, err := backlog.Do(t.Context(), hub.Gate(id), "app", func(context.Context) error { return nil }); !parked || err != nil {
			t.Errorf("Do = %v, %v; want parked", parked, err)
		}
		hub.Resume(id)
		synctest.Wait()
		if !slices.Equal(requeued, []string{"app"}) {
			t.Errorf("requeued %q; want the key", requeued)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v of the bubble's time", took)
		}
	})
}
