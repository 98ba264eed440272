// Package report makes pauses visible on the ManagedClusters: it writes the
// condition SyncPaused, which acknowledges a pause once it has taken hold, and
// creates Events.
//
// # The condition
//
//	status   reason           when
//	True     Paused           something holds the cluster, and no operation is in flight
//	False    Draining         something holds the cluster, and operations are in flight
//	False    Syncing          nothing holds the cluster any more
//	Unknown  Malformed        what would tell so is of the wrong type; the gate is closed
//	Unknown  FieldNotVisible  the CRD or the informer's Go type lacks the flag; the gate is closed
//
// So an operator waits for a pause with
//
//	kubectl -n NAMESPACE wait mcls/NAME --for=condition=SyncPaused
//
// Unknown is not True, although nothing is deployed then either: nobody can tell
// whether the pause that somebody waits for is the one that was asked for, and
// the message says what to correct.
//
// The message names the holders and their reasons. While a gate drains it tells
// the number in flight too, which is brought up to date every 10 seconds. The
// observedGeneration is that of the ManagedCluster as the decision took it in, and
// lastTransitionTime changes with the status only. All ManagedClusters of a
// cluster have the condition.
//
// Nothing is written for a gate whose state is Unknown, Gone or Stopped: there is
// nothing to say of a cluster of which nothing is known, and the end of a process
// is no pause. The condition stays as it is then. Nor is anything written for a
// cluster that was never paused: of ten thousand healthy clusters none costs a
// request. A condition that an earlier process left behind is corrected. Where
// there is one, it follows each edit of the spec, since a reader takes a condition
// of an earlier generation for outdated; kubectl wait does.
//
// # How fast
//
// The condition follows the gate at once, as far as the client allows: many
// clusters that are held at the same moment wait for its limit of requests. True is
// not written while the server has another edit of the spec, or other holds on the
// ManagedCluster, than the gate has read, nor when the gate has opened while the
// request waited.
//
// But a True that is there stays until it is corrected. After an edit of the spec
// its observedGeneration tells that it is an earlier one. A hold is an annotation and
// changes no generation: kubectl wait takes the True of an earlier hold, or that of
// another holder, for the answer to a new one. Who holds a cluster waits until the
// message names the hold. What it corrects does not depend on OnChange, which another
// callback may block: changed holds are looked at as the informer tells of them and a
// second later, and each closed gate every 10 seconds, which costs no request while
// the condition is right. That is for how long a True may be wrong while the client
// gets its requests through.
//
// # Other writers
//
// The condition is written into the status as it is on the server at that moment,
// under its resourceVersion, and nothing else is changed, but that a second
// condition of the type is removed. When another writer drops or changes it, it is written again: at once, and when that goes on, with
// growing delays of up to 30 seconds. A write that says something new waits for
// 100 ms after the last one at the most.
//
// # Events
//
// When the status of the condition changes, an Event on the ManagedCluster tells:
// SyncPaused when it becomes True, SyncResumed when it was True or Unknown and
// operations begin again, SyncPauseMalformed when it becomes Unknown with the
// reason Malformed. A pause that ends before it took hold has none. What is there
// when a process starts is no change. Events are told once, as far as the server
// takes them; they are never tried again.
//
// # Rights
//
// It needs get on managedclusters, update on managedclusters/status, and create on
// events. Without those on managedclusters, with credentials that the server does not
// accept, or with a CRD that does not keep the condition, it logs what to do and tries
// again every 5 minutes, and when there is something new to say, which the number in
// flight is not, 10 seconds after the last refusal at the earliest. The gates don't
// depend on it. An Event is waited for a second at the most.
//
// # Clusters that are gone
//
// Of a ManagedCluster that is deleted, or has no spec.clusterId any more, nothing is
// kept or tried again. Of its cluster the gate is kept, as a hub keeps it.
package report

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/syncgate"
)

// ConditionType is the type of the condition.
const ConditionType = api.ConditionType

// The reasons of the condition, next to syncgate.ReasonMalformed and
// syncgate.ReasonFieldNotVisible.
const (
	ReasonPaused   = "Paused"   // True: the pause has taken hold.
	ReasonDraining = "Draining" // False: operations are still in flight.
	ReasonSyncing  = "Syncing"  // False: nothing holds the cluster.
)

// The reasons of the Events.
const (
	EventPaused    = "SyncPaused"
	EventResumed   = "SyncResumed"
	EventMalformed = "SyncPauseMalformed" // a warning

	// Of ModeEvents.
	EventModeMismatch = "SyncModeMismatch" // a warning
	EventModeFits     = "SyncModeFits"
)

// defaultComponent is what Events name as their source.
const defaultComponent = "syncgate"

