package syncgate_test

import (
	"sync/atomic"
	"testing"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// A callback that ran before the flip would find nothing new, and its change would be
// lost.
func TestNoChangeIsLostUnderLoad(t *testing.T) {
	obj := cluster()
	hub, source := running(t, obj)
	gate := hub.Gate(id)
	var paused atomic.Bool
	gate.OnChange(func(c syncgate.Change) { paused.Store(c.New.Paused) })
	closed, open := tu.With(obj, tu.Paused(true)), tu.With(obj, tu.Paused(false))
	for i := range 20_000 {
		want := i%2 == 0
		if want {
			source.Update(open, closed)
		} else {
			source.Update(closed, open)
		}
		eventually(t, "the callback gets the change", func() bool { return paused.Load() == want })
	}
}
