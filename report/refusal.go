package report

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	minPace      = 100 * time.Millisecond // between two writes to one object
	maxPace      = 30 * time.Second       // when others undo them again and again
	calm         = 10 * time.Second       // after which a write that is undone is the first one again
	retryChanged = 10 * time.Second       // after a refusal; longer each time if there is nothing new to write
	retryRefused = 5 * time.Minute        // at the most
)

// pace returns how long after the last write the next one may come.
func (e *entry) pace(want *wanted) time.Duration {
	pace, again := minPace, e.restores(want)
	if e.observed.onlyNumbers(want) {
		return resyncClosed // each write of a party is an event for the others
	}
	if !again && e.observed.isTrue() && want.condition.Status != metav1.ConditionTrue {
		return 0 // what is there is wrong
	}
	if again {
		for i := 0; i < e.repairs && pace < maxPace; i++ {
			pace *= 2
		}
	}
	return min(pace, maxPace)
}

// restores reports whether a write would only restore what was written before: the
// condition of the party, or SyncPaused if that of the party is as it should be.
func (e *entry) restores(want *wanted) bool {
	if want.own != nil && !equal(e.observed.parties[want.party], want.own) {
		return equal(e.own, want.own)
	}
	return equal(e.reported, &want.condition)
}

// refusal is an error that another try does not solve soon.
type refusal struct {
	kind refusalKind
	error
}

func (r *refusal) Unwrap() error { return r.error }

type refusalKind int

const (
	notAllowed   refusalKind = iota // for no object
	notKept                         // by the CRD, so most likely for no object
	malformed                       // for this object only
	refusalKinds                    // their number
)

func (k refusalKind) remedy() string {
	switch k {
	case notAllowed:
		return "allow get on managedclusters and update on managedclusters/status, and check that the credentials are valid"
	case notKept:
		return "check that the CRD has the status subresource with its conditions"
	default:
		return "correct the status of the ManagedCluster"
	}
}

// classify makes a refusal of an error that does not pass by itself.
func classify(attempt string, err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = &refusal{notAllowed, err}
	case apierrors.IsInvalid(err), apierrors.IsMethodNotSupported(err):
		err = &refusal{notKept, err}
	}
	return fmt.Errorf("%s: %w", attempt, err)
}

// refused is an attempt to write that was refused. It is immutable.
type refused struct {
	kind  refusalKind
	at    time.Time
	want  wanted
	times int // in a row, before this one
}

// delay returns for how long not to try to write a condition.
func (r *refused) delay(want *wanted) time.Duration {
	switch {
	case r == nil:
		return 0
	case want.differs(&r.want):
		return retryChanged - time.Since(r.at)
	}
	return r.retryAfter() - time.Since(r.at)
}

// retryAfter returns how long after the refusal the same is tried again. A short fault
// should not delay what somebody waits for, and a missing right not cost many requests.
func (r *refused) retryAfter() time.Duration {
	return min(retryChanged<<min(r.times, 5), retryRefused)
}

// remaining returns for how long the refusal counts. It counts too while there is
// nothing to write: a cluster that toggles soon has something again.
func (r *refused) remaining() time.Duration {
	if r == nil {
		return 0
	}
	return retryRefused - time.Since(r.at)
}

// refuse notes a refusal. It logs the first one of a kind, and not the ones that follow
// while it lasts. A malformed object is logged in any case, since each has to be
// corrected by itself.
func (r *Reporter) refuse(e *entry, want *wanted, kind refusalKind, err error) {
	first := false
	noted := &refused{kind: kind, at: time.Now(), want: *want}
	r.table.update(e, func(now *entry) {
		again := now.refused != nil && now.refused.kind == kind
		if again {
			noted.times = now.refused.times + 1
		}
		r.table.acceptLocked(now)
		now.refused = noted
		r.table.refusals[kind]++
		first = !again && (r.table.refusals[kind] == 1 || kind == malformed)
	})
	r.queue.AddAfter(e.clusterID, noted.retryAfter())
	if first {
		r.log.Error(err, "Can't write the condition SyncPaused; the gate is not affected", "managedCluster", e.key,
			"remedy", kind.remedy(), "retryAfter", noted.retryAfter())
		return
	}
	r.log.V(4).Info("Still can't write the condition SyncPaused", "managedCluster", e.key, "err", err)
}

// acceptLocked notes that an entry is not refused any more.
func (t *table) acceptLocked(e *entry) {
	if e.refused != nil {
		t.refusals[e.refused.kind]--
		e.refused = nil
	}
}
