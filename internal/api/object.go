package api

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Read returns the metadata and the content of an object of any Go type, and the type
// if it is not unstructured. It returns false for what is no Kubernetes object.
func Read(obj any) (m metav1.Object, content map[string]any, typed reflect.Type, ok bool) {
	m, err := meta.Accessor(obj)
	if err != nil || IsNil(obj) {
		return nil, nil, nil, false
	}
	if u, ok := obj.(runtime.Unstructured); ok {
		return m, u.UnstructuredContent(), nil, true
	}
	content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return m, content, reflect.TypeOf(obj), err == nil
}

// HasField reports whether a Go type has a nested field with these JSON names.
func HasField(t reflect.Type, names ...string) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(names) == 0 || t.Kind() != reflect.Struct {
		return len(names) == 0
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == names[0] && f.IsExported() {
			return HasField(f.Type, names[1:]...)
		}
	}
	return false
}

// ClusterID returns the ID of the cluster that an object stands for: its
// spec.clusterId, or the label if the Go type has no such field.
func ClusterID(m metav1.Object, content map[string]any, typed reflect.Type) string {
	if typed != nil && !HasField(typed, "spec", "clusterId") {
		return m.GetLabels()[ClusterIDLabel]
	}
	spec, _ := content["spec"].(map[string]any)
	clusterID, _ := spec["clusterId"].(string)
	return clusterID
}
