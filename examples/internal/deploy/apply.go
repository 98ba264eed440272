package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/syncgate"
)

// plan is what a Description needs in the child.
type plan struct {
	child  *child
	valid  []*unstructured.Unstructured // the objects that can be written
	due    []write                      // those that have to be written
	failed error                        // why others can't be written

	// uids are those of the objects that are in the child.
	uids map[types.UID]identity
}

// write is an object that is to be applied.
type write struct {
	resource dynamic.ResourceInterface
	object   *unstructured.Unstructured
	from     string // the Description of another parent cluster that has it so far
}

// apply applies the objects of a Description, and prunes what it no longer has.
//
// One operation reads all objects, another one writes all. The status lists an object
// before it is written, so that a deployer that starts after a crash knows of it. An
// object that can't be written must not be listed. The list is written between the two
// operations, since a pause must not wait for the parent.
func (d *Deployer) apply(ctx context.Context, desc *description) error {
	var p plan
	if err := d.operate(ctx, desc, func(ctx context.Context, c *child) error {
		objects, err := desc.objects()
		if err == nil {
			p, err = d.plan(ctx, c, desc, objects)
		}
		return err
	}); err != nil {
		return err
	}
	if err := d.finalize(ctx, desc, true); err != nil {
		return err
	}
	desc.add(p.valid)
	if err := d.saveStatus(ctx, desc); err != nil {
		return err
	}
	return d.operate(ctx, desc, func(ctx context.Context, _ *child) error { return d.carryOut(ctx, desc, p) })
}

// plan reads which of the objects can be written, and which of them have to be.
func (d *Deployer) plan(ctx context.Context, c *child, desc *description, objects []*unstructured.Unstructured) (plan, error) {
	p := plan{child: c, uids: map[types.UID]identity{}}
	var errs []error
	for _, object := range objects {
		w, err := d.planOne(ctx, p, desc, object)
		switch {
		case givesUp(ctx, err):
			return p, err
		case err != nil:
			errs = append(errs, err)
			continue
		case w != nil:
			p.due = append(p.due, *w)
		}
		p.valid = append(p.valid, object)
	}
	p.failed = errors.Join(errs...)
	return p, nil
}

// planOne returns the write for an object, or nil if it would change nothing.
func (d *Deployer) planOne(ctx context.Context, p plan, desc *description, object *unstructured.Unstructured) (*write, error) {
	id := identityOf(object)
	resource, err := p.child.resource(ctx, id)
	if err != nil {
		return nil, err
	}
	object = desc.mark(object)
	live, err := p.child.get(ctx, resource, id)
	if err != nil {
		return nil, err
	}
	if live != nil {
		if same, ok := p.uids[live.GetUID()]; ok {
			return nil, fmt.Errorf("applying %s: it is the same object as %s of %s; remove one of them", id, same, same.apiVersion)
		}
		p.uids[live.GetUID()] = id
		if owner := ownerOf(live); owner != desc.key() && d.wants(owner, id) {
			return nil, fmt.Errorf("applying %s: Description %s has it too; remove it from one of them", id, owner)
		}
		if d.takeovers.again(id, d.foreignOwner(live)) {
			return nil, fmt.Errorf("applying %s: another deployer has taken it over again, for Description %s, "+
				"which is of another parent cluster or namespace; remove it from one of them", id, ownerOf(live))
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("applying %s: it is being deleted; it is created again once it is gone", id)
		}
		if differs, err := p.child.differs(ctx, resource, object, live); err != nil || !differs {
			return nil, err
		}
	}
	return &write{resource, object, d.foreignOwner(live)}, nil
}

// carryOut writes what is due, and prunes what the Description no longer has.
func (d *Deployer) carryOut(ctx context.Context, desc *description, p plan) error {
	if err := d.write(ctx, desc, p); err != nil {
		return err // what was removed may be what the other objects still need
	}
	removed := slices.DeleteFunc(desc.owned(), func(id identity) bool {
		return slices.ContainsFunc(identities(p.valid), id.same)
	})
	return d.prune(ctx, p.child, desc, removed, p.uids)
}

// write writes what is due. It fails when an object can't be written.
func (d *Deployer) write(ctx context.Context, desc *description, p plan) error {
	errs := []error{p.failed}
	for _, w := range p.due {
		id := identityOf(w.object)
		klog.FromContext(ctx).V(2).Info("Applying", "object", id.String(), "description", desc.key())
		live, err := p.child.apply(ctx, w.resource, w.object)
		if err == nil {
			d.takeovers.add(id, w.from)
			err = p.child.dropOtherClaims(ctx, w.resource, live)
		}
		switch {
		case givesUp(ctx, err):
			return err
		case err != nil:
			errs = append(errs, err)
		default:
			p.uids[live.GetUID()] = id
			d.agenda.compared(id, true)
		}
	}
	return errors.Join(errs...)
}

// givesUp reports whether an error of one object means that the others fail as well.
func givesUp(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, syncgate.ErrPaused) || errors.Is(err, errChanged) || ctx.Err() != nil)
}
