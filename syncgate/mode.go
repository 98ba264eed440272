package syncgate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// AgentDeploys tells whether an agent that was started with agentMode deploys to
// its cluster: with Pull always, with Dual unless the feature gate AppPusher
// leaves that to the hub. An agent with an unknown mode deploys nothing.
func AgentDeploys(agentMode Mode, appPusher bool) bool {
	return agentMode == Pull || agentMode == Dual && !appPusher
}

// HubDeploys tells whether the hub deploys to a cluster whose ManagedCluster has
// specMode as spec.syncMode and appPusher as status.appPusher: unless the mode is
// Pull, an unknown one included. While the agent has not reported appPusher, it
// is not known who deploys, and the hub should do nothing.
func HubDeploys(specMode Mode, appPusher bool) bool {
	return specMode != Pull && appPusher
}

// ModeProblem is what is wrong with the modes of a cluster.
type ModeProblem int

const (
	// BothDeploy is that the hub and the agent write the same applications.
	BothDeploy ModeProblem = iota + 1
	// NobodyDeploys is that neither does.
	NobodyDeploys
	// UnknownMode is that one of them deploys, though a mode is none of Push,
	// Pull and Dual.
	UnknownMode
	// SpecMisleads is that the agent alone deploys, but spec.syncMode tells a
	// reader otherwise.
	SpecMisleads
)

// String returns the name of p.
func (p ModeProblem) String() string {
	switch p {
	case BothDeploy:
		return "BothDeploy"
	case NobodyDeploys:
		return "NobodyDeploys"
	case UnknownMode:
		return "UnknownMode"
	case SpecMisleads:
		return "SpecMisleads"
	default:
		return fmt.Sprintf("ModeProblem(%d)", int(p))
	}
}

// ModeError is modes that do not fit together, as CheckMode was given them.
type ModeError struct {
	Problem   ModeProblem
	AgentMode Mode
	AppPusher bool
	SpecMode  Mode
}

// CheckMode tells whether exactly one of hub and agent deploys to a cluster, and
// whether spec.syncMode says so. The flag of the agent is copied to spec.syncMode
// when a cluster is registered first, and never again, so the two drift apart.
//
// agentMode is the agent's flag --cluster-sync-mode and appPusher its feature gate
// AppPusher, which status.appPusher repeats; specMode is spec.syncMode. The error
// is nil or a *ModeError. An agent calls it when it starts; Gate.WatchMode goes on
// checking.
func CheckMode(agentMode Mode, appPusher bool, specMode Mode) error {
	if problem := modeProblem(agentMode, appPusher, specMode); problem != 0 {
		return &ModeError{Problem: problem, AgentMode: agentMode, AppPusher: appPusher, SpecMode: specMode}
	}
	return nil
}

func modeProblem(agentMode Mode, appPusher bool, specMode Mode) ModeProblem {
	agent, hub := AgentDeploys(agentMode, appPusher), HubDeploys(specMode, appPusher)
	switch {
	case agent && hub:
		return BothDeploy
	case !agent && !hub:
		return NobodyDeploys
	case !slices.Contains(modes, agentMode) || !slices.Contains(modes, specMode):
		return UnknownMode
	case agent && (specMode == Push || agentMode == Pull && specMode == Dual):
		return SpecMisleads
	}
	return 0
}

var modes = []Mode{Push, Pull, Dual}

// Error says in a sentence who deploys, why, and what to change.
func (e *ModeError) Error() string {
	who := "only the agent deploys"
	switch {
	case e.Problem == BothDeploy:
		who = "both the hub and the agent deploy"
	case e.Problem == NobodyDeploys:
		who = "neither the hub nor the agent deploys"
	case HubDeploys(e.SpecMode, e.AppPusher):
		who = "only the hub deploys"
	}
	return fmt.Sprintf("syncgate: check who deploys: %s, since the agent runs with --cluster-sync-mode=%s and AppPusher=%t, and spec.syncMode is %q; %s",
		who, e.AgentMode, e.AppPusher, e.SpecMode, strings.Join(e.remedies(), ", or "))
}

// remedies returns each single change that leaves no problem, and that moves no
// deployments from the one who does them to the other.
func (e *ModeError) remedies() []string {
	var remedies []string
	deployer := [2]bool{AgentDeploys(e.AgentMode, e.AppPusher), HubDeploys(e.SpecMode, e.AppPusher)}
	try := func(remedy string, agentMode Mode, appPusher bool, specMode Mode) {
		moves := deployer[0] != deployer[1] &&
			deployer != [2]bool{AgentDeploys(agentMode, appPusher), HubDeploys(specMode, appPusher)}
		if !moves && modeProblem(agentMode, appPusher, specMode) == 0 {
			remedies = append(remedies, remedy)
		}
	}
	for _, m := range modes {
		try("set spec.syncMode to "+string(m), e.AgentMode, e.AppPusher, m)
	}
	for _, m := range modes {
		try("start the agent with --cluster-sync-mode="+string(m), m, e.AppPusher, e.SpecMode)
	}
	try(fmt.Sprintf("start the agent with --feature-gates=AppPusher=%t", !e.AppPusher), e.AgentMode, !e.AppPusher, e.SpecMode)
	if len(remedies) == 0 {
		remedies = append(remedies, "set both modes to Dual")
	}
	return remedies
}

