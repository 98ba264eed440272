package report

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/syncgate"
)

// ConditionType is the type of the condition.
const ConditionType = api.ConditionType

// The reasons of the condition, next to syncgate.ReasonMalformed and
// syncgate.ReasonFieldNotVisible.
const (
	ReasonPaused   = "Paused"   // True: the pause is in effect.
	ReasonDraining = "Draining" // False: operations are still in flight.
	ReasonSyncing  = "Syncing"  // False: nothing holds the cluster.

	ReasonNotHeard     = "NotHeard"     // Unknown: a party has not reported for 30 seconds.
	ReasonNotSupported = "NotSupported" // Unknown: the agent runs, but has never reported.
)

const (
	workers         = 4
	firstRetryDelay = 5 * time.Millisecond
	lastRetryDelay  = time.Minute
	shutdownTimeout = time.Second
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
	// Recorder records the Events. Nil: there are no Events. Its Event method is
	// called by several goroutines and should not block; client-go's does not.
	Recorder record.EventRecorder

	// Party is the name of this program among those that may write to the clusters:
	// PartyAgent, PartyHub, or a name of your own. It is part of the type of a
	// condition. Empty: no other program writes to them, so this one acknowledges alone.
	Party string

	// Parties returns which parties must have drained before a pause is acknowledged. Nil:
	// the agent and the hub, in every sync mode. All programs have to use the same rule:
	// with another party than these two, set it in the agent and in the hub as well. If
	// Party is not among them, this program does not report the gate. A party that has
	// reported counts in any case.
	//
	// It is called each time there may be something to report. While the gate is closed,
	// it is also called every 10 seconds, or every minute while the gate is not reported.
	// It is called by several goroutines and should not block.
	Parties func(syncgate.State) []string
}

// Reporter keeps the condition SyncPaused of ManagedClusters. All methods may be
// called from any goroutine.
type Reporter struct {
	client dynamic.Interface
	gates  Gates
	opts   Options
	table  table

	started    atomic.Bool
	log        klog.Logger // set by Run, as queue is
	queue      workqueue.TypedRateLimitingInterface[types.UID]
	goroutines sync.WaitGroup

	mu         sync.Mutex                       // guards the fields below
	known      map[types.UID]*syncgate.Gate     // kept for good, as a hub keeps its gates
	drainWaits map[types.UID]context.CancelFunc // of gates that drain
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
	switch problems := validation.IsQualifiedName(PartyConditionPrefix + opts.Party); {
	case opts.Party == "" && opts.Parties != nil:
		return nil, errors.New("report: make a reporter: Options.Parties is set, but not Party; name the party that this program is")
	case opts.Parties == nil && opts.Party != "" && opts.Party != PartyAgent && opts.Party != PartyHub:
		return nil, fmt.Errorf("report: make a reporter: Options.Parties is nil, which means the agent and the hub, but the party is %q; set the same Parties in all programs", opts.Party)
	case opts.Party != "" && len(problems) > 0:
		return nil, fmt.Errorf("report: make a reporter: the party %q can't be part of the type of a condition: %s; use another name", opts.Party, strings.Join(problems, "; "))
	}
	return &Reporter{
		client:     client,
		gates:      gates,
		opts:       opts,
		table:      newTable(opts.Party),
		known:      map[types.UID]*syncgate.Gate{},
		drainWaits: map[types.UID]context.CancelFunc{},
	}, nil
}

// Run reports until ctx ends, and then returns nil. It does not run the gates. Run them
// separately, in any order. Its ctx must not end after theirs: when the gates have ended,
// there is nothing left to report.
//
// It returns an error that wraps syncgate.ErrAlreadyRun when it is called again. It
// returns an error when the informer of the gates has stopped, or when the gates end
// before they have synced.
//
// After Run has returned, the reporter writes nothing, and no goroutine of it is left.
// There is one exception: client-go 0.32 waits for a Retry-After even after the context
// has ended, so such a request may remain.
func (r *Reporter) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return fmt.Errorf("report: run the reporter: %w; make a new one", syncgate.ErrAlreadyRun)
	}
	r.log = klog.FromContext(ctx)
	r.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstRetryDelay, lastRetryDelay))
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
		r.goroutines.Add(1)
		go func() {
			defer r.goroutines.Done()
			r.work(ctx)
		}()
	}
	<-ctx.Done()
	r.queue.ShutDown()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.goroutines.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(shutdownTimeout):
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
			r.reconcile(ctx, clusterID)
		}
		r.queue.Done(clusterID)
	}
}
