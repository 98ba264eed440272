//go:build go1.25

package syncgate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// These tests drive an admission without a hub.

var (
	openState    = State{Phase: Open, Reason: ReasonSyncAllowed}
	pausedState  = State{Phase: Paused, Paused: true, Reason: ReasonSyncPaused}
	stoppedState = State{Phase: Unknown, Paused: true, Reason: ReasonStopped}
)

func newAdmission(s State) *admission {
	a := &admission{clusterID: "id"}
	a.publish(s)
	return a
}

func mustAdmit(t *testing.T, a *admission, ctx context.Context) (*operation, context.Context) { //nolint:revive // the test comes first
	t.Helper()
	op, ctx, err := a.admit(ctx)
	if err != nil {
		t.Fatalf("admit = %v; want an operation", err)
	}
	return op, ctx
}

func TestAdmissionFollowsTheState(t *testing.T) {
	a := newAdmission(openState)
	op, _ := mustAdmit(t, a, context.Background())
	a.publish(pausedState)
	if _, _, err := a.admit(context.Background()); !errors.Is(err, ErrPaused) || errors.Is(err, ErrStopped) {
		t.Errorf("admit of a closed gate = %v; want ErrPaused", err)
	}
	if got := a.countInFlight(); got != 1 {
		t.Errorf("in flight after the pause = %d; want 1", got)
	}
	a.release(op)
	if got := a.countInFlight(); got != 0 {
		t.Errorf("in flight after the end = %d; want 0", got)
	}
	a.publish(stoppedState)
	if _, _, err := a.admit(context.Background()); !errors.Is(err, ErrStopped) || !errors.Is(err, ErrPaused) {
		t.Errorf("admit after the end of Run = %v; want ErrStopped and ErrPaused", err)
	}
	if got, want := a.refused.Load(), uint64(2); got != want {
		t.Errorf("refused = %d; want %d", got, want)
	}
}

func TestAdmissionNests(t *testing.T) {
	a, other := newAdmission(openState), newAdmission(openState)
	op, ctx := mustAdmit(t, a, context.Background())
	a.publish(pausedState)
	_, ctx = mustAdmit(t, other, ctx) // an operation of another gate in between
	nested, _ := mustAdmit(t, a, ctx)
	if nested != op || a.countInFlight() != 1 {
		t.Errorf("nested operation: own = %t, in flight = %d; want the outer one, counted once", nested != op, a.countInFlight())
	}
	a.release(op)
	if a.countInFlight() != 1 {
		t.Error("the operation has ended before its nested part")
	}
	a.release(nested)
	if a.countInFlight() != 0 {
		t.Error("the operation is in flight after its last part has ended")
	}
	if _, _, err := a.admit(ctx); !errors.Is(err, ErrPaused) {
		t.Errorf("admit with the context of an ended operation = %v; want ErrPaused", err)
	}
}

// A waiter is woken by the last release alone: no state is published after it.
func TestAdmissionReleaseWakesDrainWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(openState)
		first, _ := mustAdmit(t, a, t.Context())
		second, _ := mustAdmit(t, a, t.Context())
		a.publish(pausedState)
		drained := make(chan error, 1)
		go func() { drained <- a.waitDrained(t.Context()) }()
		synctest.Wait()
		a.release(first)
		synctest.Wait()
		select {
		case err := <-drained:
			t.Fatalf("waitDrained = %v with an operation in flight", err)
		default:
		}
		a.release(second)
		if err := <-drained; err != nil {
			t.Errorf("waitDrained = %v; want nil", err)
		}
	})
}

func TestAdmissionWaitsEndWithTheirContext(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	if err := newAdmission(pausedState).waitOpen(ctx); !errors.Is(err, gone) {
		t.Errorf("waitOpen = %v; want the cause", err)
	}
	if err := newAdmission(openState).waitDrained(ctx); !errors.Is(err, gone) {
		t.Errorf("waitDrained = %v; want the cause", err)
	}
	if err := newAdmission(stoppedState).waitOpen(context.Background()); !errors.Is(err, ErrStopped) {
		t.Errorf("waitOpen after the end of Run = %v; want ErrStopped", err)
	}
	a := newAdmission(openState)
	_, inside := mustAdmit(t, a, context.Background())
	if err := a.waitDrained(inside); !errors.Is(err, errInsideOperation) {
		t.Errorf("waitDrained inside an operation = %v; want %v", err, errInsideOperation)
	}
}

func TestAdmissionCounts(t *testing.T) {
	unknown := State{Phase: Unknown, Reason: ReasonNotSynced} // as with FailOpen
	a := newAdmission(unknown)
	for _, s := range []State{pausedState, openState, openState, pausedState, openState, stoppedState} {
		a.publish(s)
	}
	if a.counts.Pauses != 1 || a.counts.Resumes != 2 {
		t.Errorf("pauses, resumes = %d, %d; want 1, 2: the first state is no transition, and the end is none",
			a.counts.Pauses, a.counts.Resumes)
	}
}

func TestAdmissionRevisions(t *testing.T) {
	a := newAdmission(openState)
	for _, step := range []struct {
		name      string
		state     State
		wantIsNew bool
	}{
		{"the same again", openState, false},
		{"another generation", State{Phase: Open, Reason: ReasonSyncAllowed, Generation: 2}, false},
		{"a pause", pausedState, true},
		{"another holder", State{Phase: Paused, Paused: true, Reason: ReasonSyncPaused, Holds: []Hold{{Owner: "x"}}}, true},
		{"the resume", openState, true},
	} {
		before, _ := a.snapshots()
		isNew := a.publish(step.state)
		after, lastClosed := a.snapshots()
		if isNew != step.wantIsNew || isNew != (after.revision > before.revision) {
			t.Errorf("%s: new decision = %t, revision %d after %d; want new = %t", step.name, isNew, after.revision, before.revision, step.wantIsNew)
		}
		if after.Paused && lastClosed != after {
			t.Errorf("%s: the last closed snapshot is not the one published", step.name)
		}
	}
}
