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
// # Other writers
//
// The condition is written into the status as it is on the server at that moment,
// under its resourceVersion, and nothing else is changed. When another writer
// drops or changes it, it is written again: at once, and when that goes on, with
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
// events. Without those on managedclusters it logs what to allow and tries again
// every 5 minutes, and whenever there is something new to say; the gates don't
// depend on it.
package report

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
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

	"github.com/clusternet/syncgate"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
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
)

const (
	workers      = 4
	countAgain   = 10 * time.Second       // what is in flight: each end would be a write
	pace         = 100 * time.Millisecond // between two writes to one object
	slowestPace  = 30 * time.Second       // where others keep undoing them
	retryAtFirst = 5 * time.Millisecond
	retryAtLast  = time.Minute
	retryRefused = 5 * time.Minute
	askAgain     = time.Minute // whether to acknowledge
	eventTimeout = 5 * time.Second
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
	// both acknowledge it. Nil: all gates. It is asked again each time there is
	// something to report, and each minute while the gate is closed; the
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
	known    map[types.UID]*syncgate.Gate
	refusals int // the records that are refused
}

// New returns a reporter of gates that writes with client. It does no I/O and
// starts no goroutine before Run. It returns an error for a nil client and for nil
// gates.
func New(client dynamic.Interface, gates Gates, opts Options) (*Reporter, error) {
	if isNil(client) {
		return nil, errors.New("report: make a reporter: the client is nil; pass a dynamic client of the parent cluster")
	}
	if isNil(gates) {
		return nil, errors.New("report: make a reporter: the gates are nil; pass a *syncgate.Hub or a *syncgate.Gate")
	}
	if opts.Component == "" {
		opts.Component = "syncgate"
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

func isNil(it any) bool {
	v := reflect.ValueOf(it)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
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
		return // a first Change of it brings it back
	}
	if r.opts.Acknowledge != nil && !r.opts.Acknowledge(gate) {
		r.stopWaiting(clusterID)
		if gate.Paused() {
			r.queue.AddAfter(clusterID, askAgain) // not all it may depend on is a Change
		}
		return
	}
	v := look(gate)
	if v.draining() {
		r.awaitDrain(ctx, clusterID, gate)
		r.queue.AddAfter(clusterID, countAgain)
	} else {
		r.stopWaiting(clusterID)
	}
	if !v.known() {
		return
	}
	again := false
	for _, rec := range r.recordsOf(clusterID) {
		err := r.acknowledge(ctx, &v, &rec)
		if ctx.Err() != nil {
			return
		}
		var refused *refusal
		switch {
		case errors.As(err, &refused):
			r.tellRefused(&rec, err)
			r.queue.AddAfter(clusterID, retryRefused)
		case err != nil:
			r.log.V(4).Info("Will try again", "managedCluster", rec.key, "why", err)
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

var errGateBehind = errors.New("the gate has not seen the newest ManagedCluster")

const remedy = "allow get on managedclusters and update on managedclusters/status, and see that the CRD has the status subresource with its conditions"

// refusal is an error that trying again soon does not mend.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// acknowledge makes the condition of a ManagedCluster what the view says.
func (r *Reporter) acknowledge(ctx context.Context, v *view, rec *record) error {
	object, ok := v.objects[rec.key]
	if !ok || object.UID != rec.uid || object.Generation < rec.generation {
		return errGateBehind
	}
	says := v.condition(object)
	if rec.condition == nil && rec.last == nil && says.reason == ReasonSyncing {
		return nil // never paused
	}
	if rec.condition.says(&says) {
		r.update(rec, func(now *record) { now.last = rec.condition })
		return nil
	}
	repair := rec.last.says(&says)
	wait := rec.pace(repair)
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
	case live.GetGeneration() > says.observedGeneration:
		return errGateBehind // a True could be false already
	}
	have := conditionOf(live.Object)
	if have.says(&says) {
		r.update(rec, func(now *record) { now.last, now.condition = have, have })
		return nil
	}
	want := says.timed(rec.last, have)
	if err := want.put(live.Object); err != nil {
		return &refusal{err}
	}
	written, err := resource.UpdateStatus(ctx, live, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return missing(ctx, resource, rec.key.Name)
	case err != nil:
		return explain("update the status", err)
	}
	r.update(rec, func(now *record) {
		now.last, now.condition, now.wrote = want, conditionOf(written.Object), time.Now()
		switch {
		case !repair:
			now.repairs = 0
		case since < 2*wait:
			now.repairs++
		default:
			now.repairs = 1
		}
		if now.refused {
			now.refused = false
			r.refusals--
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
	return &refusal{errors.New("the ManagedCluster is there, but its status is not: the CRD has no status subresource; add it")}
}

// pace returns how long after the last write the next one may come.
func (rec *record) pace(repair bool) time.Duration {
	wait := pace
	for i := 0; repair && i < rec.repairs && wait < slowestPace; i++ {
		wait *= 2
	}
	return min(wait, slowestPace)
}

// explain tells refusals from what passes.
func explain(what string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) {
		err = &refusal{err}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// tellRefused logs the first refusal; until writes succeed again, more of them are
// no news.
func (r *Reporter) tellRefused(rec *record, err error) {
	first := false
	r.update(rec, func(now *record) {
		if !now.refused {
			now.refused = true
			r.refusals++
			first = r.refusals == 1
		}
	})
	if first {
		r.log.Error(err, "Can't acknowledge a pause; the gate works all the same", "managedCluster", rec.key,
			"do", remedy, "retryAfter", retryRefused)
		return
	}
	r.log.V(4).Info("Still can't acknowledge a pause", "managedCluster", rec.key, "why", err)
}
