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
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
)

// Hub has the gates of all clusters that one informer follows. All methods may be
// called from any goroutine. Only Run and WaitForSync block; they end with their
// context.
//
// An event takes one way through it: the informer's handler observes an object, the
// table evaluates its cluster, publish makes that the state of the gate, and the
// dispatcher notifies the callbacks.
type Hub struct {
	informer   cache.SharedIndexInformer
	opts       Options
	scope      string // for people: what the hub follows
	dispatcher dispatcher
	replays    gateQueue // the gates that have opened, for the backlogs

	synced  chan struct{} // closed, under mu, when every gate has the first list
	stopped chan struct{} // closed, under mu, when Run has closed the gates
	wake    chan struct{} // has an element when follow has something to settle

	handled atomic.Uint64 // events that the handler has done with, log lines included

	// gatesMu guards gates. If mu is needed as well, it is locked first.
	gatesMu sync.RWMutex
	gates   map[types.UID]*Gate

	mu        sync.RWMutex // guards the fields below
	logger    klog.Logger
	logLines  []func(klog.Logger) // logged once mu is free, because logging may block
	running   bool
	hasSynced bool // the first list is known; synced is closed when all gates have it
	stale     bool
	events    uint64 // that the handler has got
	// settledRelists is the number of relists that the handler has got whole.
	settledRelists uint64
	table          table
	notVisible     string // what hides the flag from the informer; empty: nothing
}

// NewHub returns a hub that follows any informer of ManagedClusters: of
// unstructured objects, such as that of informer.ForHub, or of a Go type that has
// the fields by their JSON names. A Go type without a field for spec.syncPaused,
// such as Clusternet's own, can't represent a pause. Its gates stay closed, with Reason
// FieldNotVisible.
//
// NewHub does no I/O and starts no goroutine; Run does. It returns an error for a
// nil informer, for a negative StaleAfter, for a StaleAfter with an informer that
// has no LastContact method, and for Options.Informer, which is for New.
//
// The first decision is as fresh as the first list of the informer. That of package
// informer is consistent. Other informers may get theirs from an old watch cache of
// the API server. They do not report relists, and those of client-go before 0.33 reorder
// events. So another ManagedCluster of a cluster may be held and be delivered later than
// the release of the only one that is known. Therefore the hub delays each opening as
// after a relist, see Gate.
//
// If several hubs follow one informer of package informer, run the informer yourself
// before them, see Run.
func NewHub(inf cache.SharedIndexInformer, opts Options) (*Hub, error) {
	if api.IsNil(inf) {
		return nil, errors.New("syncgate: make a hub: the informer is nil; pass one, for example of informer.ForHub")
	}
	if opts.Informer != (informer.Options{}) {
		return nil, errors.New("syncgate: make a hub: Options.Informer is set, but the informer exists already; pass these options to informer.ForHub")
	}
	h, err := newHub(inf, opts, "", "all ManagedClusters")
	if err != nil {
		return nil, fmt.Errorf("syncgate: make a hub: %w", err)
	}
	return h, nil
}

// newHub returns a hub of one cluster, or of all if only is empty.
func newHub(inf cache.SharedIndexInformer, opts Options, only types.UID, scope string) (*Hub, error) {
	if opts.StaleAfter < 0 {
		return nil, fmt.Errorf("Options.StaleAfter is negative (%v); 0 keeps the last known state for ever", opts.StaleAfter)
	}
	if _, ok := inf.(contactReporter); opts.StaleAfter > 0 && !ok {
		return nil, fmt.Errorf("Options.StaleAfter is set, but the informer, a %T, has no method LastContact; use one of package informer, or leave StaleAfter 0", inf)
	}
	h := &Hub{
		informer: inf,
		opts:     opts,
		scope:    scope,
		replays:  newGateQueue(),
		synced:   make(chan struct{}),
		stopped:  make(chan struct{}),
		wake:     make(chan struct{}, 1),
		gates:    map[types.UID]*Gate{},
		logger:   klog.Background(),
		table:    newTable(only),
	}
	h.dispatcher = dispatcher{
		queue:   newGateQueue(),
		export:  h.withSelection,
		gates:   h.allGates,
		initial: func() State { return h.unknown(ReasonNotSynced) },
		byGate:  map[*Gate][]*subscription{},
	}
	return h, nil
}

// What an informer may offer beyond cache.SharedIndexInformer. *informer.Informer
// offers all of it.
type (
	contactReporter   interface{ LastContact() time.Time }
	errorReporter     interface{ Err() error }
	selectionReporter interface{ Selection() informer.Selection }
	relistReporter    interface{ Relists() uint64 }
)

// HasSynced reports whether every gate has the state that the server had at the
// start.
func (h *Hub) HasSynced() bool { return isClosed(h.synced) }

