package syncgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
)

const (
	// syncPoll is how often a starting hub checks whether its handler has got the
	// first list: client-go 0.32 offers nothing to wait for.
	syncPoll = 5 * time.Millisecond

	// settlePoll is how often a hub checks whether the informer has delivered all
	// that it has: settlePolls polls in a row have observed no event. Polls are counted,
	// not time, because a process that is stopped for a while delivers nothing.
	settlePoll  = 50 * time.Millisecond
	settlePolls = 3

	// objectsPerPoll adds a poll for so many ManagedClusters when a stale hub settles:
	// a relist of 100,000 took 1.3 s from its answer to the first event.
	objectsPerPoll = 1000

	// settleLimit is how much longer a hub waits if events never stop arriving.
	settleLimit = 5 * time.Second

	// stopPoll is how often a hub checks whether its informer has stopped.
	stopPoll = time.Second
)

// Run follows the informer until ctx ends. Then it closes all gates for ever, also
// those that are asked for later, and returns nil. It runs an *informer.Informer
// unless that runs already. The caller runs any other informer, and stops it after the
// hub.
//
// Run returns ErrAlreadyRun when called again. It returns an error when the informer
// stops, because a gate that follows nothing must not stay open. It waits for a
// callback that is running. After it has returned, no callback runs and no goroutine
// of it is left. There is one exception: client-go 0.32 waits for a Retry-After even
// after the context has ended, so such a request may remain.
func (h *Hub) Run(ctx context.Context) error {
	running := false
	h.update(func() {
		running, h.running = h.running, true
		if !running {
			h.logger = klog.FromContext(ctx)
		}
	})
	if running {
		return fmt.Errorf("syncgate: run the gates of %s: %w; make a new Gate or Hub", h.scope, ErrAlreadyRun)
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

// follow publishes the first list once the handler has got it, settles the table, and
// closes the gates while the server is silent for too long. It returns nil when ctx
// ends, and an error when the informer stops before.
func (h *Hub) follow(ctx context.Context, registration cache.ResourceEventHandlerRegistration) error {
	p := poller{hub: h, start: time.Now()}
	for ctx.Err() == nil {
		if h.informer.IsStopped() && ctx.Err() == nil { // and not because ctx has ended
			return fmt.Errorf("syncgate: follow the informer of %s: it has stopped; make a new one for a new run", h.scope)
		}
		timer := time.NewTimer(p.poll(registration.HasSynced()))
		select {
		case <-ctx.Done():
		case <-h.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// poller is what follow remembers from one poll to the next.
type poller struct {
	hub   *Hub
	start time.Time

	events        uint64    // at the last poll
	quiet         int       // polls in a row, settlePoll apart, that have observed no event
	countedAt     time.Time // when quiet was last changed
	stuck         bool      // the handler still has the event of the last poll: a logger blocks it
	relists       uint64    // at the last poll
	settlingSince time.Time // zero: nothing is to be settled
	healthySince  time.Time // of the server of a stale hub; zero: it is not healthy
}

// poll does what is due, and returns how long to wait for the next poll.
func (p *poller) poll(listed bool) time.Duration {
	h, now := p.hub, time.Now()
	silence := h.silence(now)
	h.mu.RLock()
	events, objects, settling, stale := h.events, len(h.table.objects), h.settlingLocked(), h.stale
	h.mu.RUnlock()
	relists := relistsOf(h.informer)
	p.stuck = p.events == events && h.handled.Load() != events
	if now.Sub(p.countedAt) >= settlePoll { // the hub may have been woken
		p.quiet++
		p.countedAt = now
	}
	if p.relists != relists {
		p.relists, p.settlingSince = relists, time.Time{} // what counts is the newest relist
	}
	if p.events != events {
		p.events, p.quiet, p.countedAt = events, 0, now
	}
	next, polls := stopPoll, settlePolls+objects/objectsPerPoll
	switch {
	case h.HasSynced():
	case listed && (relists <= 1 || p.isDue(now, &p.settlingSince, true, polls)):
		// After a second relist the handler may have got a part of it with the store.
		h.sync(silence >= h.opts.StaleAfter, relists)
		return 0
	case !listed && now.Sub(p.start) < time.Second:
		return syncPoll
	default:
		return settlePoll
	}
	if p.isDue(now, &p.settlingSince, settling && h.isFollowing(), polls) {
		h.settle(relists)
	} else if settling {
		next = settlePoll
	}
	switch {
	case silence >= h.opts.StaleAfter:
		h.setStale(true)
		p.healthySince = time.Time{}
		return min(next, settlePoll)
	case stale:
		// The contact that ends a silence may come before the state that it brings, so
		// it opens nothing by itself.
		if p.isDue(now, &p.healthySince, h.isFollowing(), polls) {
			h.setStale(false)
			return 0
		}
		return min(next, settlePoll)
	case h.opts.StaleAfter > 0:
		next = min(next, h.opts.StaleAfter-silence)
	}
	return next
}

// isDue reports whether what has been going on since a given time may be settled: so
// many polls have been quiet since, or it has gone on for too long. It keeps since,
// which is zero while nothing is going on.
func (p *poller) isDue(now time.Time, since *time.Time, goingOn bool, polls int) bool {
	switch {
	case !goingOn:
		*since = time.Time{}
		return false
	case since.IsZero(), p.stuck: // the limit is for events that arrive
		*since = now
		p.quiet, p.countedAt = 0, now
		return false
	}
	due := p.quiet >= polls || now.Sub(*since) >= time.Duration(polls)*settlePoll+settleLimit
	if due {
		*since = time.Time{}
	}
	return due
}

// silence returns how long the server has been silent. Without StaleAfter it is
// negative, and never too long.
func (h *Hub) silence(now time.Time) time.Duration {
	if h.opts.StaleAfter == 0 {
		return -1
	}
	return max(0, now.Sub(h.informer.(contactReporter).LastContact()))
}

// settlingLocked reports whether the hub waits for the informer to deliver all that
// it has. Hidden ManagedClusters wait until the informer selects by field again.
func (h *Hub) settlingLocked() bool {
	return len(h.table.deferred) > 0 || h.settledRelists != relistsOf(h.informer) ||
		h.table.hidden > 0 && h.canRemoveHidden()
}

func relistsOf(inf cache.SharedIndexInformer) uint64 {
	if reporter, ok := inf.(relistReporter); ok {
		return reporter.Relists()
	}
	return 0
}

func (h *Hub) canRemoveHidden() bool {
	return selectionOf(h.informer) != informer.ByLabel && h.isFollowing()
}

// isFollowing reports whether the informer follows the server. A read that is under way
// is an error here, and a recheck beside a watch that works is none.
func (h *Hub) isFollowing() bool {
	err := informerError(h.informer)
	return err == nil || errors.Is(err, api.ErrRecheck)
}

// settle takes the decisions that were deferred, after so many relists.
func (h *Hub) settle(relists uint64) {
	h.update(func() {
		if relistsOf(h.informer) != relists {
			return // another one has come, and is not delivered yet
		}
		h.settledRelists = relists
		h.table.delivery = relisted
		var changed []types.UID
		if h.table.hidden > 0 && h.canRemoveHidden() {
			changed = h.table.removeHidden()
		}
		h.publishChangedLocked(append(changed, h.table.settle()...))
	})
}

// sync publishes the first list to all gates at once. One by one, the first of two
// ManagedClusters of a cluster would open a gate that the second closes.
func (h *Hub) sync(stale bool, relists uint64) {
	h.update(func() {
		h.hasSynced, h.stale = true, stale
		h.table.settle() // the first list is complete
		h.settledRelists = relists
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

func (h *Hub) setStale(stale bool) {
	h.update(func() {
		if h.stale == stale {
			return
		}
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
