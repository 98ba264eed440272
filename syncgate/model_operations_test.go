//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"testing/synctest"

	"github.com/clusternet/syncgate/syncgate"
)

// The operations of the model test: which are admitted, and what is in flight.

// operations are all operations on one gate.
type operations struct {
	gate     *syncgate.Gate
	running  []*operation
	ended    []context.Context // of operations that have ended
	admitted uint64
	refused  uint64
	inexact  bool // refused was not counted
	waits    []*wait
}

// operation is an admitted Do with what is nested in it.
type operation struct {
	ctx   context.Context //nolint:containedctx // the one that its function got
	parts []*part
}

// part is one call of Do that runs.
type part struct {
	leave chan struct{}
	ended chan error
}

// wait is a call of WaitOpen or WaitDrained.
type wait struct {
	open  bool
	ended chan error
	may   bool // what it waits for was so for a moment
}

var errOwn = errors.New("the operation's own error")

// do calls Do, and waits until it runs or has returned.
func (o *operations) do(ctx context.Context) (*part, context.Context, error) {
	p := &part{leave: make(chan struct{}), ended: make(chan error, 1)}
	admitted := make(chan context.Context, 1)
	go func() {
		p.ended <- o.gate.Do(ctx, func(ctx context.Context) error {
			admitted <- ctx
			<-p.leave
			return errOwn
		})
	}()
	synctest.Wait()
	select {
	case ctx := <-admitted:
		return p, ctx, nil
	default:
		return nil, nil, <-p.ended
	}
}

// operate starts an operation. want: it must be admitted.
func (o *operations) operate(ctx context.Context) error {
	closed, stopped := o.gate.Paused(), o.gate.State().Reason == syncgate.ReasonStopped
	p, inner, err := o.do(ctx)
	switch {
	case closed && err == nil:
		o.running = append(o.running, &operation{inner, []*part{p}})
		return errors.New("an operation started at a closed gate")
	case closed && (!errors.Is(err, syncgate.ErrPaused) || errors.Is(err, syncgate.ErrStopped) != stopped):
		return fmt.Errorf("Do at a closed gate = %w; want ErrPaused (stopped: %t)", err, stopped)
	case closed:
		o.refused++
	case err != nil:
		return fmt.Errorf("Do at an open gate = %w", err)
	default:
		o.admitted++
		o.running = append(o.running, &operation{inner, []*part{p}})
	}
	return nil
}

// nest starts a part of an operation that runs. It is admitted, pause or not.
func (o *operations) nest(n int) error {
	if len(o.running) == 0 {
		return nil
	}
	op := o.running[n%len(o.running)]
	p, _, err := o.do(op.ctx)
	if err != nil {
		return fmt.Errorf("a nested Do = %w; want it admitted", err)
	}
	op.parts = append(op.parts, p)
	if err := o.gate.WaitDrained(op.ctx); err == nil {
		return errors.New("WaitDrained inside an operation = nil; want an error")
	}
	return nil
}

// leave ends a part of an operation.
func (o *operations) leave(n, m int) error {
	if len(o.running) == 0 {
		return nil
	}
	n %= len(o.running)
	op := o.running[n]
	m %= len(op.parts)
	p := op.parts[m]
	op.parts = append(op.parts[:m:m], op.parts[m+1:]...)
	if len(op.parts) == 0 {
		o.running = append(o.running[:n:n], o.running[n+1:]...)
		o.ended = append(o.ended, op.ctx)
	}
	close(p.leave)
	if err := <-p.ended; err != errOwn {
		return fmt.Errorf("Do = %w; want what the operation returned", err)
	}
	return nil
}

// special starts operations that are out of the ordinary.
func (o *operations) special(do string) error {
	switch do {
	case "late": // with the context of an operation that has ended
		if len(o.ended) == 0 {
			return nil
		}
		return o.operate(o.ended[len(o.ended)-1])
	case "done": // with a context that has ended
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errCause)
		if err := o.gate.Do(ctx, nothing); !errors.Is(err, errCause) || errors.Is(err, syncgate.ErrPaused) {
			return fmt.Errorf("Do with a context that is done = %w; want its cause", err)
		}
		if err := o.gate.Checkpoint(ctx); !errors.Is(err, errCause) {
			return fmt.Errorf("Checkpoint with a context that is done = %w; want its cause", err)
		}
	case "panic":
		if o.gate.Paused() {
			return nil
		}
		o.admitted++
		func() {
			defer func() { _ = recover() }()
			_ = o.gate.Do(context.Background(), func(context.Context) error { panic("of the operation") })
		}()
	}
	return nil
}

// wait starts a WaitOpen or a WaitDrained.
func (o *operations) wait(ctx context.Context, open bool) {
	w := &wait{open: open, ended: make(chan error, 1)}
	o.waits = append(o.waits, w)
	go func() {
		if open {
			w.ended <- o.gate.WaitOpen(ctx)
		} else {
			w.ended <- o.gate.WaitDrained(ctx)
		}
	}()
}

// observed notes what the gate is now, for the waits.
func (o *operations) observed(paused bool) {
	for _, w := range o.waits {
		w.may = w.may || o.isSo(w, paused)
	}
}

func (o *operations) isSo(w *wait, paused bool) bool {
	return w.open && !paused || !w.open && paused && len(o.running) == 0
}

// complete checks the counts and the waits. Nothing must run.
func (o *operations) complete(s syncgate.State) error {
	if got := o.gate.InFlight(); got != len(o.running) {
		return fmt.Errorf("InFlight() = %d; want %d", got, len(o.running))
	}
	if stats := o.gate.Stats(); stats.Admitted != o.admitted || stats.Refused != o.refused && !o.inexact {
		return fmt.Errorf("Stats() = %+v; want %d admitted and %d refused", stats, o.admitted, o.refused)
	}
	if err := o.gate.Checkpoint(context.Background()); (err != nil) != s.Paused || err != nil && !errors.Is(err, syncgate.ErrPaused) {
		return fmt.Errorf("Checkpoint = %w at a gate with Paused = %t", err, s.Paused)
	}
	left := o.waits[:0]
	for _, w := range o.waits {
		stopped := w.open && s.Reason == syncgate.ReasonStopped
		select {
		case err := <-w.ended:
			switch {
			case stopped && errors.Is(err, syncgate.ErrStopped):
			case err != nil:
				return fmt.Errorf("a wait (open: %t) = %w", w.open, err)
			case !w.may:
				return fmt.Errorf("a wait (open: %t) ended too early", w.open)
			}
		default:
			if stopped || o.isSo(w, s.Paused) {
				return fmt.Errorf("a wait (open: %t) goes on; want its end", w.open)
			}
			left = append(left, w)
		}
	}
	o.waits = left
	return nil
}
