package deploy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// identity identifies an object of a child.
type identity struct{ apiVersion, kind, namespace, name string }

func identityOf(o *unstructured.Unstructured) identity {
	return identity{o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()}
}

func identities(objects []*unstructured.Unstructured) []identity {
	ids := make([]identity, 0, len(objects))
	for _, object := range objects {
		ids = append(ids, identityOf(object))
	}
	return ids
}

func (id identity) gvk() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(id.apiVersion, id.kind)
}

// same reports whether it is the same object, in any version.
func (id identity) same(other identity) bool { return id.unversioned() == other.unversioned() }

// unversioned is the same for all versions.
func (id identity) unversioned() identity {
	id.apiVersion = id.gvk().Group
	return id
}

// anyGroup is the same for all groups and versions.
func (id identity) anyGroup() identity {
	id.apiVersion = ""
	return id
}

func (id identity) String() string {
	name := id.name
	if id.namespace != "" {
		name = id.namespace + "/" + name
	}
	return id.kind + " " + name
}

func identityOfManifest(entry any) identity {
	fields, _ := entry.(map[string]any)
	text := func(field string) string { value, _ := fields[field].(string); return value }
	return identity{text("apiVersion"), text("kind"), text("namespace"), text("name")}
}

// owned returns the objects that the Description has, or may have, in the child.
func (d *description) owned() []identity {
	ids := make([]identity, 0, len(d.manifests))
	for _, entry := range d.manifests {
		ids = append(ids, identityOfManifest(entry))
	}
	return ids
}

func (d *description) owns(id identity) bool { return slices.ContainsFunc(d.owned(), id.same) }

// add adds objects to the list of what the Description owns.
func (d *description) add(objects []*unstructured.Unstructured) {
	for _, id := range identities(objects) {
		if slices.Contains(d.owned(), id) {
			continue
		}
		d.remove(id) // an entry with another version
		entry := map[string]any{"apiVersion": id.apiVersion, "kind": id.kind, "name": id.name}
		if id.namespace != "" {
			entry["namespace"] = id.namespace
		}
		d.manifests = append(d.manifests, entry)
	}
}

// remove removes an object from that list.
func (d *description) remove(id identity) {
	d.manifests = slices.DeleteFunc(d.manifests, func(entry any) bool { return identityOfManifest(entry).same(id) })
}
