package syncgate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
)

const (
	// SyncPausedField is the field of a ManagedCluster that pauses it, and the
	// Owner of the [Hold] that stands for it. It is boolean; absent is false.
	SyncPausedField = "spec.syncPaused"

	// HoldPrefix begins the name of an annotation that holds a ManagedCluster.
	// What follows is the owner of the hold, the value is the reason; a hold
	// whose value is "false" is released. Owners hold independently.
	HoldPrefix = api.HoldPrefix
)

// Phase says what is known of a cluster.
type Phase int

const (
	// Unknown is that it is not known whether the cluster is paused. It is
	// treated as paused, see [Options].
	Unknown Phase = iota
	// Open is that nothing holds the cluster.
	Open
	// Paused is that the cluster is held, or that what would tell so can't be
	// read.
	Paused
	// Gone is that the ManagedCluster was deleted. The last decision holds.
	Gone
)

// String returns the name of p.
func (p Phase) String() string {
	switch p {
	case Unknown:
		return "Unknown"
	case Open:
		return "Open"
	case Paused:
		return "Paused"
	case Gone:
		return "Gone"
	default:
		return fmt.Sprintf("Phase(%d)", int(p))
	}
}

// The values of [State.Reason], after the Phase that they belong to.
const (
	ReasonNotSynced       = "NotSynced"       // Unknown: the first list has not been processed.
	ReasonNotFound        = "NotFound"        // Unknown: there has been no ManagedCluster with this ID.
	ReasonStale           = "Stale"           // Unknown: the server was silent for Options.StaleAfter.
	ReasonStopped         = "Stopped"         // Unknown: Run has ended.
	ReasonSyncAllowed     = "SyncAllowed"     // Open.
	ReasonSyncPaused      = "SyncPaused"      // Paused: spec.syncPaused is true.
	ReasonHeld            = "Held"            // Paused: by annotations alone.
	ReasonMalformed       = "Malformed"       // Paused: the flag or a hold is of the wrong type.
	ReasonFieldNotVisible = "FieldNotVisible" // Paused: the informer's Go type, or a CRD put back, has no field for the flag.
	ReasonDeleted         = "Deleted"         // Gone.
)

// Mode is how applications reach a child cluster, see spec.syncMode of a
// ManagedCluster.
type Mode string

// The modes of Clusternet.
const (
	Push Mode = "Push"
	Pull Mode = "Pull"
	Dual Mode = "Dual"
)

// Hold is one reason why a cluster is paused.
type Hold struct {
	Owner  string // Who holds it; SyncPausedField for the field.
	Reason string // Why, in the owner's words; empty for the field.
}

// String returns the owner, and the reason where there is one.
func (h Hold) String() string {
	if h.Reason == "" {
		return h.Owner
	}
	return fmt.Sprintf("%s (%s)", h.Owner, h.Reason)
}

// State is what a gate knows of its cluster. A State is a copy: it does not
// change, and changing it changes nothing.
type State struct {
	Phase   Phase
	Paused  bool   // The decision.
	Reason  string // One of the Reason constants.
	Message string // For people: who holds the cluster and why, or what to do.
	Holds   []Hold // Of all ManagedClusters with this ID; the field first, then by owner.
	// Since is when this Phase and Reason were first observed here.
	Since time.Time

	// Of the ManagedCluster that decides: the paused one where several have
	// this ID, else the first by namespace and name. Zero while there is none;
	// kept when it is deleted.
	Object     types.NamespacedName
	UID        types.UID
	Generation int64
	SyncMode   Mode
	AppPusher  *bool // Nil: not reported yet.

	// Selection is that of the informer; Auto where it has none, or is not
	// known yet.
	Selection informer.Selection
}

// Change is a new decision, or new holders of an old one.
type Change struct {
	ClusterID types.UID
	Old, New  State
}

// Paused tells whether the gate is closed now and was open before. Without
// FailOpen a gate is closed before it is known, so a cluster that was paused from
// the start is told as a first Change whose New.Paused is true, not as one that is
// Paused.
func (c Change) Paused() bool { return c.New.Paused && !c.Old.Paused }

// Resumed tells whether the gate is open now and was closed before.
func (c Change) Resumed() bool { return !c.New.Paused && c.Old.Paused }

// sameDecision tells whether b tells readers of a nothing new. What a heartbeat
// or an edit of another field changes is no part of it.
func sameDecision(a, b *State) bool {
	return a.Phase == b.Phase && a.Paused == b.Paused && a.Reason == b.Reason &&
		a.Object == b.Object && a.UID == b.UID && slices.Equal(a.Holds, b.Holds)
}
