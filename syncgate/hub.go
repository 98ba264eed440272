package syncgate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
)

const (
	// syncPoll is how often a starting hub looks whether its handler has seen
	// the first list: client-go 0.32 offers nothing to wait on.
	syncPoll = 5 * time.Millisecond

	// stalePoll is how often a stale hub looks whether the server is heard again.
	stalePoll = 100 * time.Millisecond

	// quiet and quietEach are how long the handler of a stale hub must have been
	// quiet to count as up to date. The latter is for each ManagedCluster: a relist
	// of 100,000 took 1.3 s from its answer to the first event.
	quiet, quietEach = 100 * time.Millisecond, 50 * time.Microsecond

	// catchUp is for how much longer a stale hub waits whose handler is never
	// quiet.
	catchUp = 5 * time.Second

	// stopPoll is how often a hub looks whether its informer has stopped.
	stopPoll = time.Second
)

// Hub has the gates of all clusters of one informer. All methods may be called
// from any goroutine; none blocks but Run and WaitForSync, which end with their
// context.
type Hub struct {
	informer cache.SharedIndexInformer
	opts     Options
	only     types.UID // of an agent's gate; empty: every cluster counts
	what     string    // for people
	news     news
	replays  gateQueue // the gates that have opened with keys parked for them

	synced  chan struct{} // closed, under mu, when every gate shows the first list
	stopped chan struct{} // closed, under mu, when Run has closed the gates

	// gatesMu guards gates. Where mu is needed too, it is taken first.
	gatesMu sync.RWMutex
	gates   map[types.UID]*Gate

	mu         sync.RWMutex // guards the fields below
	logger     klog.Logger
	lines      []func(klog.Logger) // to be logged once mu is free: a log may block
	running    bool
	hasSynced  bool // the first list is known; synced is closed when all gates show it
	stale      bool
	lastEvent  time.Time
	records    map[types.NamespacedName]*record
	reader     reader
	notVisible string // the Go type that has no field for the flag, if any
}

// update calls do with mu held.
func (h *Hub) update(do func()) {
	h.mu.Lock()
	do()
	lines, logger := h.lines, h.logger
	h.lines = nil
	h.mu.Unlock()
	for _, line := range lines {
		line(logger)
	}
}

func closed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// record is a ManagedCluster that counts for a gate. It is guarded by Hub.mu.
type record struct {
	key  types.NamespacedName
	seen observation
	gate *Gate
}

func compareRecords(a, b *record) int {
	if c := strings.Compare(a.key.Namespace, b.key.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.key.Name, b.key.Name)
}

// NewHub returns a hub over any informer of ManagedClusters, of unstructured
// objects or of a Go type that has the fields by their JSON names. A Go type
// without a field for spec.syncPaused, such as Clusternet's own, can't show a
// pause: its gates stay closed, Reason FieldNotVisible. See informer.ForHub for
// one that can.
//
// It does no I/O and starts no goroutine before Run. It returns an error for a
// nil informer, a negative StaleAfter, a StaleAfter with an informer that has no
// LastContact method, and for Options.Informer, which is for New.
func NewHub(inf cache.SharedIndexInformer, opts Options) (*Hub, error) {
	if api.IsNil(inf) {
		return nil, errors.New("syncgate: make a hub: the informer is nil; pass one, for example of informer.ForHub")
	}
	if opts.Informer != (informer.Options{}) {
		return nil, errors.New("syncgate: make a hub: Options.Informer is set, but the informer is made already; pass these options to informer.ForHub")
	}
	h, err := newHub(inf, opts)
	if err != nil {
		return nil, fmt.Errorf("syncgate: make a hub: %w", err)
	}
	return h, nil
}

