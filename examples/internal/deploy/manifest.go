package deploy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// objects returns the objects that are to be in the child. With an error, it returns those
// that could be read.
func (d *description) objects() ([]*unstructured.Unstructured, error) {
	list, _, err := unstructured.NestedFieldNoCopy(d.object.Object, "spec", "raw")
	raw, ok := list.([]any)
	if err == nil && !ok && list != nil {
		err = fmt.Errorf("spec.raw is %T; make it a list", list)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Description %s: %w", d.key(), err)
	}
	var objects []*unstructured.Unstructured
	var errs []error
	for i, encoded := range raw {
		decoded, err := decode(encoded)
		for _, object := range decoded {
			if slices.ContainsFunc(identities(objects), identityOf(object).same) {
				err = errors.Join(err, fmt.Errorf("%s is in it twice; remove one", identityOf(object)))
				continue
			}
			objects = append(objects, object)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading spec.raw[%d] of Description %s: %w", i, d.key(), err))
		}
	}
	return objects, errors.Join(errs...)
}

// decode returns the objects of an entry of spec.raw: none for null, which templates
// leave behind, and the items of a list.
func decode(encoded any) ([]*unstructured.Unstructured, error) {
	if encoded == nil {
		return nil, nil
	}
	text, ok := encoded.(string)
	if !ok {
		return nil, fmt.Errorf("it is %T; make it a text in base64", encoded)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	if string(bytes.TrimSpace(data)) == "null" {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if !isList(object) {
		if err := check(object); err != nil {
			return nil, err
		}
		return []*unstructured.Unstructured{object}, nil
	}
	var objects []*unstructured.Unstructured
	var errs []error
	items, _ := object.Object["items"].([]any)
	for i, item := range items {
		data, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		decoded, err := decode(base64.StdEncoding.EncodeToString(data))
		objects = append(objects, decoded...)
		if err != nil {
			errs = append(errs, fmt.Errorf("items[%d]: %w", i, err))
		}
	}
	return objects, errors.Join(errs...)
}

// isList reports whether an object stands for its items, as kubectl writes them.
func isList(object *unstructured.Unstructured) bool {
	items, ok := object.Object["items"]
	_, some := items.([]any)
	return strings.HasSuffix(object.GetKind(), "List") && object.GetName() == "" && (some || ok && items == nil)
}

// check removes what is null from the metadata, as a server does, and reports whether the
// object can be applied.
func check(object *unstructured.Unstructured) error {
	metadata, ok := object.Object["metadata"].(map[string]any)
	if !ok && object.Object["metadata"] != nil {
		return fmt.Errorf("the metadata of the %s is %T; make it an object", object.GetKind(), object.Object["metadata"])
	}
	dropNull(metadata)
	switch wrong := slices.Concat(content.IsPathSegmentName(object.GetName()), content.IsPathSegmentName(object.GetNamespace())); {
	case object.GetAPIVersion() == "":
		return fmt.Errorf("%s has no apiVersion; give it one", identityOf(object))
	case object.GetName() == "" && object.GetGenerateName() != "":
		return fmt.Errorf("the %s has generateName %s, so each time it is applied it would be another object; give it a name instead",
			object.GetKind(), object.GetGenerateName())
	case object.GetName() == "":
		return fmt.Errorf("the %s has no name; give it one", object.GetKind())
	case len(wrong) > 0:
		return fmt.Errorf("the name or namespace of %s %s", identityOf(object), strings.Join(wrong, ", "))
	}
	for _, field := range []string{"annotations", "labels"} { // later reads ignore errors
		if _, _, err := unstructured.NestedStringMap(object.Object, "metadata", field); err != nil {
			return fmt.Errorf("the %s of %s: %w", field, identityOf(object), err)
		}
	}
	return nil
}

// dropNull removes the fields that are null, at all levels.
func dropNull(fields map[string]any) {
	for name, value := range fields {
		switch value := value.(type) {
		case nil:
			delete(fields, name)
		case map[string]any:
			dropNull(value)
		}
	}
}
