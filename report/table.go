package report

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/syncgate"
)

// record is a ManagedCluster. It is guarded by Reporter.mu, and goes with the object.
type record struct {
	key        types.NamespacedName
	clusterID  types.UID
	uid        types.UID
	generation int64
	holds      []syncgate.Hold // by annotations; immutable
	deployer   deployer        // as last seen
	condition  *condition      // as last seen; immutable
	seen       uint64          // differs after each event

	last    *condition // what we last found right or wrote; nil: nothing
	wrote   time.Time  // when we last wrote
	repairs int        // how often in short succession we wrote the same again
	refused *refused   // the last attempt; nil: it was not
}

// deployer is what decides who deploys, and so who acknowledges.
type deployer struct {
	syncMode  string
	appPusher any // nil: not reported
}

// refused is an attempt that the server has refused. It is immutable.
type refused struct {
	kind refusalKind
	at   time.Time
	says condition // what was to be written
}

// cluster is what the ManagedClusters of one cluster share. It is guarded by
// Reporter.mu.
type cluster struct {
	records map[types.NamespacedName]*record
	waiter  *waiter // while the gate drains
}

type waiter struct{ stop context.CancelFunc }

func (r *Reporter) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    r.seen,
		UpdateFunc: func(_, obj any) { r.seen(obj) },
		DeleteFunc: r.deleted,
	}
}

// seen takes in a ManagedCluster. A heartbeat ends here. A change of holds is news of
// its own: it bumps no generation, and gates that close again with the same holds may
// tell of no Change.
func (r *Reporter) seen(obj any) {
	now, ok := read(obj)
	if !ok {
		r.log.V(4).Info("Ignored an object that is no ManagedCluster", "type", fmt.Sprintf("%T", obj))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.clusterID == "" { // it counts for no gate
		r.drop(now.key)
		return
	}
	r.events++
	now.seen = r.events
	if was := r.records[now.key]; was != nil && was.uid == now.uid && was.clusterID == now.clusterID {
		was.seen = now.seen
		gate := r.known[now.clusterID]
		again := !slices.Equal(was.holds, now.holds) ||
			was.deployer != now.deployer && gate != nil && gate.Paused()
		if was.generation == now.generation && was.condition.equal(now.condition) && !again {
			return
		}
		was.generation, was.condition = now.generation, now.condition
		was.holds, was.deployer = now.holds, now.deployer
		r.queueSeen(now.clusterID, again)
		return
	}
	r.drop(now.key)
	c := r.clusters[now.clusterID]
	if c == nil {
		c = &cluster{records: map[types.NamespacedName]*record{}}
		r.clusters[now.clusterID] = c
	}
	r.records[now.key], c.records[now.key] = now, now
	r.queueSeen(now.clusterID, len(now.holds) > 0)
}

// queueSeen queues a cluster of which an event has told. Where holds have changed, or
// who deploys, it is looked at once more: the gate may hear of it later than we do, and
// look now as if it had not opened in between, or as if others still deployed.
func (r *Reporter) queueSeen(clusterID types.UID, again bool) {
	r.queue.Add(clusterID)
	if again {
		r.queue.AddAfter(clusterID, lookSoon)
	}
}

func (r *Reporter) deleted(obj any) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(types.NamespacedName(name))
}

// drop forgets a ManagedCluster. It is called with mu held.
func (r *Reporter) drop(key types.NamespacedName) {
	was := r.records[key]
	if was == nil {
		return
	}
	r.accepted(was)
	delete(r.records, key)
	c := r.clusters[was.clusterID]
	delete(c.records, key)
	if len(c.records) == 0 {
		c.stopWaiting()
		delete(r.clusters, was.clusterID)
	}
}

// accepted notes that nothing is refused any more. It is called with mu held.
func (r *Reporter) accepted(rec *record) {
	if rec.refused != nil {
		r.refusals[rec.refused.kind]--
		rec.refused = nil
	}
}

// read returns what is needed of an object. Whether it counts for the cluster is
// for the gate to say.
func read(obj any) (*record, bool) {
	m, err := meta.Accessor(obj)
	if err != nil || api.IsNil(obj) {
		return nil, false
	}
	var content map[string]any
	u, untyped := obj.(runtime.Unstructured)
	if untyped {
		content = u.UnstructuredContent()
	} else if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
		return nil, false
	}
	spec, _ := content["spec"].(map[string]any)
	clusterID, ok := spec["clusterId"].(string)
	if !ok && !untyped && !hasField(reflect.TypeOf(obj), "spec", "clusterId") {
		clusterID = m.GetLabels()[api.ClusterIDLabel] // as the gate does
	}
	status, _ := content["status"].(map[string]any)
	by := deployer{}
	by.syncMode, _ = spec["syncMode"].(string)
	if appPusher, ok := status["appPusher"].(bool); ok {
		by.appPusher = appPusher
	}
	return &record{
		deployer:   by,
		key:        types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()},
		clusterID:  types.UID(clusterID),
		uid:        m.GetUID(),
		generation: m.GetGeneration(),
		holds:      holdsOf(content),
		condition:  conditionOf(content),
	}, true
}

// holdsOf returns the holds that are annotations of an object, by owner, as a gate
// reads them. One that is no text is a hold of which the gate knows nothing.
func holdsOf(object map[string]any) []syncgate.Hold {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	var holds []syncgate.Hold
	for name, value := range annotations {
		owner, ok := api.HoldOwner(name)
		if !ok || value == "false" {
			continue
		}
		reason, ok := value.(string)
		if !ok {
			reason = fmt.Sprintf("%T %v", value, value)
		}
		holds = append(holds, syncgate.Hold{Owner: owner, Reason: reason})
	}
	slices.SortFunc(holds, func(a, b syncgate.Hold) int { return strings.Compare(a.Owner, b.Owner) })
	return holds
}

// hasField tells whether a Go type has a nested field by these JSON names.
func hasField(t reflect.Type, names ...string) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(names) == 0 || t.Kind() != reflect.Struct {
		return len(names) == 0
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == names[0] && f.IsExported() {
			return hasField(f.Type, names[1:]...)
		}
	}
	return false
}

// recordsOf returns copies.
func (r *Reporter) recordsOf(clusterID types.UID) []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []record
	if c := r.clusters[clusterID]; c != nil {
		for _, each := range c.records {
			out = append(out, *each)
		}
	}
	return out
}

// update changes the record that of is a copy of, unless it is gone or counts for
// another cluster.
func (r *Reporter) update(of *record, change func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.records[of.key]; now != nil && now.uid == of.uid && now.clusterID == of.clusterID {
		change(now)
	}
}

// awaitDrain queues a cluster once its gate has drained. It is left to a goroutine
// that ends with ctx, with the draining, or with stopWaiting.
func (r *Reporter) awaitDrain(ctx context.Context, clusterID types.UID, gate *syncgate.Gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[clusterID]
	if c == nil || c.waiter != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &waiter{cancel}
	c.waiter = w
	r.parts.Add(1)
	go func() {
		defer r.parts.Done()
		defer cancel()
		if gate.WaitDrained(ctx) != nil {
			return
		}
		r.mu.Lock()
		if c.waiter == w {
			c.waiter = nil
		}
		r.mu.Unlock()
		r.queue.Add(clusterID)
	}()
}

func (r *Reporter) stopWaiting(clusterID types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clusters[clusterID]; c != nil {
		c.stopWaiting()
	}
}

func (c *cluster) stopWaiting() {
	if c.waiter != nil {
		c.waiter.stop()
		c.waiter = nil
	}
}
