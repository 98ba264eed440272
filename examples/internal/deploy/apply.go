package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

// apply applies the objects of a Description, and prunes what it no longer has.
//
// It reads all objects, then writes all. The status lists an object before it is written,
// so that a deployer that starts after a crash knows of it. An object that can't be
// written must not be listed.
func (d *Deployer) apply(ctx context.Context, c *child, desc *description, objects []*unstructured.Unstructured) error {
	valid, due, failed := d.plan(ctx, c, desc, objects)
	if givesUp(ctx, failed) {
		return failed
	}
	if err := d.finalize(ctx, desc, true); err != nil {
		return err
	}
	desc.add(valid)
	if err := d.saveStatus(ctx, desc); err != nil {
		return err
	}
	errs := []error{failed}
	for _, w := range due {
		err := d.request(ctx, desc, c, func(ctx context.Context) error {
			klog.FromContext(ctx).V(2).Info("Applying", "object", identityOf(w.object).String(), "description", desc.key())
			return c.apply(ctx, w.resource, w.object)
		})
		if givesUp(ctx, err) {
			return err
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err // what was removed may be what the other objects still need
	}
	removed := slices.DeleteFunc(desc.owned(), func(id identity) bool {
		return slices.ContainsFunc(identities(objects), id.same)
	})
	return d.prune(ctx, c, desc, removed)
}

// givesUp reports whether an error of one object means that the others fail as well.
func givesUp(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, errParked) || errors.Is(err, errChanged) || ctx.Err() != nil)
}

// write is an object that is to be applied.
type write struct {
	resource dynamic.ResourceInterface
	object   *unstructured.Unstructured
}

// plan returns which of the objects can be written, and which of them have to be.
func (d *Deployer) plan(ctx context.Context, c *child, desc *description, objects []*unstructured.Unstructured) (valid []*unstructured.Unstructured, due []write, err error) {
	var errs []error
	for _, object := range objects {
		var w *write
		err := d.request(ctx, desc, c, func(ctx context.Context) (err error) {
			w, err = d.planOne(ctx, c, desc, object)
			return err
		})
		switch {
		case givesUp(ctx, err):
			return nil, nil, err
		case err != nil:
			errs = append(errs, err)
			continue
		case w != nil:
			due = append(due, *w)
		}
		valid = append(valid, object)
	}
	return valid, due, errors.Join(errs...)
}

// planOne returns the write for an object, or nil if it would change nothing.
func (d *Deployer) planOne(ctx context.Context, c *child, desc *description, object *unstructured.Unstructured) (*write, error) {
	id := identityOf(object)
	resource, err := c.resource(ctx, id)
	if err != nil {
		return nil, err
	}
	object = desc.mark(object)
	live, err := c.get(ctx, resource, id)
	if err != nil {
		return nil, err
	}
	if live != nil {
		if owner := ownerOf(live); owner != desc.key() && d.wants(owner, id) {
			return nil, fmt.Errorf("applying %s: Description %s has it too; remove it from one of them", id, owner)
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("applying %s: it is being deleted; it is created again once it is gone", id)
		}
		if differs, err := c.differs(ctx, resource, object, live); err != nil || !differs {
			return nil, err
		}
	}
	return &write{resource, object}, nil
}
