package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/syncgate"
)

func (r *Reporter) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    r.observe,
		UpdateFunc: func(_, obj any) { r.observe(obj) },
		DeleteFunc: r.observeDeletion,
	}
}

// observe takes in a ManagedCluster, and queues its cluster when there may be something
// to report. A heartbeat queues nothing.
//
// Where holds have changed, or who deploys, the cluster is reconciled a second time: the
// gate may get this event later than we do. Until then it looks as if it had not opened
// in between, or as if the other side still deployed.
func (r *Reporter) observe(obj any) {
	e, ok := read(obj)
	if !ok {
		r.log.V(4).Info("Ignored an object that is no ManagedCluster", "type", fmt.Sprintf("%T", obj))
		return
	}
	c := r.table.put(e)
	again := c.holds || c.deployer && r.closed(e.clusterID)
	if again {
		r.table.update(e, func(now *entry) { now.recheckAt = time.Now().Add(recheckDelay) })
	}
	if c.content || again {
		r.queue.Add(e.clusterID)
	}
}

func (r *Reporter) observeDeletion(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		r.table.drop(types.NamespacedName(name))
	}
}

// read returns what is needed of an object. Only the gate decides whether the object
// counts for the cluster.
func read(obj any) (*entry, bool) {
	m, content, typed, ok := api.Read(obj)
	if !ok {
		return nil, false
	}
	var by deployer
	by.syncMode, _, _ = unstructured.NestedString(content, "spec", "syncMode")
	by.appPusher, by.reported, _ = unstructured.NestedBool(content, "status", "appPusher")
	heartbeat, _, _ := unstructured.NestedString(content, "status", "lastObservedTime")
	return &entry{
		key:        types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()},
		clusterID:  types.UID(api.ClusterID(m, content, typed)),
		uid:        m.GetUID(),
		generation: m.GetGeneration(),
		holds:      holdsOf(content),
		deployer:   by,
		observed:   observedIn(content),
		heartbeat:  heartbeat,
	}, true
}

// holdsOf returns the holds that are annotations of an object, sorted by owner, as a
// gate reads them. The gate does not know the reason of one that is no string.
func holdsOf(object map[string]any) []syncgate.Hold {
	value, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", "annotations")
	annotations, _ := value.(map[string]any)
	var holds []syncgate.Hold
	for name, value := range annotations {
		owner, ok := api.HoldOwner(name)
		if !ok || api.IsReleased(value) {
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
