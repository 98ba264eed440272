package informer

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/internal/api"
)

// trim returns what a gate reads of a ManagedCluster. A part of an unexpected shape
// is kept as it is, so that the gate can report it as malformed. It is idempotent
// and does not change its argument.
func trim(in *unstructured.Unstructured) *unstructured.Unstructured {
	out := pick(in.Object, "apiVersion", "kind")
	part(out, in.Object, "metadata", func(meta map[string]any) map[string]any {
		kept := pick(meta, "name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp")
		part(kept, meta, "labels", func(labels map[string]any) map[string]any {
			return pick(labels, api.ClusterIDLabel)
		})
		part(kept, meta, "annotations", func(annotations map[string]any) map[string]any {
			holds := map[string]any{}
			for name, value := range annotations {
				if _, ok := api.HoldOwner(name); ok || api.IsNearMiss(name) {
					holds[name] = value
				}
			}
			return holds
		})
		return kept
	})
	part(out, in.Object, "spec", func(spec map[string]any) map[string]any {
		return pick(spec, "clusterId", "syncMode", "syncPaused")
	})
	part(out, in.Object, "status", func(status map[string]any) map[string]any {
		kept := pick(status, "appPusher", "lastObservedTime")
		conditions, _ := status["conditions"].([]any)
		var ours []any
		for _, c := range conditions {
			if condition, ok := c.(map[string]any); ok && isOurs(condition["type"]) {
				ours = append(ours, condition)
			}
		}
		if ours != nil {
			kept["conditions"] = ours
		}
		return kept
	})
	return &unstructured.Unstructured{Object: out}
}

// isOurs reports whether package report writes the conditions of a type.
func isOurs(conditionType any) bool {
	name, _ := conditionType.(string)
	_, ofParty := api.Party(name)
	return ofParty || name == api.ConditionType
}

// part sets out[name] to the kept parts of in[name], or to in[name] itself where
// that is no map; where nothing is kept, it sets nothing.
func part(out, in map[string]any, name string, keep func(map[string]any) map[string]any) {
	value, ok := in[name]
	if !ok {
		return
	}
	m, ok := value.(map[string]any)
	if !ok {
		out[name] = value
		return
	}
	if kept := keep(m); len(kept) > 0 {
		out[name] = kept
	}
}

func pick(in map[string]any, names ...string) map[string]any {
	out := make(map[string]any, len(names))
	for _, name := range names {
		if value, ok := in[name]; ok {
			out[name] = value
		}
	}
	return out
}
