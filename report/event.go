package report

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// events is a resource for the dynamic client: the typed one would bring all of
// Kubernetes' API into the programs that import this.
var events = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// transition returns the Event that tells of a new condition, if any does. was is
// nil when there was no condition.
func transition(was, now *condition) (kind, reason string, ok bool) {
	status := ""
	if was != nil {
		status = was.status
	}
	switch {
	case now.reason == syncgate.ReasonMalformed:
		return "Warning", EventMalformed, was == nil || was.reason != syncgate.ReasonMalformed
	case now.status == "True":
		return "Normal", EventPaused, status != "True"
	case now.reason == ReasonSyncing:
		return "Normal", EventResumed, status == "True" || status == "Unknown"
	case now.reason == ReasonDraining: // it can't drain again without having been open
		return "Normal", EventResumed, status == "True"
	default:
		return "", "", false
	}
}

// tell creates the Event that tells of a new condition of an object, if any does.
func (r *Reporter) tell(ctx context.Context, object *unstructured.Unstructured, was, now *condition) {
	if kind, reason, ok := transition(was, now); ok {
		create(ctx, r.client, r.log, event{
			object: types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}, uid: object.GetUID(),
			kind: kind, reason: reason, message: now.message, component: r.opts.Component,
		})
	}
}

// ModeEvents returns a function for Gate.WatchMode that tells each result as an
// Event on the ManagedClusters of the gate: SyncModeMismatch while hub and agent
// don't fit together, and SyncModeFits when they do again. The function blocks for
// a second at the most for each. Component is what the Events name as their
// source; empty: "syncgate". Events that the server does not take are logged at
// V(4), with the logger of ctx, and not tried again; none is created once ctx has
// ended.
//
//	go gate.WatchMode(ctx, agentMode, appPusher, report.ModeEvents(ctx, client, gate, "clusternet-agent"))
func ModeEvents(ctx context.Context, client dynamic.Interface, gate *syncgate.Gate, component string) func(error) {
	mismatch := false
	return func(problem error) {
		e := event{kind: "Warning", reason: EventModeMismatch, component: cmp.Or(component, defaultComponent)}
		switch {
		case problem != nil:
			e.message = problem.Error()
		case !mismatch:
			return // it has been well from the start
		default:
			e.kind, e.reason, e.message = "Normal", EventModeFits, "exactly one side deploys again"
		}
		mismatch = problem != nil
		for _, object := range gate.Objects() {
			e.object, e.uid = object.NamespacedName, object.UID
			create(ctx, client, klog.FromContext(ctx), e)
		}
	}
}

// event is what an Event says of a ManagedCluster.
type event struct {
	object                           types.NamespacedName
	uid                              types.UID
	kind, reason, message, component string
}

func create(ctx context.Context, client dynamic.Interface, log klog.Logger, e event) {
	at := time.Now()
	stamp := at.UTC().Format(time.RFC3339)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Event",
		"metadata": map[string]any{
			"namespace": e.object.Namespace,
			"name":      fmt.Sprintf("%s.%x", e.object.Name, at.UnixNano()), // as client-go's recorder does
		},
		"involvedObject": map[string]any{
			"apiVersion": informer.Resource.GroupVersion().String(), "kind": "ManagedCluster",
			"namespace": e.object.Namespace, "name": e.object.Name, "uid": string(e.uid),
		},
		"type": e.kind, "reason": e.reason, "message": e.message, "count": int64(1),
		"firstTimestamp": stamp, "lastTimestamp": stamp,
		"source":             map[string]any{"component": e.component},
		"reportingComponent": e.component,
	}}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := client.Resource(events).Namespace(e.object.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		log.V(4).Info("Could not create an Event", "managedCluster", e.object, "reason", e.reason, "why", err)
	}
}
