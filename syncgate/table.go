package syncgate

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// table has the observed ManagedClusters, and the decision that follows from them
// for each cluster. It does no locking: Hub.mu guards it.
type table struct {
	only     types.UID // the one cluster that counts; empty: all count
	objects  map[types.NamespacedName]*object
	clusters map[types.UID]*cluster
}

// object is a ManagedCluster that counts for a cluster.
type object struct {
	key types.NamespacedName
	observation
}

// cluster is what the table knows of one cluster ID. It stays when its last
// ManagedCluster goes, for the decision that is kept then.
type cluster struct {
	objects []*object // by namespace and name, so that the order of events decides nothing
	state   State
}

func newTable(only types.UID) table {
	return table{only: only, objects: map[types.NamespacedName]*object{}, clusters: map[types.UID]*cluster{}}
}

// observe takes in a ManagedCluster, and returns the IDs of the clusters that it
// changes: two when it moves from one to another, none for a heartbeat.
//
// The server selects the objects, but what an object counts for is the cluster that
// its spec names.
func (t *table) observe(key types.NamespacedName, o observation) []types.UID {
	var changed []types.UID
	known := t.objects[key]
	if known != nil {
		o.keepLostFlag(&known.observation)
	}
	counts := o.clusterID != "" && (t.only == "" || t.only == o.clusterID)
	if known != nil && (!counts || known.clusterID != o.clusterID) {
		changed = append(changed, t.remove(key)...)
		known = nil
	}
	switch {
	case !counts, known != nil && known.observation.equal(&o):
		return changed
	case known != nil:
		known.observation = o
	default:
		t.insert(&object{key: key, observation: o})
	}
	c := t.clusters[o.clusterID]
	c.state = evaluate(c.objects)
	return append(changed, o.clusterID)
}

func (t *table) insert(o *object) {
	c := t.clusters[o.clusterID]
	if c == nil {
		c = &cluster{}
		t.clusters[o.clusterID] = c
	}
	i, _ := slices.BinarySearchFunc(c.objects, o, compareObjects)
	c.objects = slices.Insert(c.objects, i, o)
	t.objects[o.key] = o
}

// remove takes in that a ManagedCluster is gone, or has left the selection. It
// returns the ID of the cluster that this changes, if any.
func (t *table) remove(key types.NamespacedName) []types.UID {
	o := t.objects[key]
	if o == nil {
		return nil
	}
	delete(t.objects, key)
	c := t.clusters[o.clusterID]
	c.objects = slices.DeleteFunc(c.objects, func(other *object) bool { return other == o })
	if len(c.objects) > 0 {
		c.state = evaluate(c.objects)
	} else {
		c.state.Phase, c.state.Reason = Gone, ReasonDeleted
		c.state.Message = "deleted, or no longer selected; the last decision stays: " + c.state.Message
	}
	return []types.UID{o.clusterID}
}

func compareObjects(a, b *object) int { return compareKeys(a.key, b.key) }

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// stateOf returns the state of a cluster, and false if no ManagedCluster has named
// it.
func (t *table) stateOf(clusterID types.UID) (State, bool) {
	if c := t.clusters[clusterID]; c != nil {
		return c.state, true
	}
	return State{}, false
}

// objectsOf returns the ManagedClusters of a cluster, by namespace and name.
func (t *table) objectsOf(clusterID types.UID) []Object {
	c := t.clusters[clusterID]
	if c == nil {
		return []Object{}
	}
	objects := make([]Object, 0, len(c.objects))
	for _, o := range c.objects {
		objects = append(objects, Object{o.key, o.uid, o.generation})
	}
	return objects
}
