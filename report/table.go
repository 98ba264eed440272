package report

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/syncgate"
)

// table is what a Reporter knows of the ManagedClusters: what the informer has
// delivered, and what was written. It knows neither gates nor the queue.
type table struct {
	party string // of this reporter

	mu       sync.Mutex // guards all below, and what it points to
	entries  map[types.NamespacedName]*entry
	clusters map[types.UID]map[types.NamespacedName]*entry
	events   uint64            // how many were observed
	refusals [refusalKinds]int // how many entries are refused
}

// entry is a ManagedCluster. It goes with the object.
type entry struct {
	key        types.NamespacedName
	clusterID  types.UID
	uid        types.UID
	generation int64
	holds      []syncgate.Hold // by annotations; immutable
	deployer   deployer
	observed   observed
	heartbeat  string    // of the agent, as it is in the status
	event      uint64    // the last one; differs after each
	recheckAt  time.Time // when the cluster has to be reconciled once more

	// In the time of this process, so that no clock of another matters.
	changedAt   time.Time // when the parties had to report again
	heartbeatAt time.Time // when another heartbeat was first observed; zero: never

	reported  *metav1.Condition // what was last written or found right; nil: nothing
	own       *metav1.Condition // of the party, as it was last written
	announced announcement      // the last Event
	writtenAt time.Time         // the last write
	repairs   int               // writes in short succession that restored the same
	refused   *refused          // the last attempt; nil: it was not refused
}

// announcement is an Event of a pause, or of its end. It is not repeated when somebody
// drops the condition again and again.
type announcement struct {
	event, reason string // of the Event, and of the condition
	generation    int64
	holds         string
}

// deployer is what decides who deploys to a cluster, and so which parties there may be.
type deployer struct {
	syncMode            string
	appPusher, reported bool
}

func newTable(party string) table {
	return table{party: party, entries: map[types.NamespacedName]*entry{}, clusters: map[types.UID]map[types.NamespacedName]*entry{}}
}

// change is what an event has changed for a cluster.
type change struct {
	content  bool // anything that the condition depends on, or the condition itself
	holds    bool
	deployer bool
}

// put takes in a ManagedCluster that the informer has delivered. A heartbeat changes
// nothing. Holds count by themselves: they change no generation, and a gate that closes
// again with the same holds may have no Change.
func (t *table) put(e *entry) change {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.clusterID == "" { // it counts for no gate
		t.dropLocked(e.key)
		return change{}
	}
	t.events++
	e.event = t.events
	if known := t.entries[e.key]; known != nil && known.uid == e.uid && known.clusterID == e.clusterID {
		c := change{holds: !slices.Equal(known.holds, e.holds), deployer: known.deployer != e.deployer}
		again := known.generation != e.generation
		c.content = c.holds || again || !known.observed.same(&e.observed)
		now := time.Now()
		if c.holds || again || e.observed.lacksReportOf(&known.observed, t.party) {
			known.changedAt = now
		}
		if known.heartbeat != e.heartbeat {
			known.heartbeat, known.heartbeatAt = e.heartbeat, now
		}
		known.follow(&e.observed)
		known.generation, known.observed = e.generation, e.observed
		known.holds, known.deployer, known.event = e.holds, e.deployer, e.event
		return c
	}
	t.dropLocked(e.key)
	e.changedAt = time.Now()
	if t.clusters[e.clusterID] == nil {
		t.clusters[e.clusterID] = map[types.NamespacedName]*entry{}
	}
	t.entries[e.key], t.clusters[e.clusterID][e.key] = e, e
	return change{content: true, holds: len(e.holds) > 0}
}

// follow takes in that another party may have written the pause or its end, and has
// recorded the Event.
func (e *entry) follow(o *observed) {
	switch {
	case o.isTrue() && e.announced.event == EventResumed:
		e.announced = announcement{}
	case o.condition != nil && o.condition.Reason == ReasonSyncing:
		e.reported = o.condition
		if e.announced.event != EventResumed {
			e.announced = announcement{}
		}
	}
}

// drop forgets a ManagedCluster.
func (t *table) drop(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked(key)
}

func (t *table) dropLocked(key types.NamespacedName) {
	e := t.entries[key]
	if e == nil {
		return
	}
	t.acceptLocked(e)
	delete(t.entries, key)
	delete(t.clusters[e.clusterID], key)
	if len(t.clusters[e.clusterID]) == 0 {
		delete(t.clusters, e.clusterID)
	}
}

// entriesOf returns copies of all entries of a cluster.
func (t *table) entriesOf(clusterID types.UID) []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []entry
	for _, e := range t.clusters[clusterID] {
		out = append(out, *e)
	}
	return out
}

// recheckIn returns how long until a cluster has to be reconciled once more.
func (t *table) recheckIn(clusterID types.UID) (d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.clusters[clusterID] {
		d = max(d, time.Until(e.recheckAt))
	}
	return d
}

// update changes the entry that e is a copy of, unless the object is gone or counts
// for another cluster by now.
func (t *table) update(e *entry, change func(*entry)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.entries[e.key]; now != nil && now.uid == e.uid && now.clusterID == e.clusterID {
		change(now)
	}
}
