package syncgate

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
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

// A cluster that has gone before it was decided on leaves nothing behind.
func TestTableForgetsWhatWasNeverDecided(t *testing.T) {
	table := newTable("")
	table.delivery = relisted
	table.observe(keyNamed("a"), observation{clusterID: "x", uid: "1"})
	table.remove(keyNamed("a"), true)
	if len(table.clusters) != 0 || len(table.deferred) != 0 {
		t.Errorf("clusters = %v, deferred = %v; want none", table.clusters, table.deferred)
	}
	if settled := table.settle(); len(settled) != 0 {
		t.Errorf("settle() = %v; want none", settled)
	}
}

// What is hidden waits to be removed, and nothing else does.
func TestTableCountsHiddenObjects(t *testing.T) {
	hidden := func(table *table, name string) {
		table.observe(keyNamed(name), observation{clusterID: "x", uid: types.UID(name)})
		table.hide(keyNamed(name))
	}
	for name, end := range map[string]func(table *table){
		"removed":             func(table *table) { table.remove(keyNamed("a"), false) },
		"delivered again":     func(table *table) { table.observe(keyNamed("a"), observation{clusterID: "x", uid: "a"}) },
		"moved":               func(table *table) { table.observe(keyNamed("a"), observation{clusterID: "y", uid: "a"}) },
		"hidden twice, moved": func(table *table) { table.hide(keyNamed("a")); table.removeHidden() },
	} {
		table := newTable("")
		hidden(&table, "a")
		if table.hidden != 1 {
			t.Errorf("%s: hidden = %d before; want 1", name, table.hidden)
		}
		if end(&table); table.hidden != 0 {
			t.Errorf("%s: hidden = %d; want 0", name, table.hidden)
		}
	}
}

// relister is an informer that reports relists, and nothing else.
type relister struct {
	cache.SharedIndexInformer
	relists uint64
}

func (r *relister) Relists() uint64 { return r.relists }

// A relist that has come since the poll is not settled by it.
func TestSettleIsForTheRelistOfThePoll(t *testing.T) {
	inf := &relister{relists: 1}
	h, err := NewHub(inf, Options{})
	if err != nil {
		t.Fatal(err)
	}
	h.table.delivery = relisted
	h.table.observe(keyNamed("a"), observation{clusterID: "x", uid: "1"})
	inf.relists = 2
	h.settle(1)
	if len(h.table.deferred) != 1 || h.settledRelists != 0 {
		t.Errorf("deferred = %v, settled relists = %d; want that nothing is settled", h.table.deferred, h.settledRelists)
	}
	h.settle(2)
	if len(h.table.deferred) != 0 || h.settledRelists != 2 {
		t.Errorf("deferred = %v, settled relists = %d; want that all is settled", h.table.deferred, h.settledRelists)
	}
}

// Several hidden ManagedClusters go as a whole: which of them goes last is random.
func TestHiddenObjectsGoAsAWhole(t *testing.T) {
	for range 20 {
		inf := &relister{}
		h, err := NewHub(inf, Options{})
		if err != nil {
			t.Fatal(err)
		}
		h.hasSynced = true
		h.table.delivery = ordered
		h.table.observe(keyNamed("a"), observation{clusterID: "x", uid: "1", holds: []Hold{{Owner: "o"}}})
		h.table.observe(keyNamed("b"), observation{clusterID: "x", uid: "2"})
		h.table.hide(keyNamed("a"))
		h.table.hide(keyNamed("b"))
		g := h.Gate("x")
		h.settle(0)
		if s := g.State(); s.Phase != Gone || !s.Paused {
			t.Fatalf("state = %+v; want Gone, closed by the hidden holder", s)
		}
	}
}
