package syncgate

import (
	"context"
	"slices"
	"testing"
)

// The queue holds a gate once, in the order of adding, and takes one back after its
// turn.
func TestGateQueueHoldsEachGateOnce(t *testing.T) {
	q := newGateQueue()
	a, b := &Gate{clusterID: "a"}, &Gate{clusterID: "b"}
	q.add(a, b, a)
	q.add(b)
	var got []*Gate
	for g := q.next(); g != nil; g = q.next() {
		got = append(got, g)
		if len(got) == 1 {
			q.add(a)
		}
	}
	if want := []*Gate{a, b, a}; !slices.Equal(got, want) {
		t.Errorf("gates = %v; want a, b, a", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	q.add(a, b)
	q.process(ctx, func(g *Gate) {
		if g == b {
			t.Error("a gate is processed after the end")
		}
		cancel()
	})
}