// WatchMode keeps CheckMode true while an agent runs. It checks the agent's flag
// and feature gate against spec.syncMode once the gate has synced and there is a
// ManagedCluster, and again whenever spec.syncMode changes; heartbeats cost nothing.
// The first result and each that differs from the one before is logged, a problem
// as an error, and passed to fn, unless fn is nil: nil when all is well, else an
// error that names the ManagedCluster and wraps a *ModeError. Of several
// ManagedClusters with this ID the first by namespace and name that has a problem
// is told. When the last ManagedCluster is deleted, its result stays.
// report.ModeEvents makes an fn that tells results as Events.
//
// WatchMode blocks, like Run, and calls fn on the goroutine of its caller, with no
// lock held; while fn blocks, changes are merged to the latest. It may be called
// before Run and while it runs, and returns nil when ctx ends, and an error that
// wraps ErrStopped when Run has ended before. Nothing of it is left then.
func (g *Gate) WatchMode(ctx context.Context, agentMode Mode, appPusher bool, fn func(error)) error {
	if goOn, err := await(ctx, g, g.hub.synced); !goOn {
		return err
	}
	// A handler of our own: OnChange tells decisions, and a mode is no part of
	// one. It reads the object, since the gate may see the event after it.
	w := &modeWatch{clusterID: g.id, reader: reader{}, seen: map[types.NamespacedName]Mode{}, changed: make(chan struct{}, 1)}
	registration, err := g.hub.informer.AddEventHandler(w.handler())
	if err != nil {
		return fmt.Errorf("syncgate: watch the mode of cluster %s: %w; make a new gate for a new run", g.id, err)
	}
	// It can fail for a registration of another informer only.
	defer func() { _ = g.hub.informer.RemoveEventHandler(registration) }()

	// Of two ManagedClusters the first is not told before the second is seen.
	poll := time.NewTicker(syncPoll)
	defer poll.Stop()
	for !registration.HasSynced() {
		if goOn, err := await(ctx, g, poll.C); !goOn {
			return err
		}
	}
	poll.Stop()

	g.hub.mu.RLock()
	log := g.hub.logger
	g.hub.mu.RUnlock()
	var told error
	for first := true; ; {
		result, known := w.check(agentMode, appPusher)
		if known && (first || text(result) != text(told)) {
			if result != nil {
				log.Error(result, "Modes do not fit together", "clusterID", g.id)
			} else if !first {
				log.Info("Modes fit together again", "clusterID", g.id)
			}
			first, told = false, result
			if fn != nil {
				fn(result)
			}
		}
		if goOn, err := await(ctx, g, w.changed); !goOn {
			return err
		}
	}
}

// await waits for c. It returns false, and what WatchMode returns, when ctx or
// the gate's Run has ended.
func await[T any](ctx context.Context, g *Gate, c <-chan T) (bool, error) {
	select {
	case <-c:
	case <-ctx.Done():
	case <-g.hub.stopped:
	}
	if ctx.Err() != nil {
		return false, nil //nolint:nilerr // an end that was asked for
	}
	select {
	case <-g.hub.stopped:
		return false, fmt.Errorf("syncgate: watch the mode of cluster %s: %w", g.id, ErrStopped)
	default:
		return true, nil
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// modeWatch knows the modes of the ManagedClusters of one cluster.
type modeWatch struct {
	clusterID types.UID
	changed   chan struct{} // has an element when seen has changed

	mu     sync.Mutex // guards the fields below
	reader reader
	seen   map[types.NamespacedName]Mode
}

func (w *modeWatch) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    w.see,
		UpdateFunc: func(_, obj any) { w.see(obj) },
		DeleteFunc: func(obj any) { w.set(keyOf(obj), nil) },
	}
}

func (w *modeWatch) see(obj any) {
	w.mu.Lock()
	key, o, ok := w.reader.read(obj)
	w.mu.Unlock()
	switch {
	case !ok:
	case o.clusterID != w.clusterID:
		w.set(key, nil)
	default:
		w.set(key, &o.syncMode)
	}
}

// set notes the mode of a ManagedCluster; nil: it does not count.
func (w *modeWatch) set(key types.NamespacedName, mode *Mode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, was := w.seen[key]
	switch {
	case mode == nil && !was, mode != nil && was && before == *mode:
		return
	case mode == nil:
		delete(w.seen, key)
	default:
		w.seen[key] = *mode
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
	keys := slices.SortedFunc(maps.Keys(w.seen), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, key := range keys {
		if err := CheckMode(agentMode, appPusher, w.seen[key]); err != nil {
			return fmt.Errorf("ManagedCluster %s: %w", key, err), true
		}
	}
	return nil, len(keys) > 0
}
