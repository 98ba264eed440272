package deploy

import (
	"fmt"
	"strings"
	"testing"
)

// manyObjects returns ConfigMaps with one that is first.
func manyObjects(n int, first string) []string {
	raw := []string{first}
	for i := range n {
		raw = append(raw, configMap(fmt.Sprintf("of-many-%d", i), "1"))
	}
	return raw
}

// What does not fit into the status is not deployed, and the status says why. Nothing is
// tried again until the Description is edited.
func TestStatusIsTooLarge(t *testing.T) {
	for name, limit := range map[string]int{"for the list": 700, "for a reason too": 130} {
		t.Run(name, func(t *testing.T) {
			child := newChildStub(t)
			d := deployTo(t, child)
			d.deployed(configMap("first", "1"))
			d.limit.Store(int64(limit))
			d.edit("web", manyObjects(12, configMap("first", "2"))...)
			d.await("the failure", func() bool { return d.phase() == phaseFailure })
			if reason := d.reason(); limit == 700 && !strings.Contains(reason, "lists 13 objects: it is too large for the parent cluster; divide it") {
				t.Errorf("the reason is %q; want that it is too large", reason)
			}
			if got := child.values(); len(got) != 1 || got["first"] != "1" {
				t.Errorf("the child has %v; want nothing that is not listed", got)
			}
			n := len(child.since(0))
			d.create("other", configMap("other", "1"))
			if limit == 130 {
				d.limit.Store(0)
			}
			d.await("another Description", func() bool { return d.phaseOf("other") == phaseSuccess })
			if got := child.since(n); strings.Contains(strings.Join(got, " "), "of-many") {
				t.Errorf("the child was sent %q; want no other try", got)
			}
			d.limit.Store(0)
			d.edit("web", configMap("first", "3"))
			d.await("the edit", func() bool { return d.phase() == phaseSuccess && child.values()["first"] == "3" })
		})
	}
}

// A parked edit does not go on to say Success when the reason does not fit.
func TestPendingIsTooLarge(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("first", "1"))
	d.setPaused(true)
	d.limit.Store(130)
	d.edit("web", configMap("first", "2"))
	d.await("the parked edit", func() bool { return d.phase() == phasePending })
	d.limit.Store(0)
	d.setPaused(false)
	d.await("the edit", func() bool { return d.phase() == phaseSuccess && child.values()["first"] == "2" })
}

// A success that does not fit is none.
func TestSuccessIsTooLarge(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	child.onRequest(func(request string) {
		if request == "PATCH first" {
			d.limit.Store(130)
		}
	})
	d.create("web", configMap("first", "1"))
	d.await("the failure", func() bool { return d.phase() == phaseFailure })
}
