package deploy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// Resource is that of Clusternet's Descriptions.
var Resource = schema.GroupVersionResource{Group: "apps.clusternet.io", Version: "v1alpha1", Resource: "descriptions"}

const (
	// ClusterIDLabel says which cluster a Description is for.
	ClusterIDLabel = "clusters.clusternet.io/cluster-id"

	// Finalizer keeps a deleted Description until the child has been cleaned.
	Finalizer = "apps.clusternet.io/finalizer"

	// FieldManager is the same for hub and agent, so that either can take over from
	// the other.
	FieldManager = "clusternet-deployer"

	// ownerAnnotation marks an object of a child with the Description that it comes
	// from, as namespace.name. Clusternet does so too.
	ownerAnnotation = "apps.clusternet.io/owned-by-description"

	// deployedLabel is what the watches of a child select by, so that they cost as
	// much as what was deployed, not as all that is there.
	deployedLabel = "apps.clusternet.io/deployed"

	deployerGeneric = "Generic"

	phasePending = "Pending"
	phaseSuccess = "Success"
	phaseFailure = "Failure"

	mergePatch = types.MergePatchType

	// maxReason keeps what a child answers from filling the parent.
	maxReason = 2048
)

// Cluster is a child cluster as Descriptions name it. An ID alone does not do: whoever
// may write in one namespace must not deploy to the cluster of another.
type Cluster struct {
	Namespace string // the dedicated one, in the parent
	ID        types.UID
}

func (c Cluster) String() string { return string(c.ID) + " of namespace " + c.Namespace }

// byCluster is an index of Descriptions by their Cluster.
const byCluster = "cluster"

// NewInformer returns an informer of the Descriptions in a namespace (all: empty) of
// one cluster ID (all: empty). It is for the caller to run.
func NewInformer(client dynamic.Interface, namespace string, clusterID types.UID) cache.SharedIndexInformer {
	indexers := cache.Indexers{byCluster: func(obj any) ([]string, error) {
		return []string{newDescription(obj.(*unstructured.Unstructured)).cluster().String()}, nil
	}}
	return dynamicinformer.NewFilteredDynamicInformer(client, Resource, namespace, 0, indexers, func(o *metav1.ListOptions) {
		if clusterID != "" {
			o.LabelSelector = ClusterIDLabel + "=" + string(clusterID)
		}
	}).Informer()
}

// Keys returns the Descriptions of a cluster, as namespace/name.
func Keys(descriptions cache.Indexer, cluster Cluster) []string {
	objects, err := descriptions.ByIndex(byCluster, cluster.String())
	if err != nil {
		return nil // there is this index, see NewInformer
	}
	keys := make([]string, 0, len(objects))
	for _, object := range objects {
		keys = append(keys, newDescription(object.(*unstructured.Unstructured)).key())
	}
	return keys
}

// OnChange returns a handler that calls add for each Description that is new, edited
// or deleted. A new status is no change: it is what deployers write themselves. (That a
// Description comes to be for another cluster or another deployer is not provided for:
// what it has in the old one stays there.)
func OnChange(add func(cluster Cluster, key string)) cache.ResourceEventHandler {
	changed := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, ok := obj.(*unstructured.Unstructured); ok {
			desc := newDescription(object)
			add(desc.cluster(), desc.key())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(old, now any) {
			was, is := old.(*unstructured.Unstructured), now.(*unstructured.Unstructured)
			if was.GetUID() != is.GetUID() || was.GetGeneration() != is.GetGeneration() ||
				(was.GetDeletionTimestamp() == nil) != (is.GetDeletionTimestamp() == nil) ||
				!maps.Equal(was.GetLabels(), is.GetLabels()) {
				changed(now)
			}
		},
		DeleteFunc: changed,
	}
}

// description is a Description, with the status that it is to have.
type description struct {
	object *unstructured.Unstructured // as it was last read or written; it is not changed

	phase, reason string
	manifests     []any // status.manifestStatuses
}

func newDescription(object *unstructured.Unstructured) *description {
	d := &description{object: object}
	d.phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
	d.reason, _, _ = unstructured.NestedString(object.Object, "status", "reason")
	d.manifests = manifests(object)
	return d
}

// manifests returns a list that may be changed, of entries that may not.
func manifests(object *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "manifestStatuses")
	entries, _ := list.([]any)
	return slices.Clone(entries)
}

func (d *description) key() string { return d.object.GetNamespace() + "/" + d.object.GetName() }

func (d *description) cluster() Cluster {
	return Cluster{d.object.GetNamespace(), types.UID(d.object.GetLabels()[ClusterIDLabel])}
}

func (d *description) generic() bool {
	deployer, _, _ := unstructured.NestedString(d.object.Object, "spec", "deployer")
	return deployer == deployerGeneric
}

func (d *description) deleting() bool  { return d.object.GetDeletionTimestamp() != nil }
func (d *description) finalized() bool { return slices.Contains(d.object.GetFinalizers(), Finalizer) }

