package report

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/syncgate"
)

const (
	resyncClosed   = 10 * time.Second // a closed gate; one write for each operation that ends would be too many
	recheckDelay   = time.Second      // when the gate may not have observed yet what we have
	conflictTries  = 4                // at once: the heartbeats of a busy server may win more often than a backoff allows
	recheckParties = time.Minute      // of a closed gate that is not reported
)

var (
	errGateBehind  = errors.New("the gate has not observed the newest ManagedCluster yet")
	errGateChanged = errors.New("the gate has changed in the meantime")
)

// reconcile brings the condition of each ManagedCluster of a cluster in line with its
// gate. It does not run twice at once for one cluster.
func (r *Reporter) reconcile(ctx context.Context, clusterID types.UID) {
	gate := r.gate(clusterID)
	if gate == nil {
		r.queue.Forget(clusterID)
		return // the first Change of the gate queues the cluster again
	}
	if wait := r.table.recheckIn(clusterID); wait > 0 {
		r.queue.AddAfter(clusterID, wait) // each time: the queue keeps the earliest time only
	}
	required, reports := r.parties(gate)
	if !reports {
		r.stopDrainWait(clusterID)
		r.queue.Forget(clusterID)
		if gate.Paused() {
			r.queue.AddAfter(clusterID, recheckParties) // it may depend on more than Changes
		}
		return
	}
	s, entries := snapshotOf(gate), r.table.entriesOf(clusterID)
	if s.draining() && len(entries) > 0 {
		r.awaitDrain(ctx, clusterID, gate)
	} else {
		r.stopDrainWait(clusterID)
	}
	if len(entries) > 0 && s.state.Paused && s.state.Reason != syncgate.ReasonStopped {
		// A Change may be late, or hide that the gate was open for a moment.
		r.queue.AddAfter(clusterID, resyncClosed)
	}
	if !s.decided() || len(entries) == 0 {
		r.queue.Forget(clusterID)
		return
	}
	if !s.covers(entries) {
		r.log.V(4).Info("The condition is not written yet; trying again", "clusterID", clusterID, "err", errGateBehind)
		r.queue.AddRateLimited(clusterID)
		return
	}
	again := false
	for i := range entries {
		err := r.reconcileEntry(ctx, gate, &s, &entries[i], required)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.log.V(4).Info("The condition is not written yet; trying again", "managedCluster", entries[i].key, "err", err)
			again = true
		}
	}
	if again {
		r.queue.AddRateLimited(clusterID)
	} else {
		r.queue.Forget(clusterID)
	}
}

// reconcileEntry brings the conditions of one ManagedCluster in line with a snapshot.
func (r *Reporter) reconcileEntry(ctx context.Context, gate *syncgate.Gate, s *snapshot, e *entry, required []string) error {
	own, err := s.statusOf(e)
	if err != nil {
		return err
	}
	want := r.wanted(e, &own, &e.observed, required)
	if e.observed.condition == nil && e.reported == nil && own.reason == ReasonSyncing { // never paused
		if wait := e.refused.remaining(); wait > 0 {
			r.queue.AddAfter(e.clusterID, wait)
		} else {
			r.table.update(e, r.table.acceptLocked)
		}
		return nil
	}
	if want.condition.Reason == ReasonDraining { // a party may not report in time
		if wait := reportTimeout - e.age(&own); wait > 0 {
			r.queue.AddAfter(e.clusterID, wait)
		}
	}
	if e.observed.equals(&want) {
		r.table.update(e, func(now *entry) {
			now.reported = e.observed.condition
			r.table.acceptLocked(now)
		})
		return nil
	}
	if wait := max(e.refused.delay(&want), r.turnIn(e, &own, &want.condition, required)); wait > 0 {
		r.queue.AddAfter(e.clusterID, wait)
		return nil
	}
	for range conflictTries {
		err = r.write(ctx, gate, e, &own, &want, required)
		if !apierrors.IsConflict(err) {
			break
		}
	}
	var refused *refusal
	if ctx.Err() == nil && errors.As(err, &refused) {
		r.refuse(e, &want, refused.kind, err)
		return nil
	}
	return err
}

// wanted returns the conditions that an entry should have, without their times, if the
// object has the conditions o now.
func (r *Reporter) wanted(e *entry, own *partyStatus, o *observed, required []string) wanted {
	w := wanted{condition: r.whole(e, own, o, required), party: r.opts.Party}
	if r.opts.Party != "" {
		w.own = own.condition(r.opts.Party)
	}
	return w
}

// gate returns the gate of a cluster, nil if there is none yet.
func (r *Reporter) gate(clusterID types.UID) *syncgate.Gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[clusterID] == nil {
		for g := range r.gates.Gates() {
			r.known[g.ClusterID()] = g
		}
	}
	return r.known[clusterID]
}

// closed reports whether a cluster has a gate that was reconciled before and is closed.
func (r *Reporter) closed(clusterID types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	gate := r.known[clusterID]
	return gate != nil && gate.Paused()
}

// awaitDrain queues a cluster once its gate has drained. It leaves that to a goroutine,
// one for each cluster, that ends with ctx, with the draining, or by stopDrainWait.
func (r *Reporter) awaitDrain(ctx context.Context, clusterID types.UID, gate *syncgate.Gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drainWaits[clusterID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r.drainWaits[clusterID] = cancel
	r.goroutines.Add(1)
	go func() {
		defer r.goroutines.Done()
		defer cancel()
		if gate.WaitDrained(ctx) != nil {
			return
		}
		r.mu.Lock()
		if ctx.Err() == nil { // else the next one may be in its place
			delete(r.drainWaits, clusterID)
		}
		r.mu.Unlock()
		r.queue.Add(clusterID)
	}()
}

func (r *Reporter) stopDrainWait(clusterID types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.drainWaits[clusterID]; cancel != nil {
		cancel()
		delete(r.drainWaits, clusterID)
	}
}