func newHub(inf cache.SharedIndexInformer, opts Options) (*Hub, error) {
	if opts.StaleAfter < 0 {
		return nil, fmt.Errorf("Options.StaleAfter is negative (%v); 0 keeps the last known state for ever", opts.StaleAfter)
	}
	if _, ok := inf.(contacter); opts.StaleAfter > 0 && !ok {
		return nil, fmt.Errorf("Options.StaleAfter is set, but a %T can't tell when the server was last heard; use one of package informer, or leave it 0", inf)
	}
	h := &Hub{
		informer: inf,
		opts:     opts,
		what:     "all ManagedClusters",
		synced:   make(chan struct{}),
		stopped:  make(chan struct{}),
		gates:    map[types.UID]*Gate{},
		logger:   klog.Background(),
		records:  map[types.NamespacedName]*record{},
		reader:   reader{},
		news:     news{gateQueue: newGateQueue()},
		replays:  newGateQueue(),
	}
	return h, nil
}

// What an informer may tell beyond cache.SharedIndexInformer; *informer.Informer
// tells it all.
type (
	contacter interface{ LastContact() time.Time }
	faulter   interface{ Err() error }
	selecter  interface{ Selection() informer.Selection }
)

// Run follows the informer until ctx ends, then closes all gates for ever, also
// those first asked for later, and returns nil. It runs an *informer.Informer
// unless that runs already; any other informer is for the caller to run, for
// longer than the hub.
//
// It returns ErrAlreadyRun when called again, and an error when the informer has
// stopped, now or later: what follows nothing must not stay open. When Run has
// returned, no callback runs and no goroutine of it is left, but for a request
// that its client does not end with its context (client-go 0.32 sleeps out a
// Retry-After). It waits for a callback that is running.
func (h *Hub) Run(ctx context.Context) error {
	running := false
	h.update(func() {
		running, h.running = h.running, true
		if !running {
			h.logger = klog.FromContext(ctx)
		}
	})
	if running {
		return fmt.Errorf("syncgate: run the gate of %s: %w", h.what, ErrAlreadyRun)
	}
	defer h.end()

	registration, err := h.informer.AddEventHandler(h.handler())
	if err != nil {
		return fmt.Errorf("syncgate: follow the informer of %s: %w; make a new informer for a new run", h.what, err)
	}
	// It can fail for a registration of another informer only.
	defer func() { _ = h.informer.RemoveEventHandler(registration) }()

	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if own, ok := h.informer.(*informer.Informer); ok {
		parts.Add(1)
		go func() {
			defer parts.Done()
			own.RunWithContext(ctx)
		}()
	}
	for _, part := range []func(context.Context){h.tell, h.replay} {
		parts.Add(1)
		go func() {
			defer parts.Done()
			part(ctx)
		}()
	}
	err = h.follow(ctx, registration)
	h.end() // before it is waited for anything
	return err
}

// follow shows the first list once our own handler has processed it, and closes
// the gates while the server is silent for too long. It returns nil when ctx ends,
// and an error when the informer stops before.
func (h *Hub) follow(ctx context.Context, registration cache.ResourceEventHandlerRegistration) error {
	source, _ := h.informer.(contacter)
	var heard time.Time // since when a stale hub's server is heard again
	for start := time.Now(); ctx.Err() == nil; {
		if h.informer.IsStopped() && ctx.Err() == nil { // and not since it ends with us
			return fmt.Errorf("syncgate: follow the informer of %s: it has stopped; make a new one for a new run", h.what)
		}
		now, next := time.Now(), stopPoll
		switch silence := h.silent(source, now); {
		case !h.HasSynced() && registration.HasSynced():
			h.sync(silence >= h.opts.StaleAfter)
			continue
		case !h.HasSynced() && now.Sub(start) < time.Second:
			next = syncPoll
		case !h.HasSynced():
			next = stalePoll
		case silence >= h.opts.StaleAfter:
			h.setStale(true)
			heard, next = time.Time{}, stalePoll
		case h.isStale():
			heard = h.heardSince(heard, now)
			if h.caughtUp(now, heard) {
				h.setStale(false)
				continue
			}
			next = stalePoll
		case h.opts.StaleAfter > 0:
			next = min(next, h.opts.StaleAfter-silence)
		}
		look := time.NewTimer(next)
		select {
		case <-ctx.Done():
			look.Stop()
		case <-look.C:
		}
	}
	return nil
}