// objects returns what is to be in the child. With an error, it returns what could
// be read.
func (d *description) objects() ([]*unstructured.Unstructured, error) {
	raw, _, err := unstructured.NestedStringSlice(d.object.Object, "spec", "raw")
	if err != nil {
		return nil, fmt.Errorf("reading Description %s: %w", d.key(), err)
	}
	var objects []*unstructured.Unstructured
	var errs []error
	for i, encoded := range raw {
		object, err := decode(encoded)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading spec.raw[%d] of Description %s: %w", i, d.key(), err))
			continue
		}
		if slices.ContainsFunc(identities(objects), identityOf(object).same) {
			errs = append(errs, fmt.Errorf("reading spec.raw[%d] of Description %s: %s is in it twice; remove one", i, d.key(), identityOf(object)))
			continue
		}
		objects = append(objects, object)
	}
	return objects, errors.Join(errs...)
}

func decode(encoded string) (*unstructured.Unstructured, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	switch wrong := slices.Concat(content.IsPathSegmentName(object.GetName()), content.IsPathSegmentName(object.GetNamespace())); {
	case object.GetAPIVersion() == "":
		return nil, fmt.Errorf("%s has no apiVersion; give it one", identityOf(object))
	case object.GetName() == "":
		return nil, fmt.Errorf("the %s has no name; give it one", object.GetKind())
	case len(wrong) > 0:
		return nil, fmt.Errorf("the name or namespace of %s %s", identityOf(object), strings.Join(wrong, ", "))
	}
	for _, field := range []string{"annotations", "labels"} { // read leniently later
		if _, _, err := unstructured.NestedStringMap(object.Object, "metadata", field); err != nil {
			return nil, fmt.Errorf("the %s of %s: %w", field, identityOf(object), err)
		}
	}
	return object, nil
}

// mark returns what to apply for an object: without what belongs to its server, and
// with whose it is.
func (d *description) mark(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	unstructured.RemoveNestedField(object.Object, "status")
	for _, field := range []string{"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	annotations, labels := object.GetAnnotations(), object.GetLabels()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if labels == nil {
		labels = map[string]string{}
	}
	annotations[ownerAnnotation] = d.object.GetNamespace() + "." + d.object.GetName()
	labels[deployedLabel] = "true"
	object.SetAnnotations(annotations)
	object.SetLabels(labels)
	return object
}

// ownerOf returns the key of the Description that an object of a child is marked
// with. A namespace has no dot.
func ownerOf(object metav1.Object) string {
	return strings.Replace(object.GetAnnotations()[ownerAnnotation], ".", "/", 1)
}

// identity is what tells an object of a child.
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

// same tells whether it is the same object, in whichever version.
func (id identity) same(other identity) bool { return id.unversioned() == other.unversioned() }

// unversioned is the same for all versions.
func (id identity) unversioned() identity {
	id.apiVersion = id.gvk().Group
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

// owned returns what the Description has, or may have, in the child.
func (d *description) owned() []identity {
	ids := make([]identity, 0, len(d.manifests))
	for _, entry := range d.manifests {
		ids = append(ids, identityOfManifest(entry))
	}
	return ids
}

func (d *description) owns(id identity) bool { return slices.ContainsFunc(d.owned(), id.same) }

// enter puts objects on the list of what the Description owns.
func (d *description) enter(objects []*unstructured.Unstructured) {
	for _, id := range identities(objects) {
		if slices.Contains(d.owned(), id) {
			continue
		}
		d.leave(id) // in another version
		entry := map[string]any{"apiVersion": id.apiVersion, "kind": id.kind, "name": id.name}
		if id.namespace != "" {
			entry["namespace"] = id.namespace
		}
		d.manifests = append(d.manifests, entry)
	}
}

// leave takes an object off that list.
func (d *description) leave(id identity) {
	d.manifests = slices.DeleteFunc(d.manifests, func(entry any) bool { return identityOfManifest(entry).same(id) })
}

// statusPatch returns what brings the status up to date, or nil.
func (d *description) statusPatch() []byte {
	was := newDescription(d.object)
	if was.phase == d.phase && was.reason == d.reason &&
		slices.Equal(was.owned(), d.owned()) {
		return nil
	}
	status := map[string]any{"reason": d.reason, "manifestStatuses": d.manifests}
	if d.phase != "" {
		status["phase"] = d.phase
	}
	return d.patchOf(map[string]any{}, map[string]any{"status": status})
}

// finalizerPatch returns what adds or removes the finalizer, or nil.
func (d *description) finalizerPatch(want bool) []byte {
	if d.finalized() == want {
		return nil
	}
	finalizers := slices.DeleteFunc(d.object.GetFinalizers(), func(f string) bool { return f == Finalizer })
	if want {
		finalizers = append(finalizers, Finalizer)
	}
	return d.patchOf(map[string]any{"finalizers": finalizers}, map[string]any{})
}

// patchOf returns a patch that is refused as a conflict when the Description has been
// written since it was read.
func (d *description) patchOf(metadata, rest map[string]any) []byte {
	metadata["resourceVersion"], metadata["uid"] = d.object.GetResourceVersion(), d.object.GetUID()
	rest["metadata"] = metadata
	patch, err := json.Marshal(rest)
	if err != nil {
		panic(err) // it came from JSON
	}
	return patch
}
