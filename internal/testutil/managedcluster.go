// Package testutil has what the tests of this module share: a builder of
// ManagedClusters, a fake informer ([Source]) and a fake API server ([APIServer]).
package testutil

import (
	"maps"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/internal/api"
)

// Option changes a ManagedCluster that is being built.
type Option func(object map[string]any)

// ManagedCluster returns a ManagedCluster as an API server would serve it. Its
// spec.clusterId and its cluster-id label are clusterID, its UID is "uid-"+name.
func ManagedCluster(namespace, name, clusterID string, opts ...Option) *unstructured.Unstructured {
	object := map[string]any{
		"apiVersion": api.Resource.GroupVersion().String(),
		"kind":       "ManagedCluster",
		"metadata": map[string]any{
			"namespace":       namespace,
			"name":            name,
			"uid":             "uid-" + name,
			"resourceVersion": "1",
			"generation":      int64(1),
			"labels":          map[string]any{api.ClusterIDLabel: clusterID},
		},
		"spec": map[string]any{"clusterId": clusterID, "syncMode": "Dual"},
	}
	for _, opt := range opts {
		opt(object)
	}
	return &unstructured.Unstructured{Object: object}
}

// With returns a copy of obj with opts applied and the next resourceVersion.
func With(obj *unstructured.Unstructured, opts ...Option) *unstructured.Unstructured {
	out := obj.DeepCopy()
	rv, _ := strconv.Atoi(out.GetResourceVersion())
	out.SetResourceVersion(strconv.Itoa(rv + 1))
	for _, opt := range opts {
		opt(out.Object)
	}
	return out
}

// Paused sets spec.syncPaused. The value may have any type.
func Paused(value any) Option {
	return func(object map[string]any) {
		object["spec"].(map[string]any)["syncPaused"] = value
		generation(object)
	}
}

// Unpaused removes spec.syncPaused.
func Unpaused() Option {
	return func(object map[string]any) {
		delete(object["spec"].(map[string]any), "syncPaused")
		generation(object)
	}
}

// Held adds a hold annotation.
func Held(owner, reason string) Option {
	return Annotated(api.HoldPrefix+owner, reason)
}

// Released removes a hold annotation.
func Released(owner string) Option {
	return func(object map[string]any) {
		delete(sub(object, "metadata", "annotations"), api.HoldPrefix+owner)
	}
}

// Annotated sets an annotation. The value may have any type.
func Annotated(name string, value any) Option {
	return func(object map[string]any) { sub(object, "metadata", "annotations")[name] = value }
}

// Labelled sets the cluster-id label; "" removes it.
func Labelled(clusterID string) Option {
	return func(object map[string]any) {
		labels := sub(object, "metadata", "labels")
		labels[api.ClusterIDLabel] = clusterID
		if clusterID == "" {
			delete(labels, api.ClusterIDLabel)
		}
	}
}

// UID sets metadata.uid.
func UID(uid string) Option {
	return func(object map[string]any) { sub(object, "metadata")["uid"] = uid }
}

// ClusterID sets spec.clusterId.
func ClusterID(clusterID string) Option {
	return func(object map[string]any) { sub(object, "spec")["clusterId"] = clusterID }
}

// Heartbeat sets the status as Clusternet's agent does.
func Heartbeat(now time.Time) Option {
	return func(object map[string]any) {
		object["status"] = map[string]any{
			"appPusher":        true,
			"lastObservedTime": now.UTC().Format(time.RFC3339Nano),
			"k8sVersion":       "v1.32.4",
			"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "lastTransitionTime": now.UTC().Format(time.RFC3339),
			}},
		}
	}
}

func generation(object map[string]any) {
	metadata := sub(object, "metadata")
	n, _ := metadata["generation"].(int64)
	metadata["generation"] = n + 1
}

// sub returns the map at path, and creates it if it is missing. It copies the maps
// on the path, since objects may share them.
func sub(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		next, _ := object[name].(map[string]any)
		next = maps.Clone(next)
		if next == nil {
			next = map[string]any{}
		}
		object[name] = next
		object = next
	}
	return object
}