// heardSince returns since when the server is heard without a fault: a read that is
// under way is one.
func (h *Hub) heardSince(heard, now time.Time) time.Time {
	if f, ok := h.informer.(faulter); ok && f.Err() != nil {
		return time.Time{}
	}
	if heard.IsZero() {
		return now
	}
	return heard
}

// silent returns for how long the server has not been heard. Without StaleAfter
// nobody asks.
func (h *Hub) silent(source contacter, now time.Time) time.Duration {
	if h.opts.StaleAfter == 0 {
		return -1
	}
	return max(0, now.Sub(source.LastContact()))
}

// caughtUp tells whether the gates may go by what the handler has seen, after the
// server was silent and is heard again without a fault since a given time. The
// contact that ends a silence may come before the state that it is about, so it
// opens nothing by itself: the handler is up to date when no event has come for a
// moment, or, where events never end, when some time has passed.
func (h *Hub) caughtUp(now, heard time.Time) bool {
	if heard.IsZero() {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	settled := quiet + time.Duration(len(h.records))*quietEach
	return now.Sub(heard) >= settled && now.Sub(h.lastEvent) >= settled || now.Sub(heard) >= settled+catchUp
}

// sync shows the first list in all gates at once: shown one by one, the first of
// two ManagedClusters of a cluster would open a gate that the second closes.
func (h *Hub) sync(stale bool) {
	h.update(func() {
		h.hasSynced, h.stale = true, stale
		paused, all := 0, 0
		for g := range h.Gates() {
			h.show(g, 4)
			all++
			if g.Paused() {
				paused++
			}
		}
		close(h.synced)
		h.log(2, "Gates have synced", "of", h.what, "gates", all, "paused", paused)
	})
}

func (h *Hub) isStale() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.stale
}

func (h *Hub) setStale(stale bool) {
	if h.isStale() == stale {
		return
	}
	h.update(func() {
		h.stale = stale
		h.log(2, "The silence of the server changes the gates", "of", h.what, "stale", stale, "staleAfter", h.opts.StaleAfter)
		for g := range h.Gates() {
			h.show(g, 4)
		}
	})
}

// end closes all gates for ever.
func (h *Hub) end() {
	h.update(func() {
		if closed(h.stopped) {
			return
		}
		close(h.stopped)
		for g := range h.Gates() {
			h.show(g, 4)
		}
	})
}

// log logs once mu is free.
func (h *Hub) log(level int, message string, keysAndValues ...any) {
	if h.logger.V(level).Enabled() {
		h.lines = append(h.lines, func(logger klog.Logger) { logger.V(level).Info(message, keysAndValues...) })
	}
}

func (h *Hub) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    h.seen,
		UpdateFunc: func(_, obj any) { h.seen(obj) },
		DeleteFunc: h.deleted,
	}
}

// seen takes in what a ManagedCluster says.
func (h *Hub) seen(obj any) { h.update(func() { h.seenLocked(obj) }) }

func (h *Hub) seenLocked(obj any) {
	if closed(h.stopped) { // a removed handler may be called once more
		return
	}
	h.lastEvent = time.Now()
	key, now, ok := h.reader.read(obj)
	if !ok {
		h.log(4, "Ignored an object that is no ManagedCluster", "type", fmt.Sprintf("%T", obj))
		return
	}
	if now.fault == ReasonFieldNotVisible && h.notVisible == "" {
		h.notVisible = now.problem
	}
	r := h.records[key]
	if r != nil {
		now.missField(&r.seen)
	}
	// The selection is the server's; which cluster an object counts for is what
	// its spec names.
	counts := now.clusterID != "" && (h.only == "" || h.only == now.clusterID)
	if r != nil && (!counts || r.seen.clusterID != now.clusterID) {
		h.drop(r)
		r = nil
	}
	switch {
	case !counts:
		return
	case r == nil:
		r = &record{key: key, seen: now, gate: h.gateLocked(now.clusterID)}
		h.records[key] = r
		r.gate.add(r)
	case r.seen.equal(&now): // a heartbeat
		return
	default:
		r.seen = now
	}
	h.decide(r.gate)
}

