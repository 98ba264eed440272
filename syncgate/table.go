package syncgate

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// table has the observed ManagedClusters, and the decision that follows from them
// for each cluster. It does no locking: Hub.mu guards it.
//
// An informer delivers a relist object by object. So what one event opens may be
// closed by the next one, although the cluster was held all the time on the server.
// Therefore the table defers openings while a relist is delivered, until settle.
type table struct {
	delivery delivery  // of the next event
	only     types.UID // the one cluster that counts; empty: all count
	objects  map[types.NamespacedName]*object
	clusters map[types.UID]*cluster
	deferred map[types.UID]struct{} // clusters whose opening is deferred
	period   uint64                 // begins with newTable and with each settle
	hidden   int                    // objects that are hidden
}

// delivery says what an event stands for.
type delivery int

const (
	// unordered: the event may be one of any relist, or of a watch between them.
	unordered delivery = iota
	ordered            // by a watch: the state after each event was one of the server
	relisted           // by the newest relist, or by the watch after it
)

// object is a ManagedCluster that counts for a cluster.
type object struct {
	key types.NamespacedName
	observation
	// hidden: the informer has lost it by selecting in another way. Nobody has
	// released it, so it counts as it was observed last.
	hidden bool
}

// cluster is what the table knows of one cluster ID. It stays when its last
// ManagedCluster goes, for the decision that is kept then.
type cluster struct {
	objects []*object // by namespace and name, so that the order of events decides nothing
	state   State
	decided bool // false: state is zero, because the first decision is deferred
	left    left
}

// left has the ManagedClusters that may have been the last ones of a cluster. If none
// remains, they decide: the cluster is gone as they left it.
type left struct {
	objects []*object
	deleted bool   // by the watch after a relist; so what the relist lacks left earlier
	period  uint64 // of table, in which openings were deferred; 0: they were not
}

func newTable(only types.UID) table {
	return table{
		only:     only,
		objects:  map[types.NamespacedName]*object{},
		clusters: map[types.UID]*cluster{},
		deferred: map[types.UID]struct{}{},
		period:   1,
	}
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
		t.setHidden(known, false)
	}
	counts := o.clusterID != "" && (t.only == "" || t.only == o.clusterID)
	if known != nil && (!counts || known.clusterID != o.clusterID) {
		changed = append(changed, t.remove(key, false)...)
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
	t.decide(o.clusterID)
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
// returns the ID of the cluster that this changes, if any. If deleted is true, a watch
// has deleted it. Otherwise it is missing from a relist, or has moved.
func (t *table) remove(key types.NamespacedName, deleted bool) []types.UID {
	o := t.objects[key]
	if o == nil {
		return nil
	}
	t.setHidden(o, false)
	delete(t.objects, key)
	c := t.clusters[o.clusterID]
	c.objects = slices.DeleteFunc(c.objects, func(other *object) bool { return other == o })
	t.recordLeft(&c.left, o, deleted)
	t.decide(o.clusterID)
	return []types.UID{o.clusterID}
}

// recordLeft takes in that an object has left. Those that are missing from a relist count
// as a whole, because nobody knows which of them left last.
func (t *table) recordLeft(l *left, o *object, deleted bool) {
	switch {
	case t.delivery == ordered:
		*l = left{objects: []*object{o}}
		return
	case deleted && t.delivery == relisted, l.period != t.period:
		*l = left{objects: []*object{o}, deleted: deleted}
	case l.deleted && t.delivery == relisted: // o left before the one that was deleted
	default:
		l.objects = append(l.objects, o)
	}
	l.period = t.period
}

// decide evaluates a cluster after an event.
func (t *table) decide(clusterID types.UID) {
	c := t.clusters[clusterID]
	delete(t.deferred, clusterID)
	if len(c.objects) == 0 && !c.decided { // it has gone before it was decided on
		delete(t.clusters, clusterID)
		return
	}
	next := c.evaluate()
	if opens := !next.Paused && (c.state.Paused || !c.decided); opens && t.delivery != ordered {
		t.deferred[clusterID] = struct{}{}
		return
	}
	c.state, c.decided = next, true
}

func (c *cluster) evaluate() State {
	if len(c.objects) > 0 {
		return evaluate(c.objects)
	}
	s := evaluate(c.left.objects)
	s.Phase, s.Reason = Gone, ReasonDeleted
	s.Message = "deleted, or no longer selected; the last decision stays: " + s.Message
	return s
}

// settle decides on the clusters whose opening was deferred, and returns their IDs.
func (t *table) settle() []types.UID {
	settled := slices.Collect(maps.Keys(t.deferred))
	clear(t.deferred)
	for _, clusterID := range settled {
		c := t.clusters[clusterID]
		c.state, c.decided = c.evaluate(), true
	}
	t.period++
	return settled
}

// hide keeps a ManagedCluster that the informer no longer selects, and returns the
// ID of its cluster.
func (t *table) hide(key types.NamespacedName) []types.UID {
	o := t.objects[key]
	if o == nil {
		return nil
	}
	t.setHidden(o, true)
	t.decide(o.clusterID)
	return []types.UID{o.clusterID}
}

func (t *table) setHidden(o *object, hidden bool) {
	switch {
	case hidden && !o.hidden:
		t.hidden++
	case !hidden && o.hidden:
		t.hidden--
	}
	o.hidden = hidden
}

// removeHidden takes in that hidden ManagedClusters are gone: the informer selects as
// before, and has not delivered them again.
func (t *table) removeHidden() []types.UID {
	var changed []types.UID
	for key, o := range t.objects {
		if o.hidden {
			changed = append(changed, t.remove(key, false)...)
		}
	}
	return changed
}

func compareObjects(a, b *object) int { return compareKeys(a.key, b.key) }

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// stateOf returns the state of a cluster, and false if none is decided.
func (t *table) stateOf(clusterID types.UID) (State, bool) {
	if c := t.clusters[clusterID]; c != nil && c.decided {
		return c.state, true
	}
	return State{}, false
}

// objectsOf returns the ManagedClusters that the state of a cluster includes, by
// namespace and name.
func (t *table) objectsOf(clusterID types.UID) []Object {
	c := t.clusters[clusterID]
	if _, deferred := t.deferred[clusterID]; c == nil || deferred {
		return []Object{} // the state does not include them yet
	}
	objects := make([]Object, 0, len(c.objects))
	for _, o := range c.objects {
		objects = append(objects, Object{o.key, o.uid, o.generation, o.hidden})
	}
	return objects
}
