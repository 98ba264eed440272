package deploy

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// fieldSet is a set of fields as metadata.managedFields has it.
type fieldSet = map[string]any

// appliedFields returns the fields of an object that a deployer has applied; nil: none.
func appliedFields(object *unstructured.Unstructured) fieldSet {
	for _, entry := range managedFields(object) {
		if ofDeployer(entry) {
			fields, _ := entry["fieldsV1"].(fieldSet)
			return fields
		}
	}
	return nil
}

func ofDeployer(entry map[string]any) bool {
	return entry["manager"] == FieldManager && entry["operation"] == string(metav1.ManagedFieldsOperationApply) && entry["subresource"] == nil
}

func managedFields(object *unstructured.Unstructured) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", "managedFields")
	entries, _ := list.([]any)
	var all []map[string]any
	for _, each := range entries {
		if entry, ok := each.(map[string]any); ok {
			all = append(all, entry)
		}
	}
	return all
}

// isApplied reports whether a live object has the fields of another one, and no other ones
// that were applied.
func isApplied(live, object *unstructured.Unstructured) bool {
	applied := appliedFields(live)
	if applied == nil {
		return false
	}
	want := object.DeepCopy().Object
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}} { // nobody owns these
		unstructured.RemoveNestedField(want, path...)
	}
	return reflect.DeepEqual(project(live.Object, applied), any(want))
}

// keepAppliedFields removes all managedFields but those of deployers.
func keepAppliedFields(object *unstructured.Unstructured) {
	var kept []any
	for _, entry := range managedFields(object) {
		if ofDeployer(entry) {
			kept = append(kept, entry)
		}
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")
	if kept != nil {
		_ = unstructured.SetNestedField(object.Object, kept, "metadata", "managedFields") // there is metadata
	}
}

// project returns the part of a value that a set of fields has.
func project(value any, fields fieldSet) any {
	if !hasMembers(fields) {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		part := map[string]any{}
		for key, sub := range fields {
			name, ok := strings.CutPrefix(key, "f:")
			if member, has := value[name]; ok && has {
				sub, _ := sub.(fieldSet)
				part[name] = project(member, sub)
			}
		}
		return part
	case []any:
		var part []any
		for _, item := range value {
			for key, sub := range fields {
				if selects(key, item) {
					sub, _ := sub.(fieldSet)
					part = append(part, project(item, sub))
					break
				}
			}
		}
		return part
	}
	return value
}

func hasMembers(fields fieldSet) bool {
	for key := range fields {
		if key != "." {
			return true
		}
	}
	return false
}

// selects reports whether a key of a set of fields stands for an item of a list.
func selects(key string, item any) bool {
	if text, ok := strings.CutPrefix(key, "v:"); ok {
		var value any
		return json.Unmarshal([]byte(text), &value) == nil && reflect.DeepEqual(value, item)
	}
	text, ok := strings.CutPrefix(key, "k:")
	members, isMap := item.(map[string]any)
	var keys map[string]any
	if !ok || !isMap || json.Unmarshal([]byte(text), &keys) != nil {
		return false
	}
	for name, value := range keys {
		if !reflect.DeepEqual(members[name], value) {
			return false
		}
	}
	return true
}
