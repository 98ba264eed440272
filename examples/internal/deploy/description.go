package deploy

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

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
	// ClusterIDLabel has the ID of the cluster that a Description is for.
	ClusterIDLabel = "clusters.clusternet.io/cluster-id"

	// Finalizer keeps a deleted Description until its objects are deleted in the child.
	Finalizer = "apps.clusternet.io/finalizer"

	// FieldManager is the same for the hub and the agent, so that each can take over
	// from the other.
	FieldManager = "clusternet-deployer"

	// ownerAnnotation marks an object of a child with the Description that it comes
	// from, as namespace.name. Clusternet does so too.
	ownerAnnotation = "apps.clusternet.io/owned-by-description"

	// deployedLabel is what the watches of a child select by, so that their cost depends
	// on what was deployed, not on all that is there.
	deployedLabel = "apps.clusternet.io/deployed"

	deployerGeneric = "Generic"

	phasePending = "Pending"
	phaseSuccess = "Success"
	phaseFailure = "Failure"

	mergePatch = types.MergePatchType

	// maxReason limits how much of a child's answer is stored in the parent.
	maxReason = 2048
)

// Cluster identifies a child cluster. An ID alone is not enough: whoever may write in one
// namespace must not deploy to the cluster of another.
type Cluster struct {
	Namespace string // its dedicated namespace in the parent
	ID        types.UID
}

func (c Cluster) String() string { return string(c.ID) + " of namespace " + c.Namespace }

// byCluster is an index of Descriptions by their Cluster.
const byCluster = "cluster"

// NewInformer returns an informer of the Descriptions in a namespace (all: empty) of
// one cluster ID (all: empty). The caller runs it.
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
// or deleted. A new status is no change, since deployers write it themselves. A
// Description that is moved to another cluster or deployer is not supported: its objects
// stay in the old cluster.
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

// description is a Description with the status that it is to get.
type description struct {
	object *unstructured.Unstructured // as last read or written; it must not be changed
	epoch  epoch                      // in which it was read, if it is to be reconciled

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

// manifests returns a new list. Its entries must not be changed.
func manifests(object *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "manifestStatuses")
	entries, _ := list.([]any)
	return slices.Clone(entries)
}

func (d *description) key() string { return d.object.GetNamespace() + "/" + d.object.GetName() }

func (d *description) cluster() Cluster {
	return Cluster{d.object.GetNamespace(), types.UID(d.object.GetLabels()[ClusterIDLabel])}
}

// sameAs reports whether a Description is as it was read, in all that its deployer reads.
func (d *description) sameAs(now *description) bool {
	a, b := d.object, now.object
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() && d.deleting() == now.deleting() &&
		maps.Equal(a.GetLabels(), b.GetLabels()) && reflect.DeepEqual(a.Object["status"], b.Object["status"]) && d.finalized() == now.finalized()
}

func (d *description) generic() bool {
	deployer, _, _ := unstructured.NestedString(d.object.Object, "spec", "deployer")
	return deployer == deployerGeneric
}

func (d *description) deleting() bool  { return d.object.GetDeletionTimestamp() != nil }
func (d *description) finalized() bool { return slices.Contains(d.object.GetFinalizers(), Finalizer) }

// mark returns what to apply for an object: without the fields that a server sets, and
// with its owner.
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
// with. The first dot ends the namespace, which has none.
func ownerOf(object metav1.Object) string {
	return strings.Replace(object.GetAnnotations()[ownerAnnotation], ".", "/", 1)
}

// statusPatch returns the patch for the status, or nil if there is nothing to write.
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

// shortPatch returns the patch for the phase and the reason alone, or nil.
func (d *description) shortPatch() []byte {
	if was := newDescription(d.object); was.phase == d.phase && was.reason == d.reason {
		return nil
	}
	return d.patchOf(map[string]any{}, map[string]any{"status": map[string]any{"phase": d.phase, "reason": d.reason}})
}

// finalizerPatch returns the patch that adds or removes the finalizer, or nil.
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

// patchOf returns a patch. The server refuses it as a conflict when somebody has written
// the Description since it was read.
func (d *description) patchOf(metadata, rest map[string]any) []byte {
	metadata["resourceVersion"], metadata["uid"] = d.object.GetResourceVersion(), d.object.GetUID()
	rest["metadata"] = metadata
	patch, err := json.Marshal(rest)
	if err != nil {
		panic(err) // it came from JSON
	}
	return patch
}
