package deploy

import (
	"context"
	"maps"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// observed is called with the owner of an object that was created, changed or deleted in
// the child. Anybody there can write this mark, so the owner may be none of ours.
func (d *Deployer) observed(owner string, id identity) {
	if desc := d.cached(owner); desc != nil && desc.cluster() == d.cluster {
		d.schedule(owner, id, d.agenda.delay(id))
	}
}

// repair applies some objects of a Description that others may have changed. What else is
// to be done for these objects is left to a reconciliation of the whole Description.
func (d *Deployer) repair(ctx context.Context, desc *description, ids []identity) error {
	objects, err := desc.objects()
	if err != nil {
		return nil // this is in the status already
	}
	unlike := func(o *unstructured.Unstructured) bool { return !slices.ContainsFunc(ids, identityOf(o).same) }
	some := slices.DeleteFunc(slices.Clone(objects), unlike)
	for _, id := range ids {
		if wanted := slices.ContainsFunc(identities(some), id.same); wanted != desc.owns(id) {
			d.Add(desc.key())
			return nil
		}
	}
	if len(some) == 0 {
		return nil
	}
	return d.operate(ctx, desc, func(ctx context.Context, c *child) error {
		p, err := d.plan(ctx, c, desc, some)
		if err != nil {
			return err
		}
		for _, object := range p.valid {
			id := identityOf(object)
			found := slices.ContainsFunc(p.due, func(w write) bool { return identityOf(w.object) == id })
			d.agenda.compared(id, found)
		}
		return d.write(ctx, desc, p)
	})
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
			keepAppliedFields(object)
			delete(object.Object, "status")
		}
		return obj, nil
	})
	var end context.CancelFunc // it is set before the informer runs
	_ = inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		switch {
		case ctx.Err() != nil:
		case apierrors.IsUnauthorized(err):
			c.refused()
		case apierrors.IsNotFound(err):
			end()
			c.withdrawn(resource)
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	notify := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, ok := obj.(*unstructured.Unstructured); ok && ownerOf(object) != "" {
			c.observed(ownerOf(object), identityOf(object))
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
	c.start(func(ctx context.Context) {
		ctx, end = context.WithCancel(ctx)
		defer end()
		inf.RunWithContext(ctx)
	})
}

// withdrawn ends what is known of a resource that the child does not serve any more, for
// example because its CustomResourceDefinition was deleted.
func (c *child) withdrawn(resource schema.GroupVersionResource) {
	c.mu.Lock()
	delete(c.watched, resource)
	var kinds []schema.GroupVersionKind
	for gvk, k := range c.kinds {
		if k.resource == resource {
			kinds = append(kinds, gvk)
			delete(c.kinds, gvk)
		}
	}
	c.mu.Unlock()
	for _, gvk := range kinds {
		c.gone(gvk)
	}
}

// kindGone is called when the child does not serve a kind any more. Those who have objects
// of it begin to watch again when it is back.
func (d *Deployer) kindGone(gvk schema.GroupVersionKind) {
	for _, key := range Keys(d.opts.Descriptions.GetIndexer(), d.cluster) {
		desc := d.cached(key)
		if desc != nil && slices.ContainsFunc(desc.owned(), func(id identity) bool { return id.gvk().GroupKind() == gvk.GroupKind() }) {
			d.schedule(key, whole, repairDelay)
		}
	}
}

// equal reports whether two states of an object are the same in all that a Description
// decides: the fields that were applied for it. Where the server tells no fields, these
// are all fields.
func equal(a, b *unstructured.Unstructured) bool {
	applied, same := appliedFields(a), appliedFields(b)
	if applied == nil && same == nil {
		return reflect.DeepEqual(decided(a), decided(b))
	}
	return reflect.DeepEqual(applied, same) && a.GetUID() == b.GetUID() &&
		(a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil) && ownerOf(a) == ownerOf(b) &&
		reflect.DeepEqual(project(a.Object, applied), project(b.Object, applied))
}

// changes reports whether a write that makes an object what it would be changes a field that
// is or was applied. To regain a field whose value is right is no reason to write.
func changes(live, would *unstructured.Unstructured) bool {
	was, is := appliedFields(live), appliedFields(would)
	switch {
	case was == nil && is == nil:
		return !equal(live, would)
	case was == nil || is == nil:
		return true
	}
	return !reflect.DeepEqual(project(live.Object, was), project(would.Object, was)) ||
		!reflect.DeepEqual(project(live.Object, is), project(would.Object, is))
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
