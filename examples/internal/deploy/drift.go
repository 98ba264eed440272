package deploy

import (
	"context"
	"maps"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// observed is called with the owner of an object that was created, changed or deleted in
// the child. Anybody there can write this mark, so the owner may be none of ours.
func (d *Deployer) observed(owner string) {
	if desc := d.cached(owner); desc != nil && desc.cluster() == d.cluster {
		d.queue.AddAfter(owner, repairDelay)
	}
}

// watch begins a watch of the deployed objects of a resource, unless there is one. Changes
// of their status are ignored. It returns before the watch begins, and what changes until
// then is found by the caller, which reads the object.
func (c *child) watch(resource schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched[resource] {
		return
	}
	c.watched[resource] = true
	inf := dynamicinformer.NewFilteredDynamicInformer(c.watching, resource, metav1.NamespaceAll, 0, nil, func(o *metav1.ListOptions) {
		o.LabelSelector = deployedLabel
	}).Informer()
	// It fails only for an informer that runs. The objects are kept to be compared, no more.
	_ = inf.SetTransform(func(obj any) (any, error) {
		if object, ok := obj.(*unstructured.Unstructured); ok {
			object.SetManagedFields(nil)
			delete(object.Object, "status")
		}
		return obj, nil
	})
	_ = inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsUnauthorized(err) && ctx.Err() == nil {
			c.refused()
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	notify := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, ok := obj.(metav1.Object); ok && ownerOf(object) != "" {
			c.observed(ownerOf(object))
		}
	}
	// It fails only for an informer that has stopped.
	_, _ = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify,
		UpdateFunc: func(old, now any) {
			if equal(old.(*unstructured.Unstructured), now.(*unstructured.Unstructured)) {
				return
			}
			notify(old) // the owner may be what has changed
			notify(now)
		},
		DeleteFunc: notify,
	})
	c.start(inf.RunWithContext)
}

// equal reports whether two states of an object are the same in all that a Description
// can decide.
func equal(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(decided(a), decided(b))
}

func decided(object *unstructured.Unstructured) map[string]any {
	content := maps.Clone(object.Object)
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(metadata, field)
		}
		content["metadata"] = metadata
	}
	return content
}
