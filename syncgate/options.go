package syncgate

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/informer"
)

// Options configures a [Gate] or a [Hub]. The zero value is ready for use.
type Options struct {
	// FailOpen treats a cluster whose state is not known (NotSynced, NotFound)
	// as open. False, the default, treats it as paused. Whatever else closes a
	// gate closes it either way: Malformed, FieldNotVisible, Stale, Stopped.
	FailOpen bool

	// StaleAfter closes the gates when the server has been silent for so long.
	// They go by its state again once it is heard and what it has to tell has
	// been seen, that is when no event has come for a tenth of a second and a
	// twentieth of a millisecond for each ManagedCluster, or five seconds later
	// where events never end.
	// 0, the default, keeps the last known state however long the silence. An
	// API server sends a bookmark about once a minute, so a value below two
	// minutes pauses healthy clusters.
	StaleAfter time.Duration

	// Informer is for New only; its zero value is ready for use. For a Hub pass
	// the options to informer.ForHub.
	Informer informer.Options
}

var (
	// ErrPaused is in the error of an operation that a closed gate refused.
	ErrPaused = errors.New("paused")

	// ErrAlreadyRun is returned by a second call of Run. A new run needs a new
	// Gate or Hub.
	ErrAlreadyRun = errors.New("already run; make a new one for a new run")

	// ErrDrivenByHub is returned by Run of a gate that belongs to a Hub.
	ErrDrivenByHub = errors.New("this gate is driven by its Hub; call Run of the Hub")

	// ErrStopped is in the error when Run has ended: the gate is closed for ever.
	ErrStopped = errors.New("stopped; make a new gate for a new run")
)

// refusal is why a gate is closed. It is made once a decision, so that refusing
// costs nothing.
type refusal struct {
	clusterID types.UID
	state     *State
}

func (r *refusal) Error() string {
	return fmt.Sprintf("syncgate: cluster %s is paused (%s): %s", r.clusterID, r.state.Reason, r.state.Message)
}

func (r *refusal) Is(target error) bool {
	return target == ErrPaused || target == ErrStopped && r.state.Reason == ReasonStopped
}