// deleted takes in that a ManagedCluster is gone, or has left the selection.
func (h *Hub) deleted(obj any) {
	h.update(func() {
		h.lastEvent = time.Now()
		if r := h.records[keyOf(obj)]; r != nil && !closed(h.stopped) {
			h.drop(r)
		}
	})
}

func (h *Hub) drop(r *record) {
	delete(h.records, r.key)
	r.gate.remove(r)
	h.decide(r.gate)
}

// decide works out what the ManagedClusters of a gate say, and shows it. It is
// called with mu held.
func (h *Hub) decide(g *Gate) {
	if len(g.records) == 0 {
		if g.base.Phase != Unknown && g.base.Phase != Gone {
			g.base.Phase, g.base.Reason = Gone, ReasonDeleted
			g.base.Message = "deleted, or no longer selected; the last decision holds: " + g.base.Message
		}
	} else {
		g.base = merge(g.records)
	}
	h.show(g, 2)
}

// show publishes the state of a gate, unless that can't be trusted, and logs a new
// decision at the given level: what befalls all gates at once is not told a
// hundred thousand times. It is called with mu held.
func (h *Hub) show(g *Gate, level int) {
	s := g.base
	switch {
	case closed(h.stopped):
		s.Phase, s.Reason, s.Paused = Unknown, ReasonStopped, true
		s.Message = "Run has ended, so nothing is known any more; make a new gate"
	case !h.hasSynced:
		s = h.unknown(ReasonNotSynced)
	case h.stale:
		s.Phase, s.Reason, s.Paused = Unknown, ReasonStale, true
		s.Message = fmt.Sprintf("the server has been silent for %v; before that: %s", h.opts.StaleAfter, s.Message)
	}
	s.Since = time.Now()
	if !g.publish(s) || !h.hasSynced || closed(h.stopped) {
		return
	}
	h.news.add(g)
	h.log(level, "Gate changed", "clusterID", g.id, "phase", s.Phase, "paused", s.Paused, "reason", s.Reason, "message", s.Message)
}

// unknown is the state of a cluster of which nothing has been seen.
func (h *Hub) unknown(reason string) State {
	message := "the first list of ManagedClusters has not been processed yet"
	if reason == ReasonNotFound {
		message = "no ManagedCluster names this cluster in its spec.clusterId; register it, or check the ID and the namespace"
	}
	return State{Phase: Unknown, Reason: reason, Message: message, Paused: !h.opts.FailOpen}
}

// view returns the state for the outside.
func (h *Hub) view(s *State) State {
	out := *s
	out.Holds = slices.Clone(s.Holds)
	if s.AppPusher != nil {
		appPusher := *s.AppPusher
		out.AppPusher = &appPusher
	}
	if source, ok := h.informer.(selecter); ok {
		out.Selection = source.Selection()
		if out.Selection == informer.ByLabel {
			out.Message += " (ManagedClusters are selected by label)"
		}
	}
	return out
}

// HasSynced tells whether our own handler has processed the first list and every
// gate shows it.
func (h *Hub) HasSynced() bool { return closed(h.synced) }

