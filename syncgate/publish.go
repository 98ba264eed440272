package syncgate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
)

// update calls do with mu held, and logs what do has to log once mu is free.
func (h *Hub) update(do func()) {
	h.mu.Lock()
	do()
	lines, logger := h.logLines, h.logger
	h.logLines = nil
	h.mu.Unlock()
	for _, line := range lines {
		line(logger)
	}
}

// logLocked logs once mu is free.
func (h *Hub) logLocked(level int, message string, keysAndValues ...any) {
	if h.logger.V(level).Enabled() {
		h.logLines = append(h.logLines, func(logger klog.Logger) { logger.V(level).Info(message, keysAndValues...) })
	}
}

func (h *Hub) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    h.observe,
		UpdateFunc: func(_, obj any) { h.observe(obj) },
		DeleteFunc: h.remove,
	}
}

// observe takes in a ManagedCluster.
func (h *Hub) observe(obj any) {
	key, o, ok := observe(obj)
	defer h.handled.Add(1)
	h.update(func() {
		h.events++
		h.table.delivery = h.deliveryLocked()
		if !ok {
			h.logLocked(4, "Ignored an object that is no ManagedCluster", "type", fmt.Sprintf("%T", obj))
			return
		}
		if o.flag == flagNotVisible && h.notVisible == "" {
			h.notVisible = o.flagProblem
		}
		before := h.nearMissesLocked(key)
		h.publishChangedLocked(h.table.observe(key, o))
		for _, name := range h.nearMissesLocked(key) {
			if !slices.Contains(before, name) {
				h.logLocked(0, "An annotation looks like a hold but is none; rename it to "+HoldPrefix+"OWNER", "managedCluster", key, "annotation", name)
			}
		}
	})
}

func (h *Hub) nearMissesLocked(key types.NamespacedName) []string {
	if o := h.table.objects[key]; o != nil {
		return o.nearMisses
	}
	return nil
}

// remove takes in that a ManagedCluster is gone, or has left the selection.
func (h *Hub) remove(obj any) {
	_, missing := obj.(cache.DeletedFinalStateUnknown) // from a relist
	defer h.handled.Add(1)
	h.update(func() {
		h.events++
		h.table.delivery = h.deliveryLocked()
		if missing && h.table.delivery == ordered {
			h.table.delivery = unordered // the relist was settled too early
		}
		if key := keyOf(obj); missing && h.hidesLocked(key) {
			h.publishChangedLocked(h.table.hide(key))
		} else {
			h.publishChangedLocked(h.table.remove(key, !missing))
		}
	})
}

func (h *Hub) publishChangedLocked(changed []types.UID) {
	for _, clusterID := range changed {
		h.publishLocked(h.gateLocked(clusterID), 2)
	}
	if h.settlingLocked() {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// deliveryLocked returns how the informer delivers what the handler gets now.
func (h *Hub) deliveryLocked() delivery {
	reporter, ok := h.informer.(relistReporter)
	if !ok {
		return unordered
	}
	switch reporter.Relists() - h.settledRelists {
	case 0:
		return ordered
	case 1:
		return relisted
	default:
		return unordered
	}
}

// hidesLocked reports whether a ManagedCluster is missing from a relist because the
// informer selects by label now, and its label names another cluster.
func (h *Hub) hidesLocked(key types.NamespacedName) bool {
	o := h.table.objects[key]
	return o != nil && !o.labelled && selectionOf(h.informer) == informer.ByLabel
}

// publishAllLocked publishes what changes for all gates at once. It logs them at
// V(4): there may be a hundred thousand.
func (h *Hub) publishAllLocked() {
	for _, g := range h.allGates() {
		h.publishLocked(g, 4)
	}
}

// publishLocked makes what is known of a cluster the state of its gate. It passes a
// new decision on to the dispatcher and the backlogs, and logs it at the given level.
func (h *Hub) publishLocked(g *Gate, level int) {
	s := h.effectiveLocked(g.clusterID)
	s.addLocals(g.locals)
	isNew := g.admission.publish(s)
	if isClosed(h.stopped) {
		g.dropParked()
		return
	}
	if !isNew {
		return
	}
	h.dispatcher.queue.add(g)
	if !s.Paused {
		h.replays.add(g)
	}
	h.logLocked(level, "Gate changed", "clusterID", g.clusterID, "phase", s.Phase, "paused", s.Paused, "reason", s.Reason, "message", s.Message)
}

// effectiveLocked returns what the table decides on a cluster, unless the table
// can't be trusted now.
func (h *Hub) effectiveLocked(clusterID types.UID) State {
	s, ok := h.table.stateOf(clusterID)
	if !ok {
		s = h.unknown(ReasonNotFound)
	}
	switch {
	case isClosed(h.stopped):
		s.Phase, s.Reason, s.Paused = Unknown, ReasonStopped, true
		s.Message = "Run has ended, so nothing is known any more; make a new gate"
	case !h.hasSynced:
		return h.unknown(ReasonNotSynced)
	case h.stale:
		s.Phase, s.Reason, s.Paused = Unknown, ReasonStale, true
		s.Message = fmt.Sprintf("the server has been silent for %v; before that: %s", h.opts.StaleAfter, s.Message)
	}
	return s
}

// unknown is the state of a cluster of which nothing has been observed.
func (h *Hub) unknown(reason string) State {
	message := "the first list of ManagedClusters has not been processed yet"
	if reason == ReasonNotFound {
		message = "no ManagedCluster names this cluster in its spec.clusterId; register it, or check the ID and the namespace"
	}
	return State{Phase: Unknown, Reason: reason, Message: message, Paused: !h.opts.FailOpen}
}

// withSelection returns a copy of a state that includes the informer's selection.
func (h *Hub) withSelection(s *State) State {
	out := *s
	out.Holds = slices.Clone(s.Holds)
	if s.AppPusher != nil {
		appPusher := *s.AppPusher
		out.AppPusher = &appPusher
	}
	out.Selection = selectionOf(h.informer)
	if out.Selection == informer.ByLabel {
		out.Message += " (ManagedClusters are selected by label)"
	}
	return out
}

func selectionOf(inf cache.SharedIndexInformer) informer.Selection {
	if reporter, ok := inf.(selectionReporter); ok {
		return reporter.Selection()
	}
	return informer.Auto
}
