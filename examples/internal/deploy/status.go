package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// cached returns a Description from the informer, or nil.
func (d *Deployer) cached(key string) *description {
	object, exists, err := d.opts.Descriptions.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	return newDescription(object.(*unstructured.Unstructured))
}

// read returns a Description from the server, or nil. The informer may not have the last
// written status yet, and then a new status could be taken for written already.
func (d *Deployer) read(ctx context.Context, key string) (*description, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, fmt.Errorf("reading Description %s: %w", key, err)
	}
	at := epochOf(d.opts.Gate) // before it is read
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	object, err := d.opts.Parent.Resource(Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Description %s: %w", key, err)
	}
	desc := newDescription(object)
	desc.epoch = at
	return desc, nil
}

// saveOutcome writes the outcome to the status of the Description.
func (d *Deployer) saveOutcome(ctx context.Context, desc *description, phase, reason string) error {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + " ..."
	}
	desc.phase, desc.reason = phase, reason
	return d.saveStatus(ctx, desc)
}

// errTooLarge means that the status of a Description does not fit into it.
var errTooLarge = errors.New("it is too large for the parent cluster; divide it into several Descriptions")

// saveStatus writes the status if it has changed. Like finalize, it fails with errChanged
// when somebody has written the Description since it was read. A status that is too large
// is told in a short one, and saveStatus fails with errTooLarge.
func (d *Deployer) saveStatus(ctx context.Context, desc *description) error {
	err := d.patch(ctx, desc, desc.statusPatch, "status")
	if !isTooLarge(err) {
		return err
	}
	problem := fmt.Errorf("writing the status of Description %s, which lists %d objects: %w", desc.key(), len(desc.manifests), errTooLarge)
	if desc.phase != phasePending {
		desc.phase = phaseFailure
	}
	for _, desc.reason = range []string{problem.Error(), "too large", ""} {
		err = d.patch(ctx, desc, desc.shortPatch, "status")
		if !isTooLarge(err) {
			break
		}
	}
	return errors.Join(problem, err)
}

// isTooLarge reports whether a write was refused for its size, by the API server or by
// its storage.
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		err != nil && (strings.Contains(err.Error(), "request is too large") || strings.Contains(err.Error(), "larger than max"))
}

// finalize adds the finalizer, or removes it.
func (d *Deployer) finalize(ctx context.Context, desc *description, want bool) error {
	err := d.patch(ctx, desc, func() []byte { return desc.finalizerPatch(want) })
	if !want && gone(err) {
		return nil
	}
	return err
}

// patchAttempts is how often a patch is tried when others write the Description.
const patchAttempts = 4

// patch writes a patch unless it is nil. It is made again when somebody has written what
// does not matter here: a Description that is written all the time is deployed too.
func (d *Deployer) patch(ctx context.Context, desc *description, patchOf func() []byte, subresources ...string) error {
	for attempt := 1; ; attempt++ {
		patch := patchOf()
		if patch == nil {
			return nil
		}
		object, err := d.patchOnce(ctx, desc, patch, subresources...)
		switch {
		case err == nil:
			desc.object = object
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("writing Description %s: %w", desc.key(), err)
		}
		now, readErr := d.read(ctx, desc.key())
		if readErr != nil || now == nil || attempt == patchAttempts || !desc.sameAs(now) {
			return fmt.Errorf("writing Description %s: %w: %w", desc.key(), errChanged, err)
		}
		desc.object = now.object
	}
}

func (d *Deployer) patchOnce(ctx context.Context, desc *description, patch []byte, subresources ...string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return d.opts.Parent.Resource(Resource).Namespace(desc.object.GetNamespace()).
		Patch(ctx, desc.object.GetName(), mergePatch, patch, metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
}