// WaitForSync waits until HasSynced. Its error wraps the cause of ctx and says
// what kept the hub from syncing; ErrStopped is in it when Run has ended.
func (h *Hub) WaitForSync(ctx context.Context) error {
	select {
	case <-h.synced:
	case <-h.stopped:
	case <-ctx.Done():
	}
	switch {
	case closed(h.stopped):
		return fmt.Errorf("syncgate: wait for the first list of %s: %w", h.what, ErrStopped)
	case closed(h.synced):
		return nil
	}
	err := context.Cause(ctx)
	if fault := h.fault(); fault != nil {
		return fmt.Errorf("syncgate: wait for the first list of %s: %w (%w)", h.what, err, fault)
	}
	return fmt.Errorf("syncgate: wait for the first list of %s: %w", h.what, err)
}

// Gate returns the gate of a cluster, never nil, and always the same for the same
// ID. The gate of a cluster that has no ManagedCluster is closed, see Options. It
// is kept for as long as the hub, so ask for clusters that you mean to write to.
func (h *Hub) Gate(clusterID types.UID) *Gate {
	h.gatesMu.RLock()
	g := h.gates[clusterID]
	h.gatesMu.RUnlock()
	if g != nil {
		return g
	}
	h.update(func() { g = h.gateLocked(clusterID) })
	return g
}

func (h *Hub) gateLocked(clusterID types.UID) *Gate {
	h.gatesMu.RLock()
	g := h.gates[clusterID]
	h.gatesMu.RUnlock()
	if g != nil {
		return g
	}
	g = &Gate{id: clusterID, hub: h, base: h.unknown(ReasonNotFound)}
	h.show(g, 4)
	h.gatesMu.Lock()
	defer h.gatesMu.Unlock()
	h.gates[clusterID] = g
	return g
}

// GateOf returns the gate of the cluster that a ManagedCluster stands for, and
// false when there is no such ManagedCluster, or none yet.
func (h *Hub) GateOf(namespace, name string) (*Gate, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	r := h.records[types.NamespacedName{Namespace: namespace, Name: name}]
	if r == nil {
		return nil, false
	}
	return r.gate, true
}

// Gates returns the gates there are, in no order: those of clusters that have or had a
// ManagedCluster, and those asked for by ID. Gates made during the iteration are
// not in it.
func (h *Hub) Gates() iter.Seq[*Gate] {
	h.gatesMu.RLock()
	gates := make([]*Gate, 0, len(h.gates))
	for _, g := range h.gates {
		gates = append(gates, g)
	}
	h.gatesMu.RUnlock()
	return slices.Values(gates)
}

// Informer returns the informer that the hub follows, for example to add a handler
// of your own. Do not change its objects.
func (h *Hub) Informer() cache.SharedIndexInformer { return h.informer }

// OnChange is OnChange of every gate of the hub, also of those to come, but for
// clusters that never had a ManagedCluster.
func (h *Hub) OnChange(fn func(Change)) (stop func()) { return h.subscribe(nil, fn) }

// Name returns the name of the health check that Check is.
func (h *Hub) Name() string { return "syncgate" }

// Check returns an error when the gates can't vouch for their state: Run was not
// called or has ended, the hub has not synced, the server refuses or is stale, or
// the informer can't see the flag. A pause is no error. It does
// not block and ignores its argument; with Name it is a healthz.HealthChecker of
// k8s.io/apiserver.
func (h *Hub) Check(*http.Request) error {
	if err := h.fault(); err != nil {
		return fmt.Errorf("syncgate: check the hub: %w", err)
	}
	return nil
}

func (h *Hub) fault() error {
	var source error
	if f, ok := h.informer.(faulter); ok {
		source = f.Err()
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	switch {
	case !h.running:
		return errors.New("it does not run; call Run")
	case closed(h.stopped):
		return ErrStopped
	case source != nil:
		return source
	case !h.HasSynced():
		return errors.New("the first list has not been processed; is the informer running?")
	case h.stale:
		return fmt.Errorf("the server has been silent for %v", h.opts.StaleAfter)
	case h.notVisible != "":
		return errors.New(h.notVisible)
	}
	return nil
}