const (
	workers      = 4
	lookAgain    = 10 * time.Second       // at a closed gate; each end of an operation would be a write
	lookSoon     = time.Second            // at a gate that may not have seen what we have
	pace         = 100 * time.Millisecond // between two writes to one object
	slowestPace  = 30 * time.Second       // where others keep undoing them
	retryAtFirst = 5 * time.Millisecond
	retryAtLast  = time.Minute
	retryRefused = 5 * time.Minute
	askAgain     = time.Minute // whether to acknowledge
	eventTimeout = time.Second // a worker waits for it
	endTimeout   = time.Second
)

// Gates is what a Reporter reports: a *syncgate.Hub or a *syncgate.Gate.
type Gates interface {
	Gates() iter.Seq[*syncgate.Gate]
	OnChange(fn func(syncgate.Change)) (stop func())
	Informer() cache.SharedIndexInformer
	WaitForSync(ctx context.Context) error
}

// Options configures a [Reporter]. The zero value is ready for use.
type Options struct {
	// Acknowledge tells whether to report a gate: only the side that deploys to
	// a cluster knows when its last write has ended, so agent and hub must not
	// both acknowledge it. Nil: all gates. It is asked again each time there may be
	// something to report, and while the gate is closed every 10 seconds, or each
	// minute if it is not to be reported; the
	// condition of a gate that is not to be reported is left as it is. It is
	// called by several goroutines and should not block.
	Acknowledge func(*syncgate.Gate) bool

	// Component is what Events name as their source. Empty: "syncgate".
	Component string
}

// Reporter keeps the condition SyncPaused of ManagedClusters. All methods may be
// called from any goroutine.
type Reporter struct {
	client dynamic.Interface
	gates  Gates
	opts   Options

	started atomic.Bool
	log     klog.Logger // that of Run, as the two below
	queue   workqueue.TypedRateLimitingInterface[types.UID]
	parts   sync.WaitGroup // the goroutines

	mu       sync.Mutex // guards the fields below, and what they point to
	records  map[types.NamespacedName]*record
	clusters map[types.UID]*cluster
	known    map[types.UID]*syncgate.Gate // kept for good, as a hub keeps its gates
	events   uint64                       // that have been seen
	refusals [refusalKinds]int            // the records that are refused
}

// New returns a reporter of gates that writes with client. It does no I/O and
// starts no goroutine before Run. It returns an error for a nil client and for nil
// gates.
func New(client dynamic.Interface, gates Gates, opts Options) (*Reporter, error) {
	if api.IsNil(client) {
		return nil, errors.New("report: make a reporter: the client is nil; pass a dynamic client of the parent cluster")
	}
	if api.IsNil(gates) {
		return nil, errors.New("report: make a reporter: the gates are nil; pass a *syncgate.Hub or a *syncgate.Gate")
	}
	if opts.Component == "" {
		opts.Component = defaultComponent
	}
	return &Reporter{
		client:   client,
		gates:    gates,
		opts:     opts,
		records:  map[types.NamespacedName]*record{},
		clusters: map[types.UID]*cluster{},
		known:    map[types.UID]*syncgate.Gate{},
	}, nil
}

// Run reports until ctx ends, and then returns nil. It runs next to Run of the
// gates, before or after it, with the same ctx or one that ends earlier; it does
// not run them. After the end of the gates it has nothing more to report.
//
// It returns an error that wraps syncgate.ErrAlreadyRun when called again, and an
// error when the informer of the gates has stopped or the gates end before they
// have synced.
//
// When Run has returned it writes nothing more and no goroutine of it is left, but
// for a request that its client does not end with its context (client-go 0.32
// sleeps out a Retry-After).
func (r *Reporter) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return fmt.Errorf("report: run the reporter: %w", syncgate.ErrAlreadyRun)
	}
	r.log = klog.FromContext(ctx)
	r.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryAtFirst, retryAtLast))
	defer r.queue.ShutDown()

	inf := r.gates.Informer()
	registration, err := inf.AddEventHandler(r.handler())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the gates have ended too
	case err != nil:
		return fmt.Errorf("report: follow the informer of the gates: %w; make a reporter of new gates for a new run", err)
	}
	// It can fail for a registration of another informer only.
	defer func() { _ = inf.RemoveEventHandler(registration) }()

	if err := r.gates.WaitForSync(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("report: wait for the gates: %w", err)
	}
	defer r.gates.OnChange(func(c syncgate.Change) { r.queue.Add(c.ClusterID) })()

	for range workers {
		r.parts.Add(1)
		go func() {
			defer r.parts.Done()
			r.work(ctx)
		}()
	}
	<-ctx.Done()
	r.queue.ShutDown()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.parts.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(endTimeout):
	}
	return nil
}

func (r *Reporter) work(ctx context.Context) {
	for {
		clusterID, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			r.report(ctx, clusterID)
		}
		r.queue.Done(clusterID)
	}
}

