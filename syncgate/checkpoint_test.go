//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check Checkpoint: a long operation learns that a pause waits for it, and
// what it leaves undone comes back.

func TestCheckpointEndsALongOperation(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var requeued recorder
		b := syncgate.NewBacklog(requeued.add)
		next := make(chan struct{})
		written := 0
		write := func(ctx context.Context) error {
			for range 10 {
				if err := f.gate.Checkpoint(ctx); err != nil {
					return fmt.Errorf("deploy: %w", err)
				}
				// Nested calls are part of the operation, so they don't stop it.
				if err := f.gate.Do(ctx, func(context.Context) error { written++; <-next; return nil }); err != nil {
					return err
				}
			}
			return nil
		}
		type result struct {
			parked bool
			err    error
		}
		done := make(chan result, 1)
		go func() {
			parked, err := b.Do(t.Context(), f.gate, "app", write)
			done <- result{parked, err}
		}()
		synctest.Wait()
		next <- struct{}{}
		synctest.Wait()
		paused := tu.With(obj, tu.Paused(true))
		f.Update(obj, paused)
		if got := f.gate.InFlight(); got != 1 || written != 2 {
			t.Errorf("InFlight() = %d, %d writes begun; want 1 and 2", got, written)
		}
		next <- struct{}{} // the write that the pause has met
		if got := <-done; !got.parked || got.err != nil {
			t.Errorf("Do = %+v; want parked and no error", got)
		}
		if err := f.gate.WaitDrained(t.Context()); err != nil || written != 2 {
			t.Errorf("WaitDrained = %v after %d writes; want nil after 2", err, written)
		}
		requeued.want(t)
		f.Update(paused, tu.With(paused, tu.Paused(false)))
		requeued.want(t, "app")
	})
}

func TestCheckpoint(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := f.gate.Checkpoint(ctx); err != nil {
			t.Errorf("Checkpoint = %v at an open gate; want nil", err)
		}
		cancel(errCause)
		if err := f.gate.Checkpoint(ctx); !errors.Is(err, errCause) || errors.Is(err, syncgate.ErrPaused) {
			t.Errorf("Checkpoint = %v after the end of ctx; want its cause", err)
		}
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		if err := f.gate.Checkpoint(t.Context()); !errors.Is(err, syncgate.ErrPaused) || errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("Checkpoint = %v at a closed gate; want ErrPaused alone", err)
		}
		if got := f.gate.Stats().Refused; got != 0 {
			t.Errorf("Refused = %d; want 0, since a checkpoint is no attempt", got)
		}
		f.stop()
		if err := f.gate.Checkpoint(t.Context()); !errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("Checkpoint = %v after the end; want ErrStopped", err)
		}
	})
}

func TestCheckpointOfAGateThatOpensAgain(t *testing.T) {
	obj := cluster()
	other := tu.ManagedCluster("other", "child", "other", tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj, other}, func(t *testing.T, f *fixture) {
		var requeued recorder
		b := syncgate.NewBacklog(requeued.add)
		paused := tu.With(obj, tu.Paused(true))
		runs := 0
		parked, err := b.Do(t.Context(), f.gate, "app", func(ctx context.Context) error {
			runs++
			if runs > 1 {
				return nil
			}
			f.Update(obj, paused)
			err := f.gate.Checkpoint(ctx)
			f.Update(paused, tu.With(paused, tu.Paused(false)))
			return err
		})
		if parked || err != nil || runs != 2 {
			t.Errorf("Do = %v, %v after %d runs; want false, nil after 2", parked, err, runs)
		}
		// The refusal of another gate is an error like any other.
		parked, err = b.Do(t.Context(), f.gate, "app", func(ctx context.Context) error { return f.hub.Gate("other").Checkpoint(ctx) })
		if parked || !errors.Is(err, syncgate.ErrPaused) {
			t.Errorf("Do = %v, %v; want false and fn's own error", parked, err)
		}
		requeued.want(t)
	})
}

// Deployers collect the errors of many writes, and clients wrap those of a transport.
func TestCheckpointInOtherErrors(t *testing.T) {
	wraps := map[string]func(error) error{
		"fmt":       func(err error) error { return fmt.Errorf("deploy: %w", err) },
		"join":      func(err error) error { return errors.Join(errCause, err) },
		"transport": func(err error) error { return &url.Error{Op: "Post", URL: "https://child", Err: err} },
		"aggregate": func(err error) error { return utilerrors.NewAggregate([]error{errCause, err}) },
		"nested aggregate": func(err error) error {
			return fmt.Errorf("deploy: %w", utilerrors.NewAggregate([]error{errCause, &url.Error{Op: "Post", Err: err}}))
		},
	}
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			obj := cluster()
			other := tu.ManagedCluster("other", "child", "other", tu.Paused(true))
			inBubble(t, syncgate.Options{}, []any{obj, other}, func(t *testing.T, f *fixture) {
				b := syncgate.NewBacklog(func(string) {})
				parked, err := b.Do(t.Context(), f.gate, "app", func(ctx context.Context) error {
					return wrap(f.hub.Gate("other").Checkpoint(ctx))
				})
				if parked || !errors.Is(err, syncgate.ErrPaused) {
					t.Errorf("Do = %v, %v for the refusal of another gate; want false and fn's own error", parked, err)
				}
				parked, err = b.Do(t.Context(), f.gate, "app", func(ctx context.Context) error {
					f.Update(obj, tu.With(obj, tu.Paused(true)))
					return wrap(f.gate.Checkpoint(ctx))
				})
				if !parked || err != nil {
					t.Errorf("Do = %v, %v; want parked and no error", parked, err)
				}
			})
		})
	}
}

func TestCheckpointAtTheEnd(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		b := syncgate.NewBacklog(func(string) { t.Error("requeued after the end") })
		parked, err := b.Do(t.Context(), f.gate, "app", func(ctx context.Context) error {
			f.stop()
			return f.gate.Checkpoint(ctx)
		})
		if parked || !errors.Is(err, syncgate.ErrStopped) || b.Len() != 0 {
			t.Errorf("Do = %v, %v, %d keys; want false, ErrStopped, none", parked, err, b.Len())
		}
	})
}
