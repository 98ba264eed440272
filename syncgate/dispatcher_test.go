package syncgate

import (
	"context"
	"testing"
)

func newDispatcher() *dispatcher {
	return &dispatcher{
		queue:   newGateQueue(),
		export:  func(s *State) State { return *s },
		gates:   func() []*Gate { return nil },
		initial: func() State { return State{Paused: true, Reason: ReasonNotSynced} },
		byGate:  map[*Gate][]*subscription{},
	}
}

func newGate(s State) *Gate {
	g := &Gate{clusterID: "id"}
	g.admission.publish(s)
	return g
}

// A callback that ends the run is the last one, whatever is left to deliver.
func TestDispatcherStartsNoCallbackAfterTheEnd(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	d, g := newDispatcher(), newGate(pausedState)
	calls := 0
	for range 2 {
		d.subscribe(g, func(Change) { calls++; end() })
	}
	synced := make(chan struct{})
	close(synced)
	d.run(ctx, synced)
	if calls != 1 {
		t.Errorf("callbacks = %d; want 1", calls)
	}
}

func TestUndelivered(t *testing.T) {
	snap := func(revision uint64, s State) *snapshot { return &snapshot{State: s, revision: revision} }
	open1, closed2, open3 := snap(1, openState), snap(2, pausedState), snap(3, openState)
	held4 := snap(4, State{Phase: Paused, Paused: true, Reason: ReasonHeld})
	for name, tt := range map[string]struct {
		old, current, lastClosed *snapshot
		want                     []*snapshot
	}{
		"nothing new":                     {open3, open3, closed2, nil},
		"a heartbeat":                     {open3, snap(3, State{Phase: Open, Reason: ReasonSyncAllowed, Generation: 9}), closed2, nil},
		"a pause":                         {open1, closed2, closed2, []*snapshot{closed2}},
		"a pause and a resume, merged":    {open1, open3, closed2, []*snapshot{closed2, open3}},
		"a resume and a pause, merged":    {closed2, held4, held4, []*snapshot{held4}},
		"back to the decision before":     {closed2, snap(4, pausedState), closed2, nil},
		"open before anything was closed": {open1, open3, nil, nil},
	} {
		got := undelivered(tt.old, tt.current, tt.lastClosed)
		if len(got) != len(tt.want) {
			t.Errorf("%s: %d snapshots; want %d", name, len(got), len(tt.want))
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s: snapshot %d has revision %d; want %d", name, i, got[i].revision, tt.want[i].revision)
			}
		}
	}
}