// report makes the condition of each ManagedCluster of a cluster what its gate
// says. It is called for one cluster at a time only.
func (r *Reporter) report(ctx context.Context, clusterID types.UID) {
	gate := r.gate(clusterID)
	if gate == nil {
		r.queue.Forget(clusterID)
		return // a first Change of it brings it back
	}
	if r.opts.Acknowledge != nil && !r.opts.Acknowledge(gate) {
		r.stopWaiting(clusterID)
		r.queue.Forget(clusterID)
		if gate.Paused() {
			r.queue.AddAfter(clusterID, askAgain) // not all it may depend on is a Change
		}
		return
	}
	v, records := look(gate), r.recordsOf(clusterID)
	if v.draining() {
		r.awaitDrain(ctx, clusterID, gate)
	} else {
		r.stopWaiting(clusterID)
	}
	if len(records) > 0 && v.state.Paused && v.state.Reason != syncgate.ReasonStopped {
		// Changes may be late, and merge an opening into nothing.
		r.queue.AddAfter(clusterID, lookAgain)
	}
	if !v.known() || len(records) == 0 {
		r.queue.Forget(clusterID)
		return
	}
	if !v.answers(records) {
		r.log.V(4).Info("Will try again", "clusterID", clusterID, "why", errGateBehind)
		r.queue.AddRateLimited(clusterID)
		return
	}
	again := false
	for i := range records {
		err := r.acknowledge(ctx, gate, &v, &records[i])
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.log.V(4).Info("Will try again", "managedCluster", records[i].key, "why", err)
			again = true
		}
	}
	if again {
		r.queue.AddRateLimited(clusterID)
	} else {
		r.queue.Forget(clusterID)
	}
}

// gate returns the gate of a cluster, nil if there is none yet.
func (r *Reporter) gate(clusterID types.UID) *syncgate.Gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[clusterID] == nil {
		for g := range r.gates.Gates() {
			r.known[g.ClusterID()] = g
		}
	}
	return r.known[clusterID]
}

var (
	errGateBehind  = errors.New("the gate has not seen the newest ManagedCluster")
	errGateChanged = errors.New("the gate has changed meanwhile")
)

// refusal is an error that trying again soon does not mend.
type refusal struct {
	kind refusalKind
	error
}

func (r *refusal) Unwrap() error { return r.error }

type refusalKind int

const (
	notAllowed   refusalKind = iota // no object is taken
	notTaken                        // by the CRD, so most likely no object is
	malformed                       // the one object
	refusalKinds                    // their number
)

func (k refusalKind) remedy() string {
	switch k {
	case notAllowed:
		return "allow get on managedclusters and update on managedclusters/status, and see that the credentials are valid"
	case notTaken:
		return "see that the CRD has the status subresource with its conditions"
	default:
		return "correct the status of the ManagedCluster"
	}
}

// acknowledge makes the condition of a ManagedCluster what the view of its gate says.
func (r *Reporter) acknowledge(ctx context.Context, gate *syncgate.Gate, v *view, rec *record) error {
	says, err := v.of(rec)
	if err != nil {
		return err
	}
	if rec.condition == nil && rec.last == nil && says.reason == ReasonSyncing { // never paused
		if wait := rec.refused.forget(); wait > 0 {
			r.queue.AddAfter(rec.clusterID, wait)
		} else {
			r.update(rec, r.accepted)
		}
		return nil
	}
	if rec.condition.says(&says) {
		r.update(rec, func(now *record) {
			now.last = rec.condition
			r.accepted(now)
		})
		return nil
	}
	if wait := rec.refused.wait(&says); wait > 0 {
		r.queue.AddAfter(rec.clusterID, wait)
		return nil
	}
	err = r.write(ctx, gate, rec, says)
	var refused *refusal
	if ctx.Err() == nil && errors.As(err, &refused) {
		r.tellRefused(rec, &says, refused.kind, err)
		r.queue.AddAfter(rec.clusterID, retryRefused)
		return nil
	}
	return err
}

