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

// A queue that drops what was taken keeps the keys that were not.
func TestKeyQueueIsCompacted(t *testing.T) {
	q := keyQueue[int]{at: map[int]int{}}
	for i := range 100 {
		q.add(i)
	}
	for range 90 {
		q.take()
	}
	q.remove(95)
	q.add(100) // compacts
	if n := len(q.order); n != 10 {
		t.Errorf("places = %d; want 10", n)
	}
	q.add(95)
	for _, want := range []int{90, 91, 92, 93, 94, 96, 97, 98, 99, 100, 95} {
		if key, ok := q.take(); !ok || key != want {
			t.Errorf("take() = %d, %t; want %d", key, ok, want)
		}
	}
	if key, ok := q.take(); ok {
		t.Errorf("take() = %d; want none", key)
	}
}
