//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check Gate.Hold: this process closes its gate itself.

func TestLocalHoldClosesBeforeItReturns(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var requeued recorder
		b := syncgate.NewBacklog(requeued.add)
		release := f.gate.Hold("disk", "full")
		s := f.gate.State()
		if !f.gate.Paused() || s.Phase != syncgate.Paused || s.Reason != syncgate.ReasonHeld || s.Message != "held by disk (full) of this process" {
			t.Errorf("State() = %+v; want it held by the disk", s)
		}
		if diff := cmp.Diff([]syncgate.Hold{{Owner: "disk", Reason: "full", Local: true}}, s.Holds); diff != "" {
			t.Errorf("Holds (-want +got):\n%s", diff)
		}
		if parked, err := b.Do(t.Context(), f.gate, "app", nothing); !parked || err != nil {
			t.Errorf("Do = %v, %v; want parked", parked, err)
		}

		// One holder among others: of the server, and of this process.
		again := f.gate.Hold("disk", "full")
		held := tu.With(obj, tu.Held("backup", "nightly"))
		f.Update(obj, held)
		for _, owners := range []string{"backup disk disk", "backup disk", "backup"} {
			var got []string
			for _, h := range f.gate.State().Holds {
				got = append(got, h.Owner)
			}
			if strings.Join(got, " ") != owners || !f.gate.Paused() {
				t.Errorf("held by %v, Paused() = %v; want %s, true", got, f.gate.Paused(), owners)
			}
			release()
			release() // is the same release
			release = again
		}
		requeued.want(t)
		f.Update(held, obj)
		if f.gate.Paused() {
			t.Errorf("State() = %+v; want it open", f.gate.State())
		}
		requeued.want(t, "app")
	})
}

func TestLocalHoldWhateverIsKnown(t *testing.T) {
	obj := cluster()
	for name, tt := range map[string]struct {
		objs   []any
		change func(f *fixture)
		want   string
	}{
		"not found":      {nil, func(*fixture) {}, syncgate.ReasonNotFound},
		"server is away": {[]any{obj}, func(f *fixture) { f.SetErr(errors.New("refused")) }, syncgate.ReasonHeld},
		"gone":           {[]any{obj}, func(f *fixture) { f.Delete(obj) }, syncgate.ReasonDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{FailOpen: true}, tt.objs, func(t *testing.T, f *fixture) {
				tt.change(f)
				if f.gate.Paused() {
					t.Fatalf("State() = %+v; want it open", f.gate.State())
				}
				release := f.gate.Hold("disk", "")
				if s := f.gate.State(); !s.Paused || s.Reason != tt.want || !strings.Contains(s.Message, "held by disk of this process") {
					t.Errorf("State() = %+v; want it closed, with reason %s, and the holder", s, tt.want)
				}
				release()
				if f.gate.Paused() {
					t.Errorf("State() = %+v after the release; want it open", f.gate.State())
				}
			})
		})
	}
}

// A release opens nothing that is closed for another reason.
func TestLocalHoldAroundTheEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{FailOpen: true})
		if err != nil {
			t.Fatal(err)
		}
		gate := hub.Gate(id)
		release := gate.Hold("disk", "full") // before Run
		if !gate.Paused() {
			t.Error("Paused() = false before Run; want true")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- hub.Run(ctx) }()
		synctest.Wait()
		source.Add(cluster(tu.Paused(true)))
		source.Sync()
		time.Sleep(time.Second)
		release()
		if s := gate.State(); s.Reason != syncgate.ReasonSyncPaused || len(s.Holds) != 1 {
			t.Errorf("State() = %+v; want it paused by the field alone", s)
		}
		late := gate.Hold("disk", "full")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		late()
		gate.Hold("disk", "full")()
		if s := gate.State(); s.Reason != syncgate.ReasonStopped || !gate.Paused() {
			t.Errorf("State() = %+v; want it stopped", s)
		}
		defer func() {
			if recover() == nil {
				t.Error("Hold without an owner has not panicked")
			}
		}()
		gate.Hold("", "why")
	})
}

// A pause by a local hold drains, is notified and counted as any other.
func TestLocalHoldIsAPause(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		var changes []string
		f.gate.OnChange(func(c syncgate.Change) { changes = append(changes, c.New.Reason) })
		finish, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- f.gate.Do(t.Context(), func(context.Context) error { <-finish; return nil })
		}()
		synctest.Wait()
		release := f.gate.Hold("disk", "full")
		drained := make(chan error, 1)
		go func() { drained <- f.gate.WaitDrained(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-drained:
			t.Errorf("WaitDrained = %v with an operation in flight", err)
		default:
		}
		close(finish)
		if err := errors.Join(<-drained, <-ended); err != nil {
			t.Error(err)
		}
		release()
		if err := f.gate.WaitOpen(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		want := []string{syncgate.ReasonSyncAllowed, syncgate.ReasonHeld, syncgate.ReasonSyncAllowed}
		if diff := cmp.Diff(want, changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		if s := f.gate.Stats(); s.Pauses != 1 || s.Resumes != 1 {
			t.Errorf("Stats() = %+v; want a pause and a resume", s)
		}
	})
}
