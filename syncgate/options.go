package syncgate

import (
	"time"

	"github.com/clusternet/syncgate/informer"
)

// Options configures a [Gate] or a [Hub]. The zero value is ready for use.
type Options struct {
	// FailOpen opens the gate of a cluster whose state is not known (reasons
	// NotSynced and NotFound). The default, false, keeps it closed. FailOpen does
	// not open a gate for any other reason: Malformed, FieldNotVisible, Stale and
	// Stopped stay closed.
	//
	// A process that restarts during a pause may write before it has read of the pause,
	// although the pause was acknowledged before.
	FailOpen bool

	// StaleAfter closes the gates when the API server has been silent for this
	// long. The default, 0, keeps the last known state, however long the silence.
	// An API server sends a bookmark about once a minute, so a value below two
	// minutes pauses healthy clusters.
	//
	// When the server answers again, the gates follow it as soon as the handler
	// has caught up: no event has arrived for 0.15 s plus 50 µs for each
	// ManagedCluster. If events never stop arriving, they follow it 5 s later.
	StaleAfter time.Duration

	// Informer is for New only. Its zero value is ready for use. For a Hub, pass
	// these options to informer.ForHub.
	Informer informer.Options
}
