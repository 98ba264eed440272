package report

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// write writes a condition to the server when its turn has come. Else it queues the
// cluster for that moment.
func (r *Reporter) write(ctx context.Context, gate *syncgate.Gate, e *entry, want metav1.Condition) error {
	pace, elapsed := e.pace(&want), time.Since(e.writtenAt)
	if elapsed < pace {
		r.queue.AddAfter(e.clusterID, pace-elapsed)
		return nil
	}
	resource := r.client.Resource(informer.Resource).Namespace(e.key.Namespace)
	live, err := readLive(ctx, resource, e, &want)
	if live == nil {
		return err
	}
	// The request may have waited for long. An edit from here on makes the write a
	// conflict.
	if want, err = r.recheck(gate, e, want); err != nil {
		return err
	}
	current := observedIn(live.Object)
	if current.equals(&want) {
		r.table.update(e, func(now *entry) { r.foundLocked(now, e, current) })
		return nil
	}
	setTransitionTime(&want, e.reported, current.condition)
	kept, err := updateStatus(ctx, resource, live, &want)
	if err != nil || kept.condition == nil {
		return err
	}
	restored := equal(e.reported, &want)
	r.table.update(e, func(now *entry) {
		r.foundLocked(now, e, kept)
		now.writtenAt = time.Now()
		switch {
		case !restored:
			now.repairs = 0
		case elapsed < 2*pace:
			now.repairs++
		default:
			now.repairs = 1
		}
	})
	old := e.reported
	if old == nil {
		old = current.condition
	}
	r.published(e, old, &want, restored)
	return nil
}

// readLive returns the object that the server has. It returns nil and no error when the
// object is gone or another one has its name: an event about that is on its way.
func readLive(ctx context.Context, resource dynamic.ResourceInterface, e *entry, want *metav1.Condition) (*unstructured.Unstructured, error) {
	live, err := resource.Get(ctx, e.key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, classify("read", err)
	case live.GetUID() != e.uid:
		return nil, nil
	case live.GetGeneration() > want.ObservedGeneration, !slices.Equal(holdsOf(live.Object), e.holds):
		return nil, errGateBehind // a True might be wrong already
	}
	return live, nil
}

// recheck takes a new snapshot of the gate and returns the condition that is wanted now.
// It returns an error when this is another one. A new message is not: the number in
// flight changes all the time.
func (r *Reporter) recheck(gate *syncgate.Gate, e *entry, old metav1.Condition) (metav1.Condition, error) {
	s := snapshotOf(gate)
	if !s.decided() || !s.covers(r.table.entriesOf(e.clusterID)) {
		return old, errGateChanged
	}
	want, err := s.conditionOf(e)
	if err == nil && (want.Status != old.Status || want.Reason != old.Reason || want.ObservedGeneration != old.ObservedGeneration) {
		err = errGateChanged
	}
	return want, err
}

// updateStatus writes a condition into the status of an object and returns what the
// server has kept: no condition and no error when the object is gone.
func updateStatus(ctx context.Context, resource dynamic.ResourceInterface, live *unstructured.Unstructured, want *metav1.Condition) (observed, error) {
	if err := setCondition(live.Object, want); err != nil {
		return observed{}, &refusal{malformed, err}
	}
	written, err := resource.UpdateStatus(ctx, live, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return observed{}, explainNotFound(ctx, resource, live.GetName())
	case err != nil:
		return observed{}, classify("update the status", err)
	}
	kept := observedIn(written.Object)
	if !kept.equals(want) {
		return observed{}, &refusal{notKept, errors.New("the server has accepted the condition but not kept it: the CRD has no status.conditions, or not all of their fields; add them")}
	}
	return kept, nil
}

// explainNotFound returns why there was no status to update. The server answers the same
// for an object that is gone (nil) and for a CRD without the subresource.
func explainNotFound(ctx context.Context, resource dynamic.ResourceInterface, name string) error {
	_, err := resource.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return classify("read", err)
	}
	return &refusal{notKept, errors.New("the ManagedCluster exists, but its status does not: the CRD has no status subresource; add it")}
}

// foundLocked notes the condition that a request has shown. before is the entry as it
// was when the request was made. What was observed since then may be newer.
func (r *Reporter) foundLocked(now, before *entry, found observed) {
	now.reported = found.condition
	r.table.acceptLocked(now)
	if now.event == before.event {
		now.observed = found
	} else if !now.observed.equals(found.condition) {
		r.queue.AddAfter(now.clusterID, recheckDelay)
	}
}

// published logs a write, and records the Event for it if there is one.
func (r *Reporter) published(e *entry, old, c *metav1.Condition, restored bool) {
	level := 4
	if old == nil || old.Status != c.Status {
		level = 2
	}
	r.log.V(level).Info("Wrote the condition", "managedCluster", e.key, "type", ConditionType, "status", c.Status, "reason", c.Reason,
		"message", c.Message, "observedGeneration", c.ObservedGeneration, "restored", restored)
	if eventType, reason, ok := transition(old, c); ok {
		recordEvent(r.opts.Recorder, e.key, e.uid, eventType, reason, c.Message)
	}
}
