package syncgate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
)

// Gate says whether writes to one cluster may go on. It follows the
// ManagedClusters whose spec.clusterId is its cluster ID. All methods may be
// called from any goroutine, also from callbacks of OnChange; none blocks but
// Run, Do (while its function runs) and those that wait, which end with their
// context.
//
// A gate answers these questions as follows.
//
//   - Nothing is known yet (before Run, before the first list): closed.
//     [Options].FailOpen opens it.
//   - There is no ManagedCluster: closed, as before.
//   - The API server is away, refuses, or answers nonsense: the last decision
//     holds, Check reports the fault, recovery is by itself.
//     [Options].StaleAfter closes the gate after a silence.
//   - The ManagedCluster is deleted: the last decision holds, Phase is Gone.
//     One created anew is decided anew.
//   - Two tools hold the cluster: it opens when neither does.
//   - Several ManagedClusters have the ID: any of them that is paused pauses. What
//     happened to several during an outage is seen one after the other.
//   - The flag is malformed (spec.syncPaused: "true"): closed, Reason Malformed.
//   - The CRD loses the field while the cluster is paused: closed until the spec is
//     edited, Reason FieldNotVisible. A process that starts afterwards can't know.
//   - A callback blocks: the gate goes on, callbacks wait.
//   - Run has ended: closed for ever, for those who still hold the gate.
//   - The process restarts: a new gate starts closed and reads the state before
//     it opens.
type Gate struct {
	id  types.UID
	hub *Hub
	own bool // made by New: Run is the gate's to call

	// open is the decision for Paused, and snap the state that it belongs to.
	// They are written under mu only, so whoever holds mu sees them agree. The
	// zero value of open is closed.
	open atomic.Bool
	snap atomic.Pointer[snapshot]

	mu       sync.Mutex          // guards the fields below
	closed   *snapshot           // the last closed one
	inFlight int                 // admitted operations
	flip     chan struct{}       // closed when something that is waited for may have come; nil: nobody waits
	backlogs map[parker]struct{} // those that may have keys parked for this gate
	counts   Stats               // but for what is counted elsewhere, see Stats

	refused atomic.Uint64

	// Guarded by hub.mu: what the ManagedClusters say, without regard to
	// whether it can be trusted (see Hub.decide).
	records []*record
	base    State

	subscriptions []*subscription // guarded by hub.news.mu
}

// snapshot is a State as published, with what derives from it. It is immutable.
type snapshot struct {
	State
	seq     uint64 // counts the decisions of the gate
	refusal error
}

// New returns the gate of an agent: it follows the one cluster that the agent
// runs in, and asks the server for nothing else. It does no I/O and starts no
// goroutine before Run.
//
// It returns an error for a nil client, an empty or malformed namespace, an empty
// or impossible cluster ID, a negative StaleAfter and an unknown Selection.
func New(client dynamic.Interface, namespace string, clusterID types.UID, opts Options) (*Gate, error) {
	inf, err := informer.ForCluster(client, namespace, clusterID, opts.Informer)
	if err != nil {
		return nil, fmt.Errorf("syncgate: make a gate: %w", err)
	}
	h, err := newHub(inf, opts)
	if err != nil {
		return nil, fmt.Errorf("syncgate: make a gate: %w", err)
	}
	h.only = clusterID
	h.what = fmt.Sprintf("the ManagedCluster of cluster %s in namespace %s", clusterID, namespace)
	g := h.Gate(clusterID)
	g.own = true
	return g, nil
}

// Run follows the ManagedCluster until ctx ends, then at once closes the gate for
// ever and returns nil. A Do that races the end of ctx may still be admitted. It
// returns ErrAlreadyRun when called again, and ErrDrivenByHub on the gate of a Hub.
//
// When Run has returned, no callback runs and no goroutine of it is left, but for
// a request that its client does not end with its context (client-go 0.32 sleeps
// out a Retry-After). It waits for a callback that is running.
func (g *Gate) Run(ctx context.Context) error {
	if !g.own {
		return fmt.Errorf("syncgate: run the gate of cluster %s: %w", g.id, ErrDrivenByHub)
	}
	return g.hub.Run(ctx)
}

// HasSynced tells whether the state of the server at the start has been read and
// is what the gate shows.
func (g *Gate) HasSynced() bool { return g.hub.HasSynced() }

// WaitForSync waits until HasSynced. Its error wraps the cause of ctx and says
// what kept the gate from syncing; ErrStopped is in it when Run has ended.
func (g *Gate) WaitForSync(ctx context.Context) error { return g.hub.WaitForSync(ctx) }

// ClusterID returns the ID of the cluster that the gate is for.
func (g *Gate) ClusterID() types.UID { return g.id }

// Paused tells whether the gate is closed. It is one atomic load.
//
// To ask before a write is good for skipping work early. It is no protection: the
// pause may come between the answer and the write. See Do.
func (g *Gate) Paused() bool { return !g.open.Load() }

