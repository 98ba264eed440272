package report

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate"
	"github.com/clusternet/syncgate/internal/api"
)

// record is a ManagedCluster. It is guarded by Reporter.mu.
type record struct {
	key        types.NamespacedName
	clusterID  types.UID
	uid        types.UID
	generation int64
	condition  *condition // as last seen; immutable

	last    *condition // what we last found right or wrote; nil: nothing
	wrote   time.Time  // when we last wrote
	repairs int        // how often in short succession we wrote the same again
	refused bool       // the server has refused the last write
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

// seen takes in a ManagedCluster. A heartbeat ends here.
func (r *Reporter) seen(obj any) {
	now, ok := read(obj)
	if !ok {
		r.log.V(4).Info("Ignored an object that is no ManagedCluster", "type", fmt.Sprintf("%T", obj))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.records[now.key]; was != nil && was.uid == now.uid && was.clusterID == now.clusterID {
		if was.generation == now.generation && was.condition.equal(now.condition) {
			return
		}
		was.generation, was.condition = now.generation, now.condition
		r.queue.Add(now.clusterID)
		return
	}
	r.drop(now.key)
	c := r.clusters[now.clusterID]
	if c == nil {
		c = &cluster{records: map[types.NamespacedName]*record{}}
		r.clusters[now.clusterID] = c
	}
	r.records[now.key], c.records[now.key] = now, now
	r.queue.Add(now.clusterID)
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
	if was.refused {
		r.refusals--
	}
	delete(r.records, key)
	c := r.clusters[was.clusterID]
	delete(c.records, key)
	if len(c.records) == 0 {
		c.stopWaiting()
		delete(r.clusters, was.clusterID)
	}
}

// read returns what is needed of an object. Whether it counts for the cluster is
// for the gate to say.
func read(obj any) (*record, bool) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, false
	}
	var content map[string]any
	if u, ok := obj.(runtime.Unstructured); ok {
		content = u.UnstructuredContent()
	} else if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
		return nil, false
	}
	spec, _ := content["spec"].(map[string]any)
	clusterID, ok := spec["clusterId"].(string)
	if !ok { // a Go type without the field
		clusterID = m.GetLabels()[api.ClusterIDLabel]
	}
	return &record{
		key:        types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()},
		clusterID:  types.UID(clusterID),
		uid:        m.GetUID(),
		generation: m.GetGeneration(),
		condition:  conditionOf(content),
	}, true
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

// update changes the record that of is a copy of, unless it is gone.
func (r *Reporter) update(of *record, change func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.records[of.key]; now != nil && now.uid == of.uid {
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
