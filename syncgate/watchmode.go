package syncgate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// WatchMode repeats CheckMode while an agent runs: once the gate has synced and
// there is a ManagedCluster, and again whenever spec.syncMode changes. It logs the
// first result and each new one, a problem as an error, and passes it to fn, unless
// fn is nil. fn gets nil when all is well, else an error that names the
// ManagedCluster and wraps a *ModeError. report.ModeEvents makes an fn that creates
// Events.
//
// WatchMode blocks. It returns nil when ctx ends, and an error that wraps ErrStopped
// when Run ends first. It may be called before Run and while it runs. It calls fn in
// the caller's goroutine, with no lock held; while fn blocks, changes are merged to
// the latest. Heartbeats cost nothing.
//
// If several ManagedClusters have the ID of the gate, the result is that of the
// first one, by namespace and name, that has a problem. When the last ManagedCluster
// is deleted, the last result stays.
func (g *Gate) WatchMode(ctx context.Context, agentMode Mode, appPusher bool, fn func(error)) error {
	if goOn, err := await(ctx, g, g.hub.synced); !goOn {
		return err
	}
	// OnChange does not serve here: the mode is no part of the decision. The handler
	// reads the objects, because the gate may get an event later than the handler.
	w := newModeWatch(g.clusterID)
	registration, err := g.hub.informer.AddEventHandler(w.handler())
	if err != nil {
		return fmt.Errorf("syncgate: watch the mode of cluster %s: %w; make a new gate for a new run", g.clusterID, err)
	}
	// It can fail for a registration of another informer only.
	defer func() { _ = g.hub.informer.RemoveEventHandler(registration) }()
	// Wait for all ManagedClusters, so that none is reported before a second one with
	// a problem is observed.
	poll := time.NewTicker(syncPoll)
	defer poll.Stop()
	for !registration.HasSynced() {
		if goOn, err := await(ctx, g, poll.C); !goOn {
			return err
		}
	}
	poll.Stop()
	notify := g.notifyMode(fn)
	for {
		if problem, known := w.check(agentMode, appPusher); known {
			notify(problem)
		}
		if goOn, err := await(ctx, g, w.changed); !goOn {
			return err
		}
	}
}

// notifyMode returns a function that logs results of CheckMode and passes them to
// fn, each one that differs from the one before.
func (g *Gate) notifyMode(fn func(error)) func(error) {
	g.hub.mu.RLock()
	log := g.hub.logger
	g.hub.mu.RUnlock()
	var last error
	first := true
	return func(problem error) {
		if !first && errorText(problem) == errorText(last) {
			return
		}
		if problem != nil {
			log.Error(problem, "Sync modes conflict", "clusterID", g.clusterID)
		} else if !first {
			log.Info("Sync modes no longer conflict", "clusterID", g.clusterID)
		}
		first, last = false, problem
		if fn != nil {
			fn(problem)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// await waits for c. It returns false, and what WatchMode returns, when ctx or the
// gate's Run has ended.
func await[T any](ctx context.Context, g *Gate, c <-chan T) (bool, error) {
	select {
	case <-c:
	case <-ctx.Done():
	case <-g.hub.stopped:
	}
	switch {
	case ctx.Err() != nil:
		return false, nil //nolint:nilerr // the caller has asked for this end
	case isClosed(g.hub.stopped):
		return false, fmt.Errorf("syncgate: watch the mode of cluster %s: %w", g.clusterID, ErrStopped)
	}
	return true, nil
}

// modeWatch has the modes of the ManagedClusters of one cluster.
type modeWatch struct {
	clusterID types.UID
	changed   chan struct{} // has an element when modes has changed

	mu    sync.Mutex // guards modes
	modes map[types.NamespacedName]Mode
}

func newModeWatch(clusterID types.UID) *modeWatch {
	return &modeWatch{
		clusterID: clusterID,
		changed:   make(chan struct{}, 1),
		modes:     map[types.NamespacedName]Mode{},
	}
}

func (w *modeWatch) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    w.observe,
		UpdateFunc: func(_, obj any) { w.observe(obj) },
		DeleteFunc: func(obj any) { w.set(keyOf(obj), nil) },
	}
}

func (w *modeWatch) observe(obj any) {
	switch key, o, ok := observe(obj); {
	case !ok:
	case o.clusterID != w.clusterID:
		w.set(key, nil)
	default:
		w.set(key, &o.syncMode)
	}
}

// set notes the mode of a ManagedCluster. Nil: it does not count.
func (w *modeWatch) set(key types.NamespacedName, mode *Mode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.modes[key]
	switch {
	case mode == nil && !known, mode != nil && known && before == *mode:
		return
	case mode == nil:
		delete(w.modes, key)
	default:
		w.modes[key] = *mode
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// check returns false while there is no ManagedCluster.
func (w *modeWatch) check(agentMode Mode, appPusher bool) (error, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(w.modes), compareKeys) {
		if err := CheckMode(agentMode, appPusher, w.modes[key]); err != nil {
			return fmt.Errorf("ManagedCluster %s: %w", key, err), true
		}
	}
	return nil, len(w.modes) > 0
}