// State returns what is known of the cluster. Once a State with Paused has been
// seen, Paused is true until the gate opens.
func (g *Gate) State() State {
	s, _ := g.snapshots()
	return g.hub.view(&s.State)
}

// OnChange calls fn with the current state, and then whenever the decision, its
// reason, its holders or the ManagedCluster that it comes from change, until stop
// is called or Run ends. Heartbeats, resyncs and relists are no change.
//
// The first call comes once the gate has synced, or at once if it has, which may
// be before OnChange returns. Its Old is the state before the sync. Then each Old is the New of the call before. Changes
// that come faster than fn returns are merged: fn is told the latest state, but
// not an opening without the closing before it. When fn runs, Paused already
// shows the change.
//
// All callbacks of a Gate's or a Hub's Run are called by one goroutine, one after
// the other, with no lock held. fn may call anything of the gate, stop too. While
// fn blocks, no other callback is called and Run does not return, but the gates
// go on. fn must not end its goroutine by runtime.Goexit, which would end all
// callbacks. stop does not wait for a call that has begun; after it no other
// begins.
func (g *Gate) OnChange(fn func(Change)) (stop func()) { return g.hub.subscribe(g, fn) }

// Do runs fn unless the gate is closed, and returns what fn returns. It is for
// the side effect itself: whether it may run is decided under the lock that
// closes the gate, so once the gate is closed none begins. Nothing is cancelled
// by a pause: fn runs to its end, and WaitDrained waits for it.
//
// The context that fn is given stands for the admitted operation: a Do of the
// same gate with it, or with one derived from it, is a part of that operation and
// runs even when the gate has closed in between, as long as some part still runs.
// Within fn use that context and no other: with one from outside a nested Do is
// an operation of its own, and refused when the gate has closed.
//
// When the gate is closed Do returns an error for which errors.Is(err, ErrPaused)
// is true, and ErrStopped too after the end of Run. When ctx is done already, it
// returns an error that wraps the cause. It never waits for the gate to open. A
// panic or runtime.Goexit in fn ends its admission.
func (g *Gate) Do(ctx context.Context, fn func(context.Context) error) error {
	op, ctx, err := g.admit(ctx)
	if err != nil {
		return err
	}
	defer g.release(op)
	return fn(ctx)
}

// operation is an admitted Do with all that is nested in it. It is a context
// too, which saves an allocation.
type operation struct {
	context.Context
	gate  *Gate
	parts int // guarded by gate.mu; those that still run
}

// Value finds the operation by its gate: operations of several gates may nest.
func (op *operation) Value(key any) any {
	if key == any(op.gate) {
		return op
	}
	return op.Context.Value(key)
}

// admit returns the operation that a Do with ctx is a part of, and the context for
// that part. Its error is a *refusal when the gate is closed.
func (g *Gate) admit(ctx context.Context) (*operation, context.Context, error) {
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("syncgate: operate on cluster %s: %w", g.id, context.Cause(ctx))
	}
	outer, _ := ctx.Value(g).(*operation)
	if outer == nil && !g.open.Load() {
		// Refused without the lock, so that a crowd at a closed gate does not
		// delay its opening.
		if s := g.snap.Load(); s.Paused {
			g.refused.Add(1)
			return nil, nil, s.refusal
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if outer != nil && outer.parts > 0 {
		outer.parts++
		return outer, ctx, nil
	}
	if s := g.snap.Load(); s.Paused {
		g.refused.Add(1)
		return nil, nil, s.refusal
	}
	g.counts.Admitted++
	g.inFlight++
	op := &operation{Context: ctx, gate: g, parts: 1}
	return op, op, nil
}

func (g *Gate) release(op *operation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	op.parts--
	if op.parts > 0 {
		return
	}
	g.inFlight--
	if g.inFlight == 0 && g.snap.Load().Paused {
		g.wakeLocked()
	}
}

// InFlight returns the number of admitted operations of which some part still
// runs. What is nested in an operation is not counted again.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// Stats counts what has gone through a gate since it was made.
type Stats struct {
	Admitted uint64 // Operations. What is nested in one is not counted again.
	Refused  uint64 // Attempts that a closed gate refused.
	Pauses   uint64 // How often the open gate closed, but for the end of Run.
	Resumes  uint64 // How often the closed gate opened, but for when it was first known.
	Parked   int    // Keys that backlogs have parked for this gate now.
}

// Stats returns the counts of the gate. It is for reports: its cost grows with
// the number of backlogs that have keys for this gate.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	stats := g.counts
	stats.Refused = g.refused.Load()
	for b := range g.backlogs {
		stats.Parked += b.parkedFor(g)
	}
	return stats
}

