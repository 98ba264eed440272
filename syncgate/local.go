package syncgate

import (
	"slices"
	"strings"
	"sync"
)

// Hold closes the gate for this process itself, whatever is known of the server: for
// example because the disk of the cluster is full, or while its nodes are upgraded. The
// gate is closed when Hold returns. It opens when release has been called and nothing else
// holds it.
//
// The hold is one among the others: it is in State.Holds, with Local true, and in the
// message. Package report writes it into the condition SyncPaused, and package metrics
// counts the pause. It is not an object of the server, so other processes do not observe
// it, and it ends with the process. In a cluster with several parties it closes the gate of
// this one only, so the condition does not become True.
//
// The owner and the reason are for people. Each call is a hold of its own, also with the
// same owner. release may be called from any goroutine, and more than once. Hold and release
// do not block. Hold panics if the owner is empty. After the end of Run, the gate is
// closed anyway.
func (g *Gate) Hold(owner, reason string) (release func()) {
	if owner == "" {
		panic("syncgate: Gate.Hold was called without an owner; pass who holds the cluster, for people")
	}
	held := &Hold{Owner: owner, Reason: reason, Local: true}
	g.hub.update(func() {
		g.locals = append(g.locals, held)
		g.hub.publishLocked(g, 2)
	})
	return sync.OnceFunc(func() {
		g.hub.update(func() {
			g.locals = slices.DeleteFunc(g.locals, func(h *Hold) bool { return h == held })
			g.hub.publishLocked(g, 2)
		})
	})
}

// addLocals adds the local holds of a gate to its state.
func (s *State) addLocals(locals []*Hold) {
	if len(locals) == 0 {
		return
	}
	s.Holds = slices.Clone(s.Holds)
	names := make([]string, 0, len(locals))
	for _, hold := range locals {
		s.Holds = append(s.Holds, *hold)
		names = append(names, hold.String())
	}
	by := "held by " + strings.Join(names, ", ")
	if s.Phase == Open {
		s.Phase, s.Reason, s.Message = Paused, ReasonHeld, by
	} else {
		s.Message += "; " + by
	}
	s.Paused = true
}
