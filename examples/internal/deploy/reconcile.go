package deploy

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/syncgate"
)

// errChanged means that something has changed since it was read. What was decided may be
// wrong, so the Description is reconciled again.
var errChanged = errors.New("it has changed since it was read")

func (d *Deployer) work(ctx context.Context) {
	for {
		key, shutdown := d.queue.Get()
		if shutdown {
			return
		}
		d.process(ctx, key)
		d.queue.Done(key)
	}
}

func (d *Deployer) process(ctx context.Context, key string) {
	all, objects, next := d.agenda.take(key)
	if !next.IsZero() {
		d.queue.AddAfter(key, time.Until(next))
	}
	if !all && len(objects) == 0 {
		return // it was done with something that was due before
	}
	if all {
		objects = nil
	}
	err := d.reconcile(ctx, key, objects)
	switch {
	case err == nil:
		if all {
			d.retries.Forget(key)
		}
		return
	case ctx.Err() != nil || errors.Is(err, syncgate.ErrStopped):
		return // the next deployer begins with all Descriptions
	case apierrors.IsUnauthorized(err):
		d.refreshConfig()
	}
	if errors.Is(err, errTooLarge) {
		d.schedule(key, whole, tooLargeRetry)
	} else {
		d.retry(key)
	}
	if log := klog.FromContext(ctx); errors.Is(err, errChanged) || errors.As(err, new(*terminating)) {
		log.V(4).Info("Will reconcile again", "description", key, "reason", err)
	} else {
		log.Error(err, "Could not deploy, will retry", "description", key)
	}
}

// reconcile handles a key of the queue: some objects of a Description, or the whole of it.
func (d *Deployer) reconcile(ctx context.Context, key string, objects []identity) error {
	if key == reconnect {
		if d.opts.Gate.Paused() || !d.mine() {
			return nil // the next opening does it
		}
		_, err := d.connect(ctx)
		return err
	}
	// The parent is not asked about Descriptions of others.
	cached := d.cached(key)
	if cached == nil {
		d.backlog.Forget(key)
		return nil
	}
	if !d.ours(cached) || !cached.deleting() && !d.mine() {
		return nil
	}
	desc, err := d.read(ctx, key)
	if err != nil || desc == nil || !d.ours(desc) || desc.deleting() && !desc.finalized() {
		return err
	}
	if desc.deleting() {
		if lost, err := d.lost(ctx); err != nil {
			return err
		} else if lost {
			d.backlog.Forget(key)
			d.disconnect()
			return d.finalize(ctx, desc, false)
		}
	}
	if !d.mine() {
		return nil
	}
	repair := objects != nil && !desc.deleting()
	if repair {
		err = d.repair(ctx, desc, objects)
	} else {
		err = d.sync(ctx, desc)
	}
	switch {
	case errors.Is(err, errParked):
		return d.saveOutcome(ctx, desc, phasePending, "kept back when it was due: "+d.opts.Gate.State().Message)
	case errors.As(err, new(*terminating)):
		return errors.Join(err, d.saveOutcome(ctx, desc, phasePending, err.Error()))
	case errors.Is(err, errTooLarge): // it has told so
		return err
	case ctx.Err() != nil, errors.Is(err, errChanged), errors.Is(err, syncgate.ErrStopped): // not a failure of the Description
		return err
	case err != nil:
		return errors.Join(err, d.saveOutcome(ctx, desc, phaseFailure, err.Error()))
	case repair:
		return nil
	case desc.deleting():
		return d.finalize(ctx, desc, false)
	default:
		return d.saveOutcome(ctx, desc, phaseSuccess, "")
	}
}

// sync brings the child in line with a Description. It fails with errParked when the gate
// has refused a step.
func (d *Deployer) sync(ctx context.Context, desc *description) error {
	if !desc.deleting() {
		return d.apply(ctx, desc)
	}
	objects, _ := desc.objects() // an object that can't be read was never written
	ids := append(desc.owned(), slices.DeleteFunc(identities(objects), desc.owns)...)
	return d.operate(ctx, desc, func(ctx context.Context, c *child) error { return d.prune(ctx, c, desc, ids, nil) })
}

// ours reports whether a Description is for us to deploy to the child.
func (d *Deployer) ours(desc *description) bool { return desc.generic() && desc.cluster() == d.cluster }

func (d *Deployer) mine() bool { return d.opts.Mine == nil || d.opts.Mine() }

func (d *Deployer) lost(ctx context.Context) (bool, error) {
	if d.opts.Lost == nil {
		return false, nil
	}
	return d.opts.Lost(ctx)
}
