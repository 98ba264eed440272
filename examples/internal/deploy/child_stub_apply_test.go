package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// applyLocked is a server-side apply of objects whose lists are all atomic.
func (s *childStub) applyLocked(r *http.Request, name string, dryRun bool) *http.Response {
	data, err := io.ReadAll(r.Body)
	object := &unstructured.Unstructured{}
	merges := r.Header.Get("Content-Type") == string(types.MergePatchType)
	switch {
	case err != nil:
	case merges:
		err = json.Unmarshal(data, &object.Object)
	default:
		err = json.Unmarshal(data, object)
	}
	if err != nil {
		s.t.Errorf("the child was sent %s: %v", data, err)
	}
	if dryRun && s.noDryRun {
		return refuseWith(http.StatusBadRequest, "BadRequest", `admission webhook "x.example.com" does not support dry run`)
	}
	live := s.objects[name]
	if merges {
		return s.mergeLocked(r, live, object)
	}
	fields := fieldsOf(object.Object)
	for _, own := range []string{"f:apiVersion", "f:kind"} {
		delete(fields, own)
	}
	for _, own := range []string{"f:name", "f:namespace"} {
		delete(fields["f:metadata"].(fieldSet), own)
	}
	var managers []any
	if live != nil {
		left := live.DeepCopy()
		for _, entry := range managedFields(live) {
			if !ofDeployer(entry) {
				managers = append(managers, entry)
			}
		}
		remove(left.Object, subtract(appliedFields(live), fields), managers)
		merge(left.Object, object.Object)
		object = left
	}
	managers = append(managers, map[string]any{"manager": FieldManager, "operation": "Apply", "fieldsV1": fields})
	_ = unstructured.SetNestedField(object.Object, managers, "metadata", "managedFields")
	object.SetUID(types.UID("uid-" + name))
	if !dryRun {
		s.version++
		object.SetResourceVersion(fmt.Sprint(s.version))
		s.objects[name] = object
		s.sendLocked("MODIFIED", object)
	}
	return answer(http.StatusOK, in(r, object))
}

// mergeLocked answers a merge patch of metadata.managedFields.
func (s *childStub) mergeLocked(r *http.Request, live, patch *unstructured.Unstructured) *http.Response {
	if live == nil || patch.GetResourceVersion() != live.GetResourceVersion() {
		return refuse(http.StatusConflict, "Conflict")
	}
	live = live.DeepCopy()
	managers, _, _ := unstructured.NestedFieldNoCopy(patch.Object, "metadata", "managedFields")
	_ = unstructured.SetNestedField(live.Object, managers, "metadata", "managedFields")
	s.version++
	live.SetResourceVersion(fmt.Sprint(s.version))
	s.objects[live.GetName()] = live
	s.sendLocked("MODIFIED", live)
	return answer(http.StatusOK, in(r, live))
}

// fieldsOf returns the fields of an object, in which all lists are atomic.
func fieldsOf(content map[string]any) fieldSet {
	fields := fieldSet{}
	for name, value := range content {
		members, _ := value.(map[string]any)
		fields["f:"+name] = fieldsOf(members)
	}
	return fields
}

// remove removes fields that none of these managers has.
func remove(content map[string]any, fields fieldSet, managers []any) {
	for _, manager := range managers {
		fields = subtract(fields, manager.(map[string]any)["fieldsV1"].(fieldSet))
	}
	for key, sub := range fields {
		name := strings.TrimPrefix(key, "f:")
		if members, ok := content[name].(map[string]any); ok && hasMembers(sub.(fieldSet)) {
			remove(members, sub.(fieldSet), nil)
		} else {
			delete(content, name)
		}
	}
}

func merge(content, other map[string]any) {
	for name, value := range other {
		into, isMap := content[name].(map[string]any)
		if members, ok := value.(map[string]any); ok && isMap {
			merge(into, members)
		} else {
			content[name] = value
		}
	}
}
