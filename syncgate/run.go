package syncgate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
)

const (
	// syncPoll is how often a starting hub checks whether its handler has got the
	// first list: client-go 0.32 offers nothing to wait for.
	syncPoll = 5 * time.Millisecond

	// stalePoll is how often a stale hub checks whether the server answers again.
	stalePoll = 100 * time.Millisecond

	// quiet and quietEach say how long the handler of a stale hub must have been
	// quiet to have caught up. The latter is for each ManagedCluster: a relist of
	// 100,000 took 1.3 s from its answer to the first event.
	quiet, quietEach = 100 * time.Millisecond, 50 * time.Microsecond

	// catchUp is how much longer a stale hub waits if its handler is never quiet.
	catchUp = 5 * time.Second

	// stopPoll is how often a hub checks whether its informer has stopped.
	stopPoll = time.Second
)

// Run follows the informer until ctx ends. Then it closes all gates for ever, also
// those that are asked for later, and returns nil. It runs an *informer.Informer
// unless that runs already. Any other informer is for the caller to run, for longer
// than the hub.
//
// Run returns ErrAlreadyRun when called again. It returns an error when the informer
// stops, because a gate that follows nothing must not stay open. It waits for a
// callback that is running. After it has returned, no callback runs and no goroutine
// of it is left. The one exception is a request that its client does not end with
// its context (client-go 0.32 sleeps out a Retry-After).
func (h *Hub) Run(ctx context.Context) error {
	running := false
	h.update(func() {
		running, h.running = h.running, true
		if !running {
			h.logger = klog.FromContext(ctx)
		}
	})
	if running {
		return fmt.Errorf("syncgate: run the gate of %s: %w", h.scope, ErrAlreadyRun)
	}
	defer h.stop()

	registration, err := h.informer.AddEventHandler(h.handler())
	if err != nil {
		return fmt.Errorf("syncgate: follow the informer of %s: %w; make a new informer for a new run", h.scope, err)
	}
	// It can fail for a registration of another informer only.
	defer func() { _ = h.informer.RemoveEventHandler(registration) }()

	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := func(run func()) {
		goroutines.Add(1)
		go func() {
			defer goroutines.Done()
			run()
		}()
	}
	if inf, ok := h.informer.(*informer.Informer); ok {
		start(func() { inf.RunWithContext(ctx) })
	}
	start(func() { h.dispatcher.run(ctx, h.synced) })
	start(func() { h.replays.process(ctx, (*Gate).replay) })
	err = h.follow(ctx, registration)
	h.stop() // before the goroutines are waited for
	return err
}

// follow publishes the first list once the handler has got it, and closes the gates
// while the server is silent for too long. It returns nil when ctx ends, and an
// error when the informer stops before.
func (h *Hub) follow(ctx context.Context, registration cache.ResourceEventHandlerRegistration) error {
	var healthySince time.Time // of the server of a stale hub; zero: it is not healthy
	for start := time.Now(); ctx.Err() == nil; {
		if h.informer.IsStopped() && ctx.Err() == nil { // and not because ctx has ended
			return fmt.Errorf("syncgate: follow the informer of %s: it has stopped; make a new one for a new run", h.scope)
		}
		now, next := time.Now(), stopPoll
		switch silence := h.silence(now); {
		case !h.HasSynced() && registration.HasSynced():
			h.sync(silence >= h.opts.StaleAfter)
			continue
		case !h.HasSynced() && now.Sub(start) < time.Second:
			next = syncPoll
		case !h.HasSynced():
			next = stalePoll
		case silence >= h.opts.StaleAfter:
			h.setStale(true)
			healthySince, next = time.Time{}, stalePoll
		case h.isStale():
			if informerError(h.informer) != nil { // a read that is under way is one
				healthySince = time.Time{}
			} else if healthySince.IsZero() {
				healthySince = now
			}
			if h.hasCaughtUp(now, healthySince) {
				h.setStale(false)
				continue
			}
			next = stalePoll
		case h.opts.StaleAfter > 0:
			next = min(next, h.opts.StaleAfter-silence)
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
	return nil
}

// silence returns how long the server has been silent. Without StaleAfter it is
// negative, and never too long.
func (h *Hub) silence(now time.Time) time.Duration {
	if h.opts.StaleAfter == 0 {
		return -1
	}
	return max(0, now.Sub(h.informer.(contactReporter).LastContact()))
}

// hasCaughtUp reports whether the gates may follow the handler after a silence. The
// contact that ends a silence may come before the state that it brings, so it opens
// nothing by itself. The handler has caught up when no event has come for a moment,
// or, where events never end, after a while.
func (h *Hub) hasCaughtUp(now, healthySince time.Time) bool {
	if healthySince.IsZero() {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	settled := quiet + time.Duration(len(h.table.objects))*quietEach
	healthy := now.Sub(healthySince)
	return healthy >= settled && now.Sub(h.lastEvent) >= settled || healthy >= settled+catchUp
}

// sync publishes the first list to all gates at once. One by one, the first of two
// ManagedClusters of a cluster would open a gate that the second closes.
func (h *Hub) sync(stale bool) {
	h.update(func() {
		h.hasSynced, h.stale = true, stale
		h.publishAllLocked()
		close(h.synced)
		gates, paused := h.allGates(), 0
		for _, g := range gates {
			if g.Paused() {
				paused++
			}
		}
		h.logLocked(2, "Gates have synced", "of", h.scope, "gates", len(gates), "paused", paused)
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
		message := "The server answers again; the gates follow it"
		if stale {
			message = "The server is silent; the gates are closed"
		}
		h.logLocked(2, message, "of", h.scope, "staleAfter", h.opts.StaleAfter)
		h.publishAllLocked()
	})
}

// stop closes all gates for ever.
func (h *Hub) stop() {
	h.update(func() {
		if !isClosed(h.stopped) {
			close(h.stopped)
			h.publishAllLocked()
		}
	})
}
