package histories

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind says what an Event is about.
type Kind string

const (
	// What clients did in the parent.
	Commit Kind = "commit" // changed a ManagedCluster: Object, Version, Field, Hold, Deleted
	Swap   Kind = "swap"   // replaced the CRD: Stock
	Edit   Kind = "edit"   // changed what a key should be: Key, Value

	// What the parent shows: Object, Version, Generation, Field, Hold, Deleted, True,
	// Acknowledged, Gap.
	Observed Kind = "observed"

	// What a process of a party did.
	Ended     Kind = "ended"     // it runs no more, and calls nothing
	Changed   Kind = "changed"   // a callback: Subscriber, Old, New, Pauses
	Sample    Kind = "sample"    // what a reader got of the gate: Closed, Resumes, Admitted
	Operation Kind = "operation" // Do was called at Start and admitted before End: Resumes
	Write     Kind = "write"     // to the child: Key, Value
	Parked    Kind = "parked"    // Do was called at Start and had parked Key at End
	Requeued  Kind = "requeued"  // Key

	// The last event of a history: Failure says what has not become as it should.
	Finished Kind = "finished"
)

// Event is something that happened. Start and End are by one monotonic clock, and at
// least as wide apart as the thing itself: it began after Start and had ended at End.
type Event struct {
	Kind       Kind
	Start, End time.Duration
	Process    string // agent/1: the first process of the agent

	Object       string
	Version      uint64 // the server's resourceVersion
	Generation   int64
	Field, Hold  bool // the object is held by its field; by an annotation
	Deleted      bool
	True         bool   // the condition SyncPaused
	Acknowledged bool   // see report.Acknowledged
	Condition    string // what SyncPaused says
	Gap          bool   // earlier versions may be missing
	Stock        bool

	Key   string
	Value int

	Subscriber        string
	Old, New          Decision
	Closed            bool
	Resumes, Admitted uint64 // of the gate, as are Pauses
	Pauses            uint64

	Failure string
}

// Decision is a State of a gate, as far as a change of it is a change.
type Decision struct {
	Paused bool
	Text   string
}

func (e *Event) held() bool { return !e.Deleted && (e.Field || e.Hold) }

func (e Event) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%v..%v %s %s", e.Start.Round(time.Microsecond), e.End.Round(time.Microsecond), e.Kind, e.Process)
	switch e.Kind {
	case Commit, Observed:
		fmt.Fprintf(&out, "%s rv=%d generation=%d field=%t hold=%t deleted=%t true=%t acknowledged=%t",
			e.Object, e.Version, e.Generation, e.Field, e.Hold, e.Deleted, e.True, e.Acknowledged)
	case Swap:
		fmt.Fprintf(&out, "stock=%t", e.Stock)
	case Edit, Write, Parked, Requeued:
		fmt.Fprintf(&out, " %s=%d", e.Key, e.Value)
	case Changed:
		fmt.Fprintf(&out, " %s: %s -> %s", e.Subscriber, e.Old.Text, e.New.Text)
	case Sample, Operation:
		fmt.Fprintf(&out, " %s closed=%t resumes=%d admitted=%d", e.Key, e.Closed, e.Resumes, e.Admitted)
	case Ended:
	case Finished:
		out.WriteString(e.Failure)
	}
	return out.String()
}

// History is what happened to one cluster.
type History struct {
	Objects int // how many ManagedClusters it has
	Events  []Event
}

// of returns the events of a kind, by Start.
func (h *History) of(kind Kind) []Event {
	var events []Event
	for _, e := range h.Events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return int(min(max(a.Start-b.Start, -1), 1)) })
	return events
}

// byProcess returns the events of a kind of each process, by Start.
func (h *History) byProcess(kind Kind) map[string][]Event {
	events := map[string][]Event{}
	for _, e := range h.of(kind) {
		events[e.Process] = append(events[e.Process], e)
	}
	return events
}

const forever = time.Duration(math.MaxInt64)

// recorder collects the events of a history.
type recorder struct {
	base time.Time

	mu     sync.Mutex
	events []Event
}

func (r *recorder) now() time.Duration { return time.Since(r.base) }

// add records an event that ends now, and begins now if it has no Start.
func (r *recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.End == 0 {
		e.End = r.now()
	}
	if e.Start == 0 {
		e.Start = e.End
	}
	r.events = append(r.events, e)
}

func (r *recorder) all() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}
