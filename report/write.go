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

// write writes the conditions to the server when their turn has come. Else it queues the
// cluster for that moment.
func (r *Reporter) write(ctx context.Context, gate *syncgate.Gate, e *entry, own *partyStatus, want *wanted, required []string) error {
	pace, elapsed := e.pace(want), time.Since(e.writtenAt)
	if elapsed < pace {
		r.queue.AddAfter(e.clusterID, pace-elapsed)
		return nil
	}
	resource := r.client.Resource(informer.Resource).Namespace(e.key.Namespace)
	live, err := readLive(ctx, resource, e, own)
	if live == nil {
		return err
	}
	// The request may have waited for long. An edit from here on makes the write a
	// conflict.
	resumes := gate.Stats().Resumes
	if *own, err = r.recheck(gate, e, own); err != nil {
		return err
	}
	// Other parties may have reported more than the informer has delivered.
	current := observedIn(live.Object)
	*want = r.wanted(e, own, &current, required)
	if current.equals(want) {
		r.table.update(e, func(now *entry) { r.foundLocked(now, e, &current) })
		return nil
	}
	setTransitionTime(&want.condition, e.reported, current.condition)
	if want.own != nil {
		setTransitionTime(want.own, current.parties[want.party])
	}
	if own.reason == ReasonDrained {
		var cancel func()
		ctx, cancel = whileClosed(ctx, gate)
		defer cancel()
	}
	kept, err := updateStatus(ctx, resource, live, want)
	if err != nil || kept == nil {
		return err
	}
	r.wrote(e, want, &current, kept, elapsed < max(2*pace, calm))
	if gate.Stats().Resumes != resumes {
		return errGateChanged // what was written may be wrong already
	}
	return nil
}

// whileClosed returns a context that ends when the gate opens. A request that waits for
// the rate limit of the client is not sent then. The ManagedCluster that is written may
// be another one than the one that has opened the gate, so the server would take it.
func whileClosed(ctx context.Context, gate *syncgate.Gate) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if gate.WaitOpen(ctx) == nil {
			cancel()
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// readLive returns the object that the server has. It returns nil and no error when the
// object is gone or another one has its name: an event about that is on its way.
func readLive(ctx context.Context, resource dynamic.ResourceInterface, e *entry, own *partyStatus) (*unstructured.Unstructured, error) {
	live, err := resource.Get(ctx, e.key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, classify("read", err)
	case live.GetUID() != e.uid:
		return nil, nil
	case live.GetGeneration() > own.generation, !slices.Equal(holdsOf(live.Object), e.holds):
		return nil, errGateBehind // a True might be wrong already
	}
	return live, nil
}

// recheck takes a new snapshot of the gate and returns what to report now. It returns an
// error when this is something else. Another number in flight is not: it changes all the
// time.
func (r *Reporter) recheck(gate *syncgate.Gate, e *entry, old *partyStatus) (partyStatus, error) {
	s := snapshotOf(gate)
	if !s.decided() || !s.covers(r.table.entriesOf(e.clusterID)) {
		return *old, errGateChanged
	}
	own, err := s.statusOf(e)
	if err == nil && (own.reason != old.reason || own.generation != old.generation) {
		err = errGateChanged
	}
	return own, err
}

// updateStatus writes conditions into the status of an object and returns what the server
// has kept: nil and no error when the object is gone.
func updateStatus(ctx context.Context, resource dynamic.ResourceInterface, live *unstructured.Unstructured, want *wanted) (*observed, error) {
	err := setCondition(live.Object, &want.condition)
	if err == nil && want.own != nil {
		err = setCondition(live.Object, want.own)
	}
	if err == nil && want.own != nil && want.own.Reason == ReasonSyncing {
		err = withdraw(live.Object, want.party)
	}
	if err != nil {
		return nil, &refusal{malformed, err}
	}
	written, err := resource.UpdateStatus(ctx, live, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, explainNotFound(ctx, resource, live.GetName())
	case err != nil:
		return nil, classify("update the status", err)
	}
	kept := observedIn(written.Object)
	if !kept.equals(want) {
		return nil, &refusal{notKept, errors.New("the server has accepted the condition but not kept it: the CRD has no status.conditions, or not all of their fields; add them")}
	}
	return &kept, nil
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

// foundLocked notes the conditions that a request has shown. before is the entry as it
// was when the request was made. What was observed since then may be newer.
func (r *Reporter) foundLocked(now, before *entry, found *observed) {
	now.reported = found.condition
	r.table.acceptLocked(now)
	if now.event == before.event {
		now.observed = *found
	} else if !now.observed.same(found) {
		r.queue.AddAfter(now.clusterID, recheckDelay)
	}
}

// wrote notes a write, logs it, and records the Event for it if there is one. before is
// what the object had until then. soon: the write before this one was not long ago.
func (r *Reporter) wrote(e *entry, want *wanted, before, kept *observed, soon bool) {
	c := &want.condition
	restored := e.restores(want)
	r.table.update(e, func(now *entry) {
		r.foundLocked(now, e, kept)
		now.own, now.writtenAt = want.own, time.Now()
		switch {
		case !restored:
			now.repairs = 0
		case soon:
			now.repairs++
		default:
			now.repairs = 1
		}
	})
	if want.own != nil && equal(before.condition, c) { // only the condition of the party is new
		r.log.V(4).Info("Wrote the condition of this party", "managedCluster", e.key, "type", want.own.Type, "status", want.own.Status,
			"reason", want.own.Reason, "observedGeneration", want.own.ObservedGeneration)
		return
	}
	old := e.reported
	if old == nil {
		old = before.condition
	}
	level := 4
	if old == nil || old.Status != c.Status {
		level = 2
	}
	r.log.V(level).Info("Wrote the condition", "managedCluster", e.key, "type", ConditionType, "status", c.Status, "reason", c.Reason,
		"message", c.Message, "observedGeneration", c.ObservedGeneration, "restored", restored)
	eventType, reason, ok := transition(old, c, want.own == nil)
	now := announcement{reason, c.Reason, c.ObservedGeneration, fingerprint(e.holds)}
	if ok && now != e.announced {
		r.table.update(e, func(entry *entry) { entry.announced = now })
		recordEvent(r.opts.Recorder, e.key, e.uid, eventType, reason, c.Message)
	}
}
