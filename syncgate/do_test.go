//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check admission: a closed gate admits no operation, an admitted
// operation runs to its end with all its nested parts, and the waits end when the
// gate is open, or drained.

func TestNothingStartsOnceClosed(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		finish := make(chan struct{})
		result := make(chan error, 1)
		go func() {
			result <- f.gate.Do(t.Context(), func(ctx context.Context) error {
				<-finish
				return ctx.Err()
			})
		}()
		synctest.Wait()
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		if got := f.gate.InFlight(); got != 1 {
			t.Errorf("InFlight() = %d; want 1: a pause cancels nothing", got)
		}
		err := f.gate.Do(t.Context(), func(context.Context) error { t.Error("ran while closed"); return nil })
		if !errors.Is(err, syncgate.ErrPaused) || errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("Do = %v; want ErrPaused alone", err)
		}
		if !strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "spec.syncPaused") {
			t.Errorf("Do = %q; want the cluster and the holder in it", err)
		}

		drained := make(chan error, 1)
		go func() { drained <- f.gate.WaitDrained(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-drained:
			t.Fatalf("WaitDrained = %v with an operation in flight", err)
		default:
		}
		close(finish)
		if err := <-drained; err != nil {
			t.Errorf("WaitDrained = %v", err)
		}
		if err := <-result; err != nil {
			t.Errorf("the admitted Do = %v; want nil", err)
		}
		if got := f.gate.InFlight(); got != 0 {
			t.Errorf("InFlight() = %d; want 0", got)
		}
	})
}

func TestDoReturnsWhatFnReturns(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		want := errors.New("from fn")
		if err := f.gate.Do(t.Context(), func(context.Context) error { return want }); err != want {
			t.Errorf("Do = %v; want %v itself", err, want)
		}
	})
}

func TestDoneContextAdmitsNothing(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		never := func(context.Context) error { t.Error("ran with a context that is done"); return nil }
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errCause)
		if err := f.gate.Do(ctx, never); !errors.Is(err, errCause) || errors.Is(err, syncgate.ErrPaused) {
			t.Errorf("Do = %v; want the cause and not ErrPaused", err)
		}
		// The same goes for a nested Do.
		_ = f.gate.Do(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(errCause)
			if err := f.gate.Do(ctx, never); !errors.Is(err, errCause) {
				t.Errorf("nested Do = %v; want the cause", err)
			}
			return nil
		})
	})
}

func TestWaitOpenAndWaitDrained(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		if err := f.gate.WaitDrained(t.Context()); err != nil {
			t.Errorf("WaitDrained = %v; want nil: the gate is closed and idle", err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		err := f.gate.WaitOpen(ctx)
		if !errors.Is(err, errCause) || !strings.Contains(err.Error(), "spec.syncPaused") {
			t.Errorf("WaitOpen = %v; want the cause and the holder", err)
		}
		opened := make(chan error, 1)
		go func() { opened <- f.gate.WaitOpen(t.Context()) }()
		synctest.Wait()
		f.Update(obj, tu.With(obj, tu.Unpaused()))
		if err := <-opened; err != nil {
			t.Errorf("WaitOpen = %v", err)
		}
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Second, errCause)
		defer cancel()
		if err := f.gate.WaitDrained(ctx); !errors.Is(err, errCause) {
			t.Errorf("WaitDrained = %v; want the cause: the gate is open", err)
		}

		go func() { opened <- f.gate.WaitDrained(t.Context()) }()
		_ = f.gate.Do(t.Context(), func(ctx context.Context) error {
			if err := f.gate.WaitDrained(ctx); err == nil || !strings.Contains(err.Error(), "inside") {
				t.Errorf("WaitDrained inside an operation = %v; want an error at once", err)
			}
			return nil
		})
		f.stop()
		if err := <-opened; err != nil {
			t.Errorf("WaitDrained at the end = %v; want nil", err)
		}
		if err := f.gate.WaitOpen(t.Context()); !errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("WaitOpen after the end = %v; want ErrStopped", err)
		}
	})
}

