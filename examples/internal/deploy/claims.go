package deploy

import (
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// subtract returns what of a set of fields is not in another one.
func subtract(fields, other fieldSet) fieldSet {
	rest := fieldSet{}
	for key, sub := range fields {
		theirs, shared := other[key].(fieldSet)
		ours, _ := sub.(fieldSet)
		switch {
		case !shared:
			rest[key] = sub
		case !hasMembers(ours):
			// It is in both.
		default:
			if left := subtract(ours, theirs); len(left) > 0 {
				rest[key] = left
			}
		}
	}
	return rest
}

// withoutOtherClaims returns managedFields in which those who have updated an object do
// not claim what a deployer has applied, or nil if they don't. Who had written the object
// before it was applied would else claim its fields for ever, and a field that is
// removed from the Description would stay in the child.
func withoutOtherClaims(object *unstructured.Unstructured) []any {
	applied := appliedFields(object)
	if applied == nil {
		return nil
	}
	var kept []any
	changed := false
	for _, entry := range managedFields(object) {
		fields, _ := entry["fieldsV1"].(fieldSet)
		// A subresource has another purpose, such as to scale.
		if entry["operation"] == string(metav1.ManagedFieldsOperationUpdate) && entry["subresource"] == nil {
			if rest := subtract(fields, applied); !reflect.DeepEqual(rest, fields) {
				changed = true
				if len(rest) == 0 {
					continue
				}
				entry = maps.Clone(entry)
				entry["fieldsV1"] = rest
			}
		}
		kept = append(kept, entry)
	}
	if !changed {
		return nil
	}
	return kept
}
