package syncgate

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
)

// Gate decides whether writes to one cluster may start. It follows the
// ManagedClusters whose spec.clusterId is its cluster ID. All methods may be called
// from any goroutine, also from callbacks of OnChange. Run, Do (while its function
// runs), WatchMode and the Wait methods block. Each of them ends with its context;
// Do ends with its function.
//
// What a gate does in each situation:
//
//   - Nothing is known yet (before Run, before the first list): the gate is closed.
//     [Options].FailOpen opens it.
//   - There is no ManagedCluster: the gate is closed. FailOpen opens it.
//   - The API server is away, refuses, or answers nonsense: the last decision stays,
//     Check reports the fault, and the gate recovers by itself.
//     [Options].StaleAfter closes the gate after a silence.
//   - The ManagedCluster is deleted: the last decision stays, and Phase is Gone.
//     If a relist has released it just before, the gate opens. A new ManagedCluster is
//     evaluated like any other.
//   - Two tools hold the cluster: the gate opens when both have released it.
//   - This process holds it by Hold: the gate is closed at once, whatever is known.
//   - Several ManagedClusters have the ID: the gate is closed while any of them is
//     held.
//   - The informer lists again, for example after an outage: the list counts as a whole.
//     If an object in it is paused, the gate closes at once. The gate opens only after
//     the whole list is delivered: 0.15 s later for an agent. On a hub it takes 0.05 s
//     more for each 1,000 ManagedClusters, and 5 s more if events never stop arriving.
//     It does not open while the API server can't be followed.
//   - Events of a watch wait to be handled: they are handled in the order of the server.
//     An informer that is not of package informer may change it, see [NewHub].
//   - The informer selects by label from now on, and no longer finds a ManagedCluster
//     whose label is wrong: the ManagedCluster counts as it was last read. If it is
//     deleted then, it counts until the field can be selected again, or the process
//     restarts.
//   - The flag is malformed (spec.syncPaused: "true"): the gate is closed, with
//     Reason Malformed.
//   - The CRD loses the field while the flag is true or malformed: the gate is closed
//     until the spec is edited, with Reason FieldNotVisible. A process that starts
//     later can't know about the pause.
//   - A callback blocks: the gate goes on. Other callbacks wait.
//   - Run has ended: the gate is closed for ever.
//   - The process restarts: the new gate is closed until it has read the state.
type Gate struct {
	clusterID types.UID
	hub       *Hub
	ownsRun   bool // made by New: Run is the gate's to call
	admission admission
	locals    []*Hold // of Hold, in the order of the calls; guarded by hub.mu

	// backlogs are those that may have keys parked for this gate. They are guarded
	// by admission.mu.
	backlogs map[parker]struct{}
}

// New returns the gate of an agent. It follows the one cluster that the agent runs
// in, and reads nothing else from the server. New does no I/O and starts no
// goroutine; Run does.
//
// It returns an error for a nil client, an empty or malformed namespace, an empty
// or invalid cluster ID, a negative StaleAfter and an unknown Selection.
func New(client dynamic.Interface, namespace string, clusterID types.UID, opts Options) (*Gate, error) {
	inf, err := informer.ForCluster(client, namespace, clusterID, opts.Informer)
	if err != nil {
		return nil, fmt.Errorf("syncgate: make a gate: %w", err)
	}
	scope := fmt.Sprintf("the ManagedCluster of cluster %s in namespace %s", clusterID, namespace)
	h, err := newHub(inf, opts, clusterID, scope)
	if err != nil {
		return nil, fmt.Errorf("syncgate: make a gate: %w", err)
	}
	g := h.Gate(clusterID)
	g.ownsRun = true
	return g, nil
}

// Run follows the ManagedCluster until ctx ends. Then it closes the gate for ever
// and returns nil. A Do that races the end of ctx may still be admitted.
//
// Run returns ErrAlreadyRun when called again, and ErrDrivenByHub on the gate of a
// Hub. It waits for a callback that is running. After it has returned, no callback
// runs and no goroutine of it is left. There is one exception: client-go 0.32
// waits for a Retry-After even after the context has ended, so such a request may
// remain.
func (g *Gate) Run(ctx context.Context) error {
	if !g.ownsRun {
		return fmt.Errorf("syncgate: run the gate of cluster %s: %w", g.clusterID, ErrDrivenByHub)
	}
	return g.hub.Run(ctx)
}

