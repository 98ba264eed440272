package report

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusternet/syncgate"
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
	kind, reason, ok := transition(was, now)
	if !ok {
		return
	}
	at := time.Now()
	stamp := at.UTC().Format(time.RFC3339)
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Event",
		"metadata": map[string]any{
			"namespace": object.GetNamespace(),
			"name":      fmt.Sprintf("%s.%x", object.GetName(), at.UnixNano()), // as client-go's recorder does
		},
		"involvedObject": map[string]any{
			"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(),
			"namespace": object.GetNamespace(), "name": object.GetName(),
			"uid": string(object.GetUID()), "resourceVersion": object.GetResourceVersion(),
		},
		"type": kind, "reason": reason, "message": now.message, "count": int64(1),
		"firstTimestamp": stamp, "lastTimestamp": stamp,
		"source":             map[string]any{"component": r.opts.Component},
		"reportingComponent": r.opts.Component,
	}}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := r.client.Resource(events).Namespace(object.GetNamespace()).Create(ctx, event, metav1.CreateOptions{})
	if err != nil {
		r.log.V(4).Info("Could not create an Event", "managedCluster", object.GetNamespace()+"/"+object.GetName(), "reason", reason, "why", err)
	}
}