func TestNestedPartsAreAdmitted(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		type key struct{}
		last := make(chan struct{})
		var leaked context.Context
		err := f.gate.Do(t.Context(), func(ctx context.Context) error {
			f.Update(obj, tu.With(obj, tu.Paused(true)))
			leaked = ctx
			derived, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 1), time.Hour)
			defer cancel()
			if err := f.gate.Do(derived, func(ctx context.Context) error {
				return f.gate.Do(ctx, func(context.Context) error {
					if got := f.gate.InFlight(); got != 1 {
						t.Errorf("InFlight() = %d inside of nested parts; want 1", got)
					}
					return nil
				})
			}); err != nil {
				t.Errorf("nested Do during a pause = %v; want nil", err)
			}
			if err := f.hub.Gate("another").Do(ctx, nothing); !errors.Is(err, syncgate.ErrPaused) {
				t.Errorf("Do of another gate = %v; want ErrPaused", err)
			}
			if err := f.gate.Do(t.Context(), nothing); !errors.Is(err, syncgate.ErrPaused) {
				t.Errorf("Do with a context from outside = %v; want ErrPaused", err)
			}
			started := make(chan struct{})
			go func() { // a part that outlives the first
				_ = f.gate.Do(ctx, func(context.Context) error { close(started); <-last; return nil })
			}()
			<-started
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.gate.InFlight(); got != 1 {
			t.Errorf("InFlight() = %d while a part runs; want 1", got)
		}
		if err := f.gate.Do(leaked, nothing); err != nil {
			t.Errorf("Do while a part runs = %v; want nil: the operation is in flight", err)
		}
		close(last)
		if err := f.gate.WaitDrained(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.gate.Do(leaked, nothing); !errors.Is(err, syncgate.ErrPaused) {
			t.Errorf("Do with the context of an operation that ended = %v; want ErrPaused", err)
		}
	})
}

func TestPanicAndGoexitRelease(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			_ = f.gate.Do(t.Context(), func(ctx context.Context) error {
				return f.gate.Do(ctx, func(context.Context) error { panic("oops") })
			})
		}()
		if got := f.gate.InFlight(); got != 0 {
			t.Errorf("InFlight() = %d after a panic; want 0", got)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = f.gate.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		if got := f.gate.InFlight(); got != 0 {
			t.Errorf("InFlight() = %d after Goexit; want 0", got)
		}
	})
}

// What was not known is no pause, and its end no resume.
func TestStatsOfAClusterThatAppears(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		for _, paused := range []bool{false, true} {
			inBubble(t, syncgate.Options{FailOpen: failOpen}, nil, func(t *testing.T, f *fixture) {
				f.want(!failOpen, syncgate.Unknown, syncgate.ReasonNotFound)
				f.Add(cluster(tu.Paused(paused)))
				if s := f.gate.Stats(); f.gate.Paused() != paused || s != (syncgate.Stats{}) {
					t.Errorf("FailOpen = %t, paused = %t: Stats() = %+v; want none", failOpen, paused, s)
				}
			})
		}
	}
}

func TestStats(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		_ = f.gate.Do(t.Context(), func(ctx context.Context) error { return f.gate.Do(ctx, nothing) })
		for i := range 5 {
			next := tu.With(obj, tu.Paused(i%2 == 0))
			f.Update(obj, next)
			obj = next
		}
		_ = f.gate.Do(t.Context(), nothing)
		_ = f.gate.Do(t.Context(), nothing)
		f.stop()
		want := syncgate.Stats{Admitted: 1, Refused: 2, Pauses: 3, Resumes: 2}
		if diff := cmp.Diff(want, f.gate.Stats()); diff != "" {
			t.Errorf("Stats() (-want +got):\n%s", diff)
		}
	})
}
