package syncgate

import (
	"errors"
	"fmt"
)

var (
	// ErrPaused matches, by errors.Is, the error of an operation that a closed gate
	// refused.
	ErrPaused = errors.New("paused")

	// ErrAlreadyRun is returned by a second call of Run. A new run needs a new
	// Gate or Hub.
	ErrAlreadyRun = errors.New("Run was already called")

	// ErrDrivenByHub is returned by Run of a gate that belongs to a Hub.
	ErrDrivenByHub = errors.New("this gate is driven by its Hub; call Run of the Hub")

	// ErrStopped matches, by errors.Is, the errors of a gate whose Run has ended. Such a
	// gate stays closed for ever.
	ErrStopped = errors.New("stopped; make a new gate for a new run")
)

// refusal is the error of a closed gate. There is one for each snapshot, so that
// refusing an operation allocates nothing.
type refusal struct {
	admission *admission // of the gate that refuses
	state     *State
}

func (r *refusal) Error() string {
	return fmt.Sprintf("syncgate: the gate of cluster %s is closed (%s): %s", r.admission.clusterID, r.state.Reason, r.state.Message)
}

func (r *refusal) Is(target error) bool {
	if by, ok := target.(refusedError); ok {
		return by.admission == r.admission
	}
	return target == ErrPaused || target == ErrStopped && r.state.Reason == ReasonStopped
}

// refusedError matches, by errors.Is, the refusals of one gate. errors.As does not find a
// refusal in an Aggregate of apimachinery.
type refusedError struct{ admission *admission }

func (refusedError) Error() string { return "refused" }