// WaitOpen waits until the gate is open. Its error wraps the cause of ctx, or
// ErrStopped once Run has ended: the gate will not open again. The gate may close
// again at any time, so follow it with Do.
func (g *Gate) WaitOpen(ctx context.Context) error {
	return g.wait(ctx, "to open", func() (bool, error) {
		s := g.snap.Load()
		if s.Reason == ReasonStopped {
			return false, s.refusal
		}
		return !s.Paused, nil
	})
}

// WaitDrained waits until the gate is closed, for whatever reason, and no
// admitted operation is left. While the gate is open it waits for it to close, so
// end its ctx when you no longer care. Its error wraps the cause of ctx. Called
// from inside an operation of this gate it returns an error at once, since it would
// wait for its own end.
func (g *Gate) WaitDrained(ctx context.Context) error {
	op, _ := ctx.Value(g).(*operation)
	return g.wait(ctx, "to drain", func() (bool, error) {
		if op != nil && op.parts > 0 {
			return false, errors.New("called inside an operation of the gate, whose end it would wait for; call it outside of Do")
		}
		return g.snap.Load().Paused && g.inFlight == 0, nil
	})
}

// wait waits for done, which is called under mu, to be true or to fail.
func (g *Gate) wait(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		g.mu.Lock()
		ok, err := done()
		if ok || err != nil {
			g.mu.Unlock()
			if err != nil {
				return fmt.Errorf("syncgate: wait for cluster %s %s: %w", g.id, what, err)
			}
			return nil
		}
		if g.flip == nil {
			g.flip = make(chan struct{})
		}
		flip := g.flip
		g.mu.Unlock()
		select {
		case <-flip:
		case <-ctx.Done():
			return fmt.Errorf("syncgate: wait for cluster %s %s: %w; %s", g.id, what, context.Cause(ctx), g.situation())
		}
	}
}

func (g *Gate) situation() string {
	s := g.State()
	return fmt.Sprintf("it is %s (%s: %s), %d in flight", s.Phase, s.Reason, s.Message, g.InFlight())
}

func (g *Gate) wakeLocked() {
	if g.flip != nil {
		close(g.flip)
		g.flip = nil
	}
}

// Gates returns the gate itself: what serves a Hub serves the gate of an agent.
func (g *Gate) Gates() iter.Seq[*Gate] {
	return func(yield func(*Gate) bool) { yield(g) }
}

// Informer returns the informer that the gate follows, see Hub.Informer.
func (g *Gate) Informer() cache.SharedIndexInformer { return g.hub.informer }

// Name returns the name of the health check that Check is.
func (g *Gate) Name() string { return "syncgate-" + string(g.id) }

// Check returns an error when the gate can't vouch for its state: Run was not
// called or has ended, it has not synced, the server refuses or is stale, or the
// informer can't see the flag. A pause is no error. It does not block and ignores
// its argument; with Name it is a healthz.HealthChecker of k8s.io/apiserver.
func (g *Gate) Check(*http.Request) error {
	if err := g.hub.fault(); err != nil {
		return fmt.Errorf("syncgate: check the gate of cluster %s: %w", g.id, err)
	}
	return nil
}

// publish makes next the state of the gate, and tells whether it is a new
// decision.
func (g *Gate) publish(next State) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &snapshot{State: next}
	prev := g.snap.Load()
	changed := prev == nil || !sameDecision(&prev.State, &next)
	if prev != nil {
		s.seq = prev.seq
		if prev.Phase == next.Phase && prev.Reason == next.Reason {
			s.Since = prev.Since
		}
	}
	if changed {
		s.seq++
	}
	known := prev != nil && prev.Reason != ReasonNotSynced && prev.Reason != ReasonNotFound
	if known && prev.Paused != s.Paused && s.Reason != ReasonStopped {
		if s.Paused {
			g.counts.Pauses++
		} else {
			g.counts.Resumes++
		}
	}
	if s.Paused {
		s.refusal = &refusal{g.id, &s.State}
		if changed || g.closed == nil {
			g.closed = s
		}
	}
	g.snap.Store(s)
	g.open.Store(!s.Paused)
	if changed {
		g.wakeLocked()
	}
	switch {
	case s.Reason == ReasonStopped:
		for b := range g.backlogs {
			b.drop(g)
		}
		g.backlogs = nil
	case !s.Paused && len(g.backlogs) > 0:
		g.hub.replays.add(g)
	}
	return changed
}

// snapshots returns the state of the gate and the last closed one.
func (g *Gate) snapshots() (now, closed *snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.snap.Load(), g.closed
}

// add and remove keep records in the order of namespace and name, so that the
// one that decides does not depend on the order of events.
func (g *Gate) add(r *record) {
	i, _ := slices.BinarySearchFunc(g.records, r, compareRecords)
	g.records = slices.Insert(g.records, i, r)
}

func (g *Gate) remove(r *record) {
	if i := slices.Index(g.records, r); i >= 0 {
		g.records = slices.Delete(g.records, i, i+1)
	}
}