// HasSynced reports whether the gate has the state that the server had at the
// start.
func (g *Gate) HasSynced() bool { return g.hub.HasSynced() }

// WaitForSync waits until HasSynced is true. Its error wraps the cause of ctx and
// says what kept the gate from syncing. It wraps ErrStopped when Run has ended.
func (g *Gate) WaitForSync(ctx context.Context) error { return g.hub.WaitForSync(ctx) }

// ClusterID returns the ID of the cluster that the gate is for.
func (g *Gate) ClusterID() types.UID { return g.clusterID }

// Paused reports whether the gate is closed. It is one atomic load.
//
// Use it to skip work early. It does not protect a write: a pause may come between
// the answer and the write. Use Do for that.
func (g *Gate) Paused() bool { return !g.admission.open.Load() }

// State returns what is known of the cluster. If State().Paused is true, Paused()
// returns true until the gate opens.
func (g *Gate) State() State {
	s, _ := g.admission.snapshots()
	return g.hub.withSelection(&s.State)
}

// OnChange calls fn with the current state, and then each time the decision
// changes: its phase, its reason, its holders or its ManagedCluster. Heartbeats,
// resyncs and relists are no changes. The calls end with stop or with Run.
//
// The first call comes when the gate has synced, at once if it has already. It may
// come before OnChange returns. Its Old is the state before the sync; each later
// Old is the New of the call before. If changes come faster than fn returns, fn
// gets the latest state. If an open gate closes and opens again, fn gets both changes.
//
// When fn runs, Paused already returns the new decision. One goroutine calls all
// callbacks of a Run, one after the other, with no lock held. fn may call any method
// of the gate, and stop. While fn blocks, other callbacks wait and Run does not
// return, but the gates go on. fn must not call runtime.Goexit: that would end all
// callbacks.
//
// stop does not wait for a call that is running or about to start. Called from a
// callback, it prevents every later call of fn.
func (g *Gate) OnChange(fn func(Change)) (stop func()) { return g.hub.dispatcher.subscribe(g, fn) }

// Do runs fn if the gate is open, and returns what fn returns. Put each write to
// the cluster into a Do. If the gate is closed, Do returns at once, and
// errors.Is(err, ErrPaused) is true.
//
// Do admits fn under the lock that closes the gate, so nothing starts once the gate
// is closed. A pause cancels nothing: fn runs to its end, and WaitDrained waits for
// it. A panic or runtime.Goexit in fn ends the admission as well.
//
// The context that fn gets stands for the admitted operation. A nested Do of the
// same gate with this context, or with one derived from it, belongs to the
// operation. It runs even if the gate has closed, until the operation ends. A nested
// Do with another context is an operation of its own, and a closed gate refuses it.
//
// After the end of Run the error is also ErrStopped. If ctx is done already, the
// error wraps its cause. Do never waits for the gate to open.
func (g *Gate) Do(ctx context.Context, fn func(context.Context) error) error {
	op, ctx, err := g.admission.admit(ctx)
	if err != nil {
		return err
	}
	defer g.admission.release(op)
	return fn(ctx)
}

// Checkpoint reports whether an operation should go on: it returns nil while the gate
// is open. Call it between two writes of a long operation. A pause waits for the
// whole operation, and nested calls of Do are part of it, so they don't end it.
//
// If the gate is closed, errors.Is(err, ErrPaused) is true, as for Do. Return this
// error from the function of Do, wrapped or not, and the operation ends after one
// write instead of after all of them. [Backlog.Do] then parks the key. What was
// written stays written, so the rest must be able to follow later.
//
// If ctx is done, the error wraps its cause. After the end of Run it is also
// ErrStopped. Checkpoint does not block. It costs about as much as Paused.
func (g *Gate) Checkpoint(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("syncgate: go on with an operation on cluster %s: %w", g.clusterID, context.Cause(ctx))
	}
	return g.admission.refusal()
}

