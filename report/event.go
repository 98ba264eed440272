package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/syncgate"
)

// The reasons of the Events.
const (
	EventPaused    = "SyncPaused"
	EventResumed   = "SyncResumed"
	EventMalformed = "SyncPauseMalformed" // a warning
	EventNotHeard  = "SyncPauseNotHeard"  // a warning

	// Of ModeEvents.
	EventModeMismatch = "SyncModeMismatch" // a warning
	EventModeFits     = "SyncModeFits"
)

// transition returns the Event for a new condition, if there is one. old is nil when
// there was no condition. alone: there are no other parties.
func transition(old, c *metav1.Condition, alone bool) (eventType, reason string, ok bool) {
	if old == nil {
		old = &metav1.Condition{}
	}
	wasTrue := old.Status == metav1.ConditionTrue
	switch {
	case c.Reason == syncgate.ReasonMalformed:
		return corev1.EventTypeWarning, EventMalformed, old.Reason != syncgate.ReasonMalformed
	case c.Reason == ReasonNotHeard, c.Reason == ReasonNotSupported:
		return corev1.EventTypeWarning, EventNotHeard, old.Reason != c.Reason
	case c.Status == metav1.ConditionTrue:
		return corev1.EventTypeNormal, EventPaused, !wasTrue
	case c.Reason == ReasonSyncing:
		return corev1.EventTypeNormal, EventResumed, wasTrue || old.Status == metav1.ConditionUnknown
	case c.Reason == ReasonDraining:
		// One process can't drain again unless its gate was open. Parties report anew
		// for a new hold.
		return corev1.EventTypeNormal, EventResumed, wasTrue && alone
	default:
		return "", "", false
	}
}

// ModeEvents returns a function for Gate.WatchMode. It records each result as an Event
// on the ManagedClusters of the gate: SyncModeMismatch when the sync modes of hub
// and agent conflict, and SyncModeFits when they no longer conflict. With a nil recorder
// it does nothing.
//
//	go gate.WatchMode(ctx, agentMode, appPusher, report.ModeEvents(recorder, gate))
func ModeEvents(recorder record.EventRecorder, gate *syncgate.Gate) func(error) {
	mismatch := false
	return func(problem error) {
		eventType, reason, message := corev1.EventTypeNormal, EventModeFits, "exactly one side deploys again"
		switch {
		case problem != nil:
			eventType, reason, message = corev1.EventTypeWarning, EventModeMismatch, problem.Error()
		case !mismatch:
			return // there was no problem from the start
		}
		mismatch = problem != nil
		for _, object := range gate.Objects() {
			recordEvent(recorder, object.NamespacedName, object.UID, eventType, reason, message)
		}
	}
}

// maxEventOf is the length of the longest name of an object that client-go 0.32 can
// record an Event of: it makes the name of the Event from it, by a dot and 16 digits.
const maxEventOf = validation.DNS1123SubdomainMaxLength - 17

// shorten returns a name that is as valid and as unique as a longer one.
func shorten(name string) string {
	hash := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(hash[:10])
	return strings.TrimRight(name[:maxEventOf-len(end)], ".-") + end
}

func recordEvent(recorder record.EventRecorder, key types.NamespacedName, uid types.UID, eventType, reason, message string) {
	if api.IsNil(recorder) {
		return
	}
	if len(key.Name) > maxEventOf {
		message = fmt.Sprintf("ManagedCluster %s: %s", key, message)
		key.Name = shorten(key.Name)
	}
	apiVersion, kind := informer.Resource.GroupVersion().WithKind("ManagedCluster").ToAPIVersionAndKind()
	recorder.Event(&corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind, Namespace: key.Namespace, Name: key.Name, UID: uid,
	}, eventType, reason, message)
}
