package report

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusternet/syncgate/internal/api"
)

const (
	// reportTimeout is how long a party may take to report before the condition says
	// that it has not.
	reportTimeout = 30 * time.Second

	// turn is how long a party lets those before it write first. Else they would all
	// write at the same moment, and all but one of the writes would be a conflict.
	turn = 250 * time.Millisecond
)

// Acknowledged reports whether the pause of a ManagedCluster is in effect: its condition
// SyncPaused is True, for exactly the generation and the hold annotations that the object
// has. So it does not take the True of an earlier hold for the answer, as kubectl wait
// does.
//
// There is one case that nobody can see in the object: a hold is released, and is set
// again with the same owner and the same reason before all parties have observed the
// release. A holder that does this should give another reason each time.
//
// The object is unstructured or of any Go type. For what is no Kubernetes object the
// answer is false.
func Acknowledged(object runtime.Object) bool {
	m, content, _, ok := api.Read(object)
	if !ok {
		return false
	}
	o := observedIn(content)
	return !o.duplicated && o.isTrue() &&
		o.condition.ObservedGeneration == m.GetGeneration() &&
		holdsNamedIn(o.condition.Message) == fingerprint(holdsOf(content))
}

// withHolds adds the fingerprint of hold annotations to the message of a True.
func withHolds(message, holds string) string {
	if holds == "" {
		return message
	}
	return fmt.Sprintf("%s (holds %s)", message, holds)
}

var holdsAtTheEnd = regexp.MustCompile(` \(holds ([0-9a-f]+)\)$`)

// holdsNamedIn returns what withHolds has added. What owners have written is never at the
// end of a message.
func holdsNamedIn(message string) string {
	if found := holdsAtTheEnd.FindStringSubmatch(message); found != nil {
		return found[1]
	}
	return ""
}

// whole returns the condition SyncPaused that follows from the report of this party, and
// from what the others have reported. It depends on nothing else, so that all parties
// write the same.
func (r *Reporter) whole(e *entry, own *partyStatus, o *observed, required []string) metav1.Condition {
	all := map[string]*partyStatus{r.opts.Party: own}
	if r.opts.Party != "" {
		for party, reported := range o.parties {
			if status, ok := readPartyStatus(reported); ok && party != r.opts.Party && status.isFor(own.generation, own.Holds) {
				all[party] = &status
			}
		}
	}
	c := metav1.Condition{Type: ConditionType, Status: metav1.ConditionFalse, ObservedGeneration: own.generation}
	first := func(has func(*partyStatus) bool) (string, *partyStatus) {
		for _, party := range slices.Sorted(maps.Keys(all)) {
			if has(all[party]) {
				return party, all[party]
			}
		}
		return "", nil
	}
	_, unreadable := first((*partyStatus).unreadable)
	_, open := first(func(p *partyStatus) bool { return p.reason == ReasonSyncing })
	closedParty, closed := first(func(p *partyStatus) bool { return p.reason != ReasonSyncing })
	switch {
	case unreadable != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, unreadable.reason, unreadable.Text
	case open != nil && closed == nil:
		c.Reason, c.Message = ReasonSyncing, open.Text
	case open != nil: // a local hold, or they don't have the same ManagedClusters
		c.Reason, c.Message = ReasonSyncing, fmt.Sprintf("not all parties are paused; %s is %s", closedParty, closed.Text)
	default:
		r.acknowledge(&c, all, e.missing(own, all, o, required))
		c.Message = closed.Text + "; " + c.Message
	}
	return c
}

// acknowledge completes the condition of a cluster that is paused for all parties that
// have reported. Its message is what comes after the holders.
func (r *Reporter) acknowledge(c *metav1.Condition, all map[string]*partyStatus, missing map[string]string) {
	drained := slices.Sorted(maps.Keys(all))
	inFlight := 0
	var waitsFor []string
	for _, party := range drained {
		if n := all[party].InFlight; n > 0 {
			inFlight += n
			waitsFor = append(waitsFor, fmt.Sprintf("%s has %d in flight", party, n))
		}
	}
	c.Reason = ReasonDraining
	for _, party := range slices.Sorted(maps.Keys(missing)) {
		why := missing[party]
		switch why {
		case "":
			waitsFor = append(waitsFor, party+" has not reported yet")
			continue
		case ReasonNotHeard:
			waitsFor = append(waitsFor, fmt.Sprintf("%s has not reported for %v; check that it runs and reaches the API server", party, reportTimeout))
		case ReasonNotSupported:
			waitsFor = append(waitsFor, party+" has sent a heartbeat but has never reported; its version does not know pauses, or it runs without a reporter; upgrade it")
		}
		c.Status = metav1.ConditionUnknown
		if c.Reason != ReasonNotSupported {
			c.Reason = why
		}
	}
	switch {
	case r.opts.Party == "" && inFlight > 0:
		c.Message = fmt.Sprintf("operations still in flight: %d", inFlight)
	case len(waitsFor) > 0:
		c.Message = "waiting for the parties: " + strings.Join(waitsFor, ", ")
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonPaused, "nothing is in flight"
		if r.opts.Party != "" {
			c.Message = "drained: " + strings.Join(drained, ", ")
		}
		c.Message = withHolds(c.Message, all[r.opts.Party].Holds)
	}
}

// missing returns the parties that have not reported for the ManagedCluster as it is now,
// with the reason if that takes too long. The reason stays once it is written: other
// parties may have waited for longer.
func (e *entry) missing(own *partyStatus, all map[string]*partyStatus, o *observed, required []string) map[string]string {
	missing := map[string]string{}
	written := ""
	if c := o.condition; c != nil && c.Status == metav1.ConditionUnknown {
		written = c.Reason
	}
	late := e.age(own) >= reportTimeout || written == ReasonNotHeard || written == ReasonNotSupported
	for _, party := range required {
		if all[party] != nil {
			continue
		}
		why := ""
		if late {
			why = ReasonNotHeard
		}
		if late && party == PartyAgent && o.parties[party] == nil && (e.heartbeatAt.After(e.changedAt) || written == ReasonNotSupported) {
			why = ReasonNotSupported
		}
		missing[party] = why
	}
	return missing
}

// age returns for how long the parties could have reported.
func (e *entry) age(own *partyStatus) time.Duration {
	if e.generation != own.generation {
		return 0 // the gate has got the event earlier than the reporter
	}
	return time.Since(e.changedAt)
}

// turnIn returns how long to leave a ManagedCluster to the parties before this one. There
// is no wait for the correction of a True.
func (r *Reporter) turnIn(e *entry, own *partyStatus, want *metav1.Condition, required []string) time.Duration {
	if e.observed.isTrue() && want.Status != metav1.ConditionTrue {
		return 0
	}
	for _, party := range required {
		if party >= r.opts.Party {
			return 0
		}
		if c := e.observed.parties[party]; c != nil {
			if status, ok := readPartyStatus(c); ok && status.isFor(own.generation, own.Holds) {
				continue
			}
		}
		return turn - e.age(own)
	}
	return 0
}

// Summary returns the condition SyncPaused of a ManagedCluster as "status, reason:
// message", for people. It is empty when there is none.
func Summary(object runtime.Object) string {
	_, content, _, ok := api.Read(object)
	if !ok {
		return ""
	}
	c := observedIn(content).condition
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s, %s: %s", c.Status, c.Reason, c.Message)
}
