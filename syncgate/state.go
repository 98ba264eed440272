package syncgate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
)

const (
	// SyncPausedField is the boolean field of a ManagedCluster that pauses it, and
	// the Owner of its [Hold]. Absent means false.
	SyncPausedField = "spec.syncPaused"

	// HoldPrefix is the prefix of an annotation that holds a ManagedCluster. The
	// rest of the name is the owner of the hold, and the value is the reason. The
	// value "false" releases the hold. Owners hold independently. A name that only
	// looks like a hold, such as one without an owner, holds nothing: State.Message and
	// a log line say so.
	HoldPrefix = api.HoldPrefix
)

// Phase says what is known of a cluster.
type Phase int

const (
	// Unknown means that it is not known whether the cluster is paused. The gate is closed,
	// see [Options].
	Unknown Phase = iota
	// Open means that nothing holds the cluster.
	Open
	// Paused means that something holds the cluster, or its flag or holds can't be read.
	Paused
	// Gone means that the ManagedCluster was deleted. The last decision stays.
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

// The values of [State.Reason]. The comments begin with the Phase.
const (
	ReasonNotSynced       = "NotSynced"       // Unknown: the first list has not been processed.
	ReasonNotFound        = "NotFound"        // Unknown: no ManagedCluster has had this ID.
	ReasonStale           = "Stale"           // Unknown: the server was silent for Options.StaleAfter.
	ReasonStopped         = "Stopped"         // Unknown: Run has ended.
	ReasonSyncAllowed     = "SyncAllowed"     // Open: nothing holds the cluster.
	ReasonSyncPaused      = "SyncPaused"      // Paused: spec.syncPaused is true.
	ReasonHeld            = "Held"            // Paused: annotations or local holds, but not the field.
	ReasonMalformed       = "Malformed"       // Paused: the flag or a hold has the wrong type.
	ReasonFieldNotVisible = "FieldNotVisible" // Paused: the informer's Go type or the CRD has no field for the flag.
	ReasonDeleted         = "Deleted"         // Gone: the ManagedCluster was deleted.
)

// Mode says how applications reach a child cluster: spec.syncMode of its
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
	Owner  string // Who holds it. SyncPausedField: the field.
	Reason string // Why, in the owner's words. Empty for the field.
	Local  bool   // This process holds it, by Gate.Hold. It is not on the server.
}

// String returns the owner, and the reason if there is one. A reason that looks like a
// release, such as "False", is explained.
func (h Hold) String() string {
	out := h.Owner
	switch {
	case h.Reason == "":
	case !h.Local && looksReleased(h.Reason):
		out += fmt.Sprintf(" (%q holds; only \"false\" releases)", h.Reason)
	default:
		out += fmt.Sprintf(" (%s)", h.Reason)
	}
	if h.Local {
		out += " of this process"
	}
	return out
}

func looksReleased(reason string) bool {
	switch strings.ToLower(strings.Trim(reason, " \t\r\n\"'")) {
	case "false", "no", "off", "0", "none", "null", "released":
		return true
	}
	return false
}

// State is what a gate knows of its cluster. It is a copy: the gate does not change
// it later, and changes to it do not reach the gate.
type State struct {
	Phase   Phase
	Paused  bool   // The decision.
	Reason  string // One of the Reason constants.
	Message string // For people: who holds the cluster and why, or what to do.
	Holds   []Hold // Of all ManagedClusters with this ID: the field first, then by owner. Local ones come last.
	// Since is when the gate last changed to this Phase and Reason, in this process.
	Since time.Time

	// The fields from Object to AppPusher are those of the ManagedCluster that
	// decides. If several have this ID, that is the paused one, or else the first
	// by namespace and name. They are zero while there is none, and stay when it is
	// deleted.
	Object     types.NamespacedName
	UID        types.UID
	Generation int64
	SyncMode   Mode
	AppPusher  *bool // Nil: not reported yet.

	// Selection is that of the informer. Auto: the informer has none, or it is not
	// known yet.
	Selection informer.Selection
}

// Change is a new decision, or a decision with new holders.
type Change struct {
	ClusterID types.UID
	Old, New  State
}

// Paused reports whether the gate is closed now and was open before. It is false
// for the first Change of a cluster that is paused from the start: without FailOpen
// its gate was closed before. Use New.Paused there.
func (c Change) Paused() bool { return c.New.Paused && !c.Old.Paused }

// Resumed reports whether the gate is open now and was closed before.
func (c Change) Resumed() bool { return !c.New.Paused && c.Old.Paused }

// sameDecision reports whether b is the decision of a. Heartbeats and edits of other
// fields change only what is not compared here.
func sameDecision(a, b *State) bool {
	return a.Phase == b.Phase && a.Paused == b.Paused && a.Reason == b.Reason &&
		a.Object == b.Object && a.UID == b.UID && slices.Equal(a.Holds, b.Holds)
}
