package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// deleteAttempts is how often an object is deleted only if it has not changed since it
// was read. Others may write it all the time, so then it goes by its UID alone.
const deleteAttempts = 3

// terminating means that an object is being deleted and is still there.
type terminating struct {
	id         identity
	finalizers []string
}

func (t *terminating) Error() string {
	if len(t.finalizers) == 0 {
		return fmt.Sprintf("waiting until %s is deleted", t.id)
	}
	return fmt.Sprintf("waiting until %s is deleted: it has the finalizers %s", t.id, strings.Join(t.finalizers, ", "))
}

// prune deletes objects that the Description owns, and removes them from its list. What
// was applied last is deleted first. What is still there keeps those of other kinds that
// were applied before it: its finalizers may be the work of one of them. What was
// just applied has its UID in kept, and is not deleted.
func (d *Deployer) prune(ctx context.Context, c *child, desc *description, ids []identity, kept map[types.UID]identity) error {
	if len(ids) == 0 {
		return nil
	}
	p := pruning{d, c, desc, d.wantedByOthers(desc), kept}
	var errs []error
	var waiting *terminating
	for _, id := range slices.Backward(ids) {
		if waiting != nil && waiting.id.kind != id.kind {
			break
		}
		err := p.delete(ctx, id)
		switch {
		case err == nil && !d.current(ctx, c): // what is gone there may exist in the new child
			return errChanged
		case err == nil:
			desc.remove(id)
		case givesUp(ctx, err):
			return err
		case !errors.As(err, &waiting):
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil || waiting == nil {
		return err
	}
	return waiting
}

// pruning is the deletion of some objects of a Description.
type pruning struct {
	*Deployer
	child  *child
	desc   *description
	wanted map[identity][]heir
	kept   map[types.UID]identity
}

// delete deletes an object, unless it belongs to another Description.
func (p pruning) delete(ctx context.Context, id identity) error {
	for attempt := 1; ; attempt++ {
		resource, live, err := p.child.find(ctx, id)
		if err != nil || live == nil {
			return err
		}
		if ours, err := p.owns(ctx, id, live); err != nil || !ours {
			return err
		}
		if live.GetDeletionTimestamp() != nil {
			return &terminating{id, live.GetFinalizers()}
		}
		log := klog.FromContext(ctx).WithValues("object", id.String(), "description", p.desc.key())
		log.V(2).Info("Deleting")
		unchanged := attempt <= deleteAttempts
		if !unchanged {
			log.Info("Deleting whatever has changed, since others write it all the time")
		}
		err = p.child.delete(ctx, resource, live, unchanged)
		switch {
		case apierrors.IsConflict(err) && unchanged:
			continue
		case apierrors.IsConflict(err):
			return fmt.Errorf("%w; others create it again and again, stop them", err)
		case err != nil:
			return err
		}
		now, err := p.child.get(ctx, resource, id)
		if err != nil || now == nil || now.GetUID() != live.GetUID() {
			return err
		}
		return &terminating{id, now.GetFinalizers()}
	}
}

// owns reports whether a live object is the Description's to delete. A Description that
// wants the object and does not have it yet is its heir: the object is left for it.
func (p pruning) owns(ctx context.Context, id identity, live *unstructured.Unstructured) (bool, error) {
	if same, ok := p.kept[live.GetUID()]; ok {
		klog.FromContext(ctx).V(2).Info("Keeping an object that was applied under another name", "object", id.String(), "as", same)
		return false, nil
	}
	switch owner := ownerOf(live); {
	case owner != p.desc.key() && p.alive(owner):
		return false, nil // another Description has taken it over
	case p.foreignOwner(live) != "":
		return false, nil // and so has one of another parent cluster
	case owner != p.desc.key() && !p.desc.owns(id):
		return false, nil // it has never been the Description's
	}
	for _, heir := range p.wanted[id.anyGroup()] {
		if !heir.id.same(id) { // one object may be served by several groups
			if _, other, err := p.child.find(ctx, heir.id); err != nil {
				return false, err
			} else if other == nil || other.GetUID() != live.GetUID() {
				continue
			}
		}
		p.Add(heir.key)
		return false, fmt.Errorf("leaving %s to Description %s: it has not taken it over yet", id, heir.key)
	}
	return true, nil
}

// alive reports whether there is a Description that can own objects of the child.
func (d *Deployer) alive(key string) bool {
	desc := d.cached(key)
	return desc != nil && d.ours(desc)
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

// heir is a Description that is to have an object.
type heir struct {
	key string
	id  identity
}

// wantedByOthers returns which other Descriptions are to have an object, whatever the
// group that it is in.
func (d *Deployer) wantedByOthers(desc *description) map[identity][]heir {
	wanted := map[identity][]heir{}
	for _, key := range Keys(d.opts.Descriptions.GetIndexer(), d.cluster) {
		other := d.cached(key)
		if key == desc.key() || other == nil || other.deleting() || !d.ours(other) {
			continue
		}
		objects, _ := other.objects()
		for _, id := range identities(objects) {
			wanted[id.anyGroup()] = append(wanted[id.anyGroup()], heir{key, id})
		}
	}
	return wanted
}
