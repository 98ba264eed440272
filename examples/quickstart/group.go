package main

import (
	"context"
	"sync"
)

// group runs what an agent and a hub run. (golang.org/x/sync/errgroup would do as well.)
type group struct {
	cancel  context.CancelCauseFunc
	running sync.WaitGroup

	once sync.Once
	err  error // the first one; read after running
}

// newGroup returns also the context for its members, which ends with the first error of one, too.
func newGroup(ctx context.Context) (context.Context, *group) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &group{cancel: cancel}
}

func (g *group) start(ctx context.Context, run func(context.Context) error) {
	g.running.Go(func() {
		if err := run(ctx); err != nil {
			g.once.Do(func() { g.err = err })
			g.cancel(err)
		}
	})
}

// wait waits for all members and returns the first error of one.
func (g *group) wait() error {
	g.running.Wait()
	return g.err
}

// stop ends all members, waits for them and returns the first error of one.
func (g *group) stop() error {
	g.cancel(nil)
	return g.wait()
}
