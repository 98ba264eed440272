package syncgate

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func keyNamed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func TestTableTellsHeartbeatsFromChanges(t *testing.T) {
	table := newTable("")
	table.delivery = ordered
	held := []Hold{{Owner: "backup", Reason: "why"}}
	for _, step := range []struct {
		name string
		key  string
		o    observation
		want []types.UID // the clusters that change
	}{
		{"a first ManagedCluster", "a", observation{clusterID: "x", uid: "1", generation: 1}, []types.UID{"x"}},
		{"a heartbeat", "a", observation{clusterID: "x", uid: "1", generation: 1}, nil},
		{"an edit", "a", observation{clusterID: "x", uid: "1", generation: 2}, []types.UID{"x"}},
		{"a hold", "a", observation{clusterID: "x", uid: "1", generation: 2, holds: held}, []types.UID{"x"}},
		{"the same hold again", "a", observation{clusterID: "x", uid: "1", generation: 2, holds: slices.Clone(held)}, nil},
		{"a duplicate", "b", observation{clusterID: "x", uid: "2", generation: 1}, []types.UID{"x"}},
		{"a move", "b", observation{clusterID: "y", uid: "2", generation: 2}, []types.UID{"x", "y"}},
		{"no cluster ID any more", "b", observation{uid: "2", generation: 3}, []types.UID{"y"}},
		{"an object that never had one", "c", observation{uid: "3", generation: 1}, nil},
	} {
		if got := table.observe(keyNamed(step.key), step.o); !slices.Equal(got, step.want) {
			t.Errorf("%s: changed = %v; want %v", step.name, got, step.want)
		}
	}
	if s, ok := table.stateOf("y"); !ok || s.Phase != Gone {
		t.Errorf("state of a cluster whose ManagedCluster has left = %v, %t; want Gone", s.Phase, ok)
	}
	if s, _ := table.stateOf("x"); s.Reason != ReasonHeld {
		t.Errorf("state of a held cluster = %v; want Held", s.Reason)
	}
}

func TestTableOfOneClusterIgnoresOthers(t *testing.T) {
	table := newTable("x")
	if got := table.observe(keyNamed("a"), observation{clusterID: "y", uid: "1"}); got != nil {
		t.Errorf("observe of another cluster: changed = %v; want none", got)
	}
	if _, ok := table.stateOf("y"); ok || len(table.objects) != 0 {
		t.Error("the table keeps an object of another cluster")
	}
}

func TestTableKeepsObjectsInOrder(t *testing.T) {
	table := newTable("")
	table.delivery = ordered
	for _, name := range []string{"c", "a", "b"} {
		table.observe(keyNamed(name), observation{clusterID: "x", uid: types.UID(name)})
	}
	var got []string
	for _, o := range table.objectsOf("x") {
		got = append(got, o.Name)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("objects = %v; want %v", got, want)
	}
	if got := table.remove(keyNamed("none"), true); got != nil {
		t.Errorf("remove of an unknown key: changed = %v; want none", got)
	}
}