// InFlight returns the number of admitted operations that have not ended. Nested
// operations are not counted.
func (g *Gate) InFlight() int { return g.admission.countInFlight() }

// Stats counts what has gone through a gate since it was made.
type Stats struct {
	Admitted uint64 // Operations. Nested ones are not counted.
	Refused  uint64 // Attempts that a closed gate refused.
	// Pauses is how often the gate closed after its state was known. The end of Run
	// does not count.
	Pauses uint64
	// Resumes is how often the gate opened after its state was known.
	Resumes uint64
	Parked  int // Keys that backlogs hold for this gate now.
}

// Stats returns the counts of the gate. Do not call it for each write: its cost grows
// with the number of backlogs that have keys for this gate.
func (g *Gate) Stats() Stats {
	g.admission.mu.Lock()
	defer g.admission.mu.Unlock()
	stats := g.admission.counts
	stats.Refused = g.admission.refused.Load()
	for b := range g.backlogs {
		stats.Parked += b.parkedFor(g)
	}
	return stats
}

// WaitOpen waits until the gate is open. Its error wraps the cause of ctx, or
// ErrStopped when Run has ended and the gate can't open again. The gate may close
// at any time afterwards, so use Do for the write.
func (g *Gate) WaitOpen(ctx context.Context) error {
	return g.waitError(ctx, "to open", g.admission.waitOpen(ctx))
}

// WaitDrained waits until the gate is closed, for any reason, and no operation is
// in flight. While the gate is open, it waits for the gate to close. Its error
// wraps the cause of ctx. Inside an operation of this gate it returns an error at
// once, since it would wait for its own end.
func (g *Gate) WaitDrained(ctx context.Context) error {
	return g.waitError(ctx, "to drain", g.admission.waitDrained(ctx))
}

func (g *Gate) waitError(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil:
		return fmt.Errorf("syncgate: wait for cluster %s %s: %w", g.clusterID, what, err)
	}
	s := g.State()
	return fmt.Errorf("syncgate: wait for cluster %s %s: %w; it is %s (%s: %s), %d in flight",
		g.clusterID, what, err, s.Phase, s.Reason, s.Message, g.InFlight())
}

// Object is a ManagedCluster of a gate's cluster, as the gate has read it.
type Object struct {
	types.NamespacedName
	UID        types.UID
	Generation int64
	// Hidden: the informer has come to select by label and no longer finds it. It
	// counts as it was last read.
	Hidden bool
}

// Objects returns the ManagedClusters that decide the gate, by namespace and name.
// Call Objects before State to learn which edits the State includes: these
// ManagedClusters at these generations or later ones. There are none while the State is
// from before a relist, see Gate.
func (g *Gate) Objects() []Object { return g.hub.objectsOf(g.clusterID) }

// Gates returns the gate itself, so that a Gate can be used where a Hub can.
func (g *Gate) Gates() iter.Seq[*Gate] {
	return func(yield func(*Gate) bool) { yield(g) }
}

// Informer returns the informer that the gate follows, see Hub.Informer.
func (g *Gate) Informer() cache.SharedIndexInformer { return g.hub.informer }

// Name returns the name of the health check, which is Check. It is made of the cluster
// ID, escaped where it could not be a part of a URL.
func (g *Gate) Name() string { return "syncgate-" + url.PathEscape(string(g.clusterID)) }

// Check returns an error when the gate's state may be wrong: Run was not called or
// has ended, the gate has not synced, the server refuses or is stale, or the
// informer can't see the flag. A pause is no error. Check does not block and
// ignores its argument. With Name it makes the gate a healthz.HealthChecker of
// k8s.io/apiserver.
func (g *Gate) Check(*http.Request) error {
	if err := g.hub.health(); err != nil {
		return fmt.Errorf("syncgate: check the gate of cluster %s: %w", g.clusterID, err)
	}
	return nil
}