// WaitForSync waits until HasSynced is true. Its error wraps the cause of ctx and
// says what kept the hub from syncing. It wraps ErrStopped when Run has ended.
func (h *Hub) WaitForSync(ctx context.Context) error {
	select {
	case <-h.synced:
	case <-h.stopped:
	case <-ctx.Done():
	}
	switch {
	case isClosed(h.stopped):
		return fmt.Errorf("syncgate: wait for the first list of %s: %w", h.scope, ErrStopped)
	case isClosed(h.synced):
		return nil
	}
	err := context.Cause(ctx)
	if problem := h.health(); problem != nil {
		return fmt.Errorf("syncgate: wait for the first list of %s: %w (%w)", h.scope, err, problem)
	}
	return fmt.Errorf("syncgate: wait for the first list of %s: %w", h.scope, err)
}

// Gate returns the gate of a cluster. It is never nil, and always the same for the
// same ID. The gate of a cluster that has no ManagedCluster is closed, see Options.
// The hub keeps each gate as long as it lives, so ask only for clusters that you
// mean to write to.
func (h *Hub) Gate(clusterID types.UID) *Gate {
	if g := h.existing(clusterID); g != nil {
		return g
	}
	var g *Gate
	h.update(func() { g = h.gateLocked(clusterID) })
	return g
}

// existing returns the gate of a cluster, nil if there is none yet.
func (h *Hub) existing(clusterID types.UID) *Gate {
	h.gatesMu.RLock()
	defer h.gatesMu.RUnlock()
	return h.gates[clusterID]
}

// gateLocked is Gate with mu held.
func (h *Hub) gateLocked(clusterID types.UID) *Gate {
	if g := h.existing(clusterID); g != nil {
		return g
	}
	g := &Gate{clusterID: clusterID, hub: h}
	g.admission.clusterID = clusterID
	h.publishLocked(g, 4)
	h.gatesMu.Lock()
	defer h.gatesMu.Unlock()
	h.gates[clusterID] = g
	return g
}

// GateOf returns the gate of the cluster that a ManagedCluster stands for. It
// returns false when the hub knows no such ManagedCluster.
func (h *Hub) GateOf(namespace, name string) (*Gate, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	o := h.table.objects[types.NamespacedName{Namespace: namespace, Name: name}]
	if o == nil {
		return nil, false
	}
	return h.existing(o.clusterID), true
}

// Gates returns the gates that exist, in no order: those of clusters that have or
// had a ManagedCluster, and those that were asked for by ID. It does not include
// gates that are made during the iteration.
func (h *Hub) Gates() iter.Seq[*Gate] { return slices.Values(h.allGates()) }

func (h *Hub) allGates() []*Gate {
	h.gatesMu.RLock()
	defer h.gatesMu.RUnlock()
	gates := make([]*Gate, 0, len(h.gates))
	for _, g := range h.gates {
		gates = append(gates, g)
	}
	return gates
}

func (h *Hub) objectsOf(clusterID types.UID) []Object {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.table.objectsOf(clusterID)
}

// Informer returns the informer that the hub follows, for example to add another
// handler. Do not change its objects.
func (h *Hub) Informer() cache.SharedIndexInformer { return h.informer }

// OnChange calls fn for each gate of the hub, also for gates that are made later.
// It does not call fn for a cluster that never had a ManagedCluster. Otherwise it
// works as Gate.OnChange does.
func (h *Hub) OnChange(fn func(Change)) (stop func()) { return h.dispatcher.subscribe(nil, fn) }

// Name returns the name of the health check, which is Check.
func (h *Hub) Name() string { return "syncgate" }

// Check returns an error when the state of the gates may be wrong: Run was not
// called or has ended, the hub has not synced, the server refuses or is stale, or
// the informer can't see the flag. A pause is no error. Check does not block and
// ignores its argument. With Name it makes the hub a healthz.HealthChecker of
// k8s.io/apiserver.
func (h *Hub) Check(*http.Request) error {
	if err := h.health(); err != nil {
		return fmt.Errorf("syncgate: check the hub: %w", err)
	}
	return nil
}

func (h *Hub) health() error {
	source := informerError(h.informer)
	h.mu.RLock()
	defer h.mu.RUnlock()
	switch {
	case !h.running:
		return errors.New("Run was not called; call it")
	case isClosed(h.stopped):
		return ErrStopped
	case source != nil:
		return source
	case !h.HasSynced():
		return errors.New("the first list has not been processed; run the informer, if it does not run")
	case h.stale:
		return fmt.Errorf("the server has been silent for %v", h.opts.StaleAfter)
	case h.notVisible != "":
		return errors.New(h.notVisible)
	}
	return nil
}

func informerError(inf cache.SharedIndexInformer) error {
	if reporter, ok := inf.(errorReporter); ok {
		return reporter.Err()
	}
	return nil
}

func isClosed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
