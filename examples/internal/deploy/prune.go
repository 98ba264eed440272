package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// prune deletes objects that the Description owns, and removes them from its list.
func (d *Deployer) prune(ctx context.Context, c *child, desc *description, ids []identity) error {
	if len(ids) == 0 {
		return nil
	}
	wanted := d.wantedByOthers(desc)
	var errs []error
	for _, id := range ids {
		err := d.delete(ctx, c, desc, id, wanted[id.unversioned()])
		switch {
		case err == nil && !d.current(ctx, c): // what is gone there may exist in the new child
			return errChanged
		case err == nil:
			desc.remove(id)
		case givesUp(ctx, err):
			return err
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// delete deletes an object, unless it belongs to another Description. A Description that
// wants the object and does not have it yet is its heir: the object is left for it.
func (d *Deployer) delete(ctx context.Context, c *child, desc *description, id identity, heir string) error {
	resource, live, err := c.find(ctx, id)
	if err != nil || live == nil || live.GetDeletionTimestamp() != nil {
		return err
	}
	switch owner := ownerOf(live); {
	case owner != desc.key() && (d.wants(owner, id) || d.has(owner, id)):
		return nil // another Description has taken it over
	case owner != desc.key() && !desc.owns(id):
		return nil // it has never been the Description's
	case heir != "":
		d.queue.Add(heir)
		return fmt.Errorf("leaving %s to Description %s: it has not taken it over yet", id, heir)
	}
	klog.FromContext(ctx).V(2).Info("Deleting", "object", id.String(), "description", desc.key())
	if err := c.delete(ctx, resource, live); apierrors.IsConflict(err) {
		return fmt.Errorf("%w: %w", errChanged, err)
	} else if err != nil {
		return err
	}
	return nil
}

// wants reports whether a Description is to have an object in the child.
func (d *Deployer) wants(key string, id identity) bool {
	other := d.cached(key)
	if other == nil || other.deleting() || !d.ours(other) {
		return false
	}
	objects, _ := other.objects() // an object that can't be read is not wanted
	return slices.ContainsFunc(identities(objects), id.same)
}

// has reports whether a Description has, or may have, an object in the child.
func (d *Deployer) has(key string, id identity) bool {
	other := d.cached(key)
	return other != nil && other.cluster() == d.cluster && other.owns(id)
}

// wantedByOthers returns which other Description is to have an object.
func (d *Deployer) wantedByOthers(desc *description) map[identity]string {
	wanted := map[identity]string{}
	for _, key := range Keys(d.opts.Descriptions.GetIndexer(), d.cluster) {
		other := d.cached(key)
		if key == desc.key() || other == nil || other.deleting() || !d.ours(other) {
			continue
		}
		objects, _ := other.objects()
		for _, id := range identities(objects) {
			wanted[id.unversioned()] = key
		}
	}
	return wanted
}