// write makes what is on the server what says says, when its turn comes.
func (r *Reporter) write(ctx context.Context, gate *syncgate.Gate, rec *record, says condition) error {
	wait := rec.pace(rec.last.says(&says))
	since := time.Since(rec.wrote)
	if since < wait {
		r.queue.AddAfter(rec.clusterID, wait-since)
		return nil
	}

	resource := r.client.Resource(informer.Resource).Namespace(rec.key.Namespace)
	live, err := resource.Get(ctx, rec.key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // its deletion is on the way
	case err != nil:
		return explain("read", err)
	case live.GetUID() != rec.uid:
		return nil // so is another one
	case live.GetGeneration() > says.observedGeneration, !slices.Equal(holdsOf(live.Object), rec.holds):
		return errGateBehind // a True could be false already
	}
	// The request may have waited for long. What is edited from here on makes the
	// write a conflict.
	if says, err = r.stillSays(gate, rec, says); err != nil {
		return err
	}
	have := conditionOf(live.Object)
	if have.says(&says) {
		r.update(rec, func(now *record) { r.found(now, rec, have) })
		return nil
	}
	want := says.timed(rec.last, have)
	if err := want.put(live.Object); err != nil {
		return &refusal{malformed, err}
	}
	written, err := resource.UpdateStatus(ctx, live, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return missing(ctx, resource, rec.key.Name)
	case err != nil:
		return explain("update the status", err)
	}
	kept := conditionOf(written.Object)
	if !kept.says(want) {
		return &refusal{notTaken, errors.New("the server has taken the condition and not kept it: the CRD has no status.conditions, or not all of their fields; add them")}
	}
	repair := rec.last.says(want)
	r.update(rec, func(now *record) {
		r.found(now, rec, kept)
		now.wrote = time.Now()
		switch {
		case !repair:
			now.repairs = 0
		case since < 2*wait:
			now.repairs++
		default:
			now.repairs = 1
		}
	})
	was := rec.last
	if was == nil {
		was = have
	}
	level := 4
	if was == nil || was.status != want.status {
		level = 2
	}
	r.log.V(level).Info("Wrote the condition", "managedCluster", rec.key, "type", ConditionType, "status", want.status, "reason", want.reason,
		"message", want.message, "observedGeneration", want.observedGeneration, "restored", repair)
	r.tell(ctx, live, was, want)
	return nil
}

// stillSays looks at the gate again and returns what it says now of a ManagedCluster.
// Its error is not nil when that is not what it said, but for the words: the number
// in flight changes all the time.
func (r *Reporter) stillSays(gate *syncgate.Gate, rec *record, said condition) (condition, error) {
	v := look(gate)
	if !v.known() || !v.answers(r.recordsOf(rec.clusterID)) {
		return said, errGateChanged
	}
	says, err := v.of(rec)
	if err == nil && (says.status != said.status || says.reason != said.reason || says.observedGeneration != said.observedGeneration) {
		err = errGateChanged
	}
	return says, err
}

// found notes the condition that the server has, according to an answer to what was
// asked when the record was as before. What the handler has seen since may be newer.
// It is called with mu held.
func (r *Reporter) found(now, before *record, have *condition) {
	now.last = have
	r.accepted(now)
	if now.seen == before.seen {
		now.condition = have
	} else if !now.condition.says(have) {
		r.queue.AddAfter(now.clusterID, lookSoon)
	}
}

// missing tells why there was no status to update: the server's answer is the same
// for an object that is gone and for a CRD without the subresource.
func missing(ctx context.Context, resource dynamic.ResourceInterface, name string) error {
	_, err := resource.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return explain("read", err)
	}
	return &refusal{notTaken, errors.New("the ManagedCluster is there, but its status is not: the CRD has no status subresource; add it")}
}

// pace returns how long after the last write the next one may come.
func (rec *record) pace(repair bool) time.Duration {
	wait := pace
	for i := 0; repair && i < rec.repairs && wait < slowestPace; i++ {
		wait *= 2
	}
	return min(wait, slowestPace)
}

// wait returns for how long nothing is to be tried after a refusal.
func (r *refused) wait(says *condition) time.Duration {
	switch {
	case r == nil:
		return 0
	case says.isNews(&r.says):
		return lookAgain - time.Since(r.at)
	default:
		return r.forget()
	}
}

// forget returns for how long a refusal counts where there is nothing to be said any
// more: a cluster that toggles will have something again.
func (r *refused) forget() time.Duration {
	if r == nil {
		return 0
	}
	return retryRefused - time.Since(r.at)
}

// explain tells refusals from what passes.
func explain(what string, err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = &refusal{notAllowed, err}
	case apierrors.IsInvalid(err), apierrors.IsMethodNotSupported(err):
		err = &refusal{notTaken, err}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// tellRefused notes that what a record was to say is refused. It logs the first
// refusal of a kind; as long as one lasts, more of them are no news, unless each
// object is to be corrected by itself.
func (r *Reporter) tellRefused(rec *record, says *condition, kind refusalKind, err error) {
	first := false
	r.update(rec, func(now *record) {
		same := now.refused != nil && now.refused.kind == kind
		r.accepted(now)
		now.refused = &refused{kind, time.Now(), *says}
		r.refusals[kind]++
		first = !same && (r.refusals[kind] == 1 || kind == malformed)
	})
	if first {
		r.log.Error(err, "Can't acknowledge a pause; the gate works all the same", "managedCluster", rec.key,
			"do", kind.remedy(), "retryAfter", retryRefused)
		return
	}
	r.log.V(4).Info("Still can't acknowledge a pause", "managedCluster", rec.key, "why", err)
}
