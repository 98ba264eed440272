package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// problemLog is a log that keeps the last problem with modes.
type problemLog struct {
	mu   sync.Mutex
	last syncgate.ModeProblem
}

func (t *problemLog) Init(logr.RuntimeInfo)          {}
func (t *problemLog) Enabled(int) bool               { return false }
func (t *problemLog) Info(int, string, ...any)       {}
func (t *problemLog) WithValues(...any) logr.LogSink { return t }
func (t *problemLog) WithName(string) logr.LogSink   { return t }

func (t *problemLog) problem() (last syncgate.ModeProblem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

func (t *problemLog) Error(err error, _ string, _ ...any) {
	var mode *syncgate.ModeError
	if errors.As(err, &mode) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.last = mode.Problem
	}
}

// Each row of the table of who deploys, with an agent and a hub that run both.
func TestWhoDeploys(t *testing.T) {
	t.Parallel()
	f := fleettest.New(t, 1, syncgate.Pull)
	t.Run("Table", func(t *testing.T) { testModeTable(t, f.In(t)) })
	t.Run("Flips", func(t *testing.T) { testFlips(t, f.In(t)) })
	t.Run("TakesOver", func(t *testing.T) { testTakeOver(t, f.In(t)) })
}

type modeRow struct {
	mode      syncgate.Mode
	appPusher bool
	spec      syncgate.Mode
	by        []string // who deploys
	problem   syncgate.ModeProblem

	*cluster
	log *problemLog
}

func (r *modeRow) String() string {
	return fmt.Sprintf("%s: agent %s/%t, spec.syncMode %s", r.Name, r.mode, r.appPusher, r.spec)
}

// allow cuts off all deployers but these.
func (r *modeRow) allow(deployers ...string) {
	r.byAgent.setCut(!slices.Contains(deployers, "agent"))
	r.byHub.setCut(!slices.Contains(deployers, "hub"))
}

// modeTable is the rows, by how many deploy. All rows take each step together, so that
// they idle together.
type modeTable struct {
	*fleettest.Fleet
	rows, none, one, two, some []*modeRow
}

func modeRows() []*modeRow {
	const push, pull, dual = syncgate.Push, syncgate.Pull, syncgate.Dual
	both, byAgent, byHub := []string{"agent", "hub"}, []string{"agent"}, []string{"hub"}
	return []*modeRow{
		{mode: pull, appPusher: true, spec: push, by: both, problem: syncgate.BothDeploy},
		{mode: pull, appPusher: true, spec: dual, by: both, problem: syncgate.BothDeploy},
		{mode: push, appPusher: true, spec: pull, problem: syncgate.NobodyDeploys},
		{mode: dual, appPusher: true, spec: pull, problem: syncgate.NobodyDeploys},
		{mode: pull, appPusher: false, spec: push, by: byAgent, problem: syncgate.SpecMisleads},
		{mode: pull, appPusher: false, spec: dual, by: byAgent, problem: syncgate.SpecMisleads},
		{mode: dual, appPusher: false, spec: push, by: byAgent, problem: syncgate.SpecMisleads},
		{mode: dual, appPusher: false, spec: pull, by: byAgent},
		{mode: dual, appPusher: false, spec: dual, by: byAgent},
		{mode: pull, appPusher: true, spec: pull, by: byAgent},
		{mode: pull, appPusher: false, spec: pull, by: byAgent},
		{mode: push, appPusher: true, spec: push, by: byHub},
		{mode: push, appPusher: true, spec: dual, by: byHub},
		{mode: dual, appPusher: true, spec: push, by: byHub},
		{mode: dual, appPusher: true, spec: dual, by: byHub},
	}
}

func testModeTable(t *testing.T, f *fleettest.Fleet) {
	m := &modeTable{Fleet: f, rows: modeRows()}
	var clusters []*cluster
	for i, r := range m.rows {
		r.cluster, r.log = clusterOn(t, f.Children[0], i), &problemLog{}
		clusters = append(clusters, r.cluster)
		r.Register(r.spec)
		r.edit("0")
		switch len(r.by) {
		case 0:
			m.none = append(m.none, r)
		case 1:
			m.one = append(m.one, r)
		case 2:
			m.two = append(m.two, r)
		}
	}
	m.some = slices.Concat(m.one, m.two)
	runHub(f, "hub", "", childAmong(clusters))
	for _, r := range m.rows {
		fleettest.Run(t, func(ctx context.Context) error {
			return r.runAgent(klog.NewContext(ctx, logr.New(r.log)), f, r.mode, r.appPusher)
		})
	}
	for _, r := range m.some {
		r.await("at first", "0")
	}
	m.cutOffWhoDeploys()
	m.cutOffOneOfTwo("2", "hub", "agent")
	m.cutOffOneOfTwo("3", "agent", "hub")
	m.drift()
	m.pause()
	m.end()

	ctx, cancel := context.WithTimeout(t.Context(), fleettest.Soon)
	defer cancel()
	err := m.rows[0].runAgent(ctx, f, syncgate.Push, false)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "sync mode Push") || !strings.Contains(err.Error(), "AppPusher") {
		t.Errorf("Run of an agent with Push and without AppPusher = %v; want an error that names both", err)
	}
}

// While the one that deploys can't, nobody does.
func (m *modeTable) cutOffWhoDeploys() {
	for _, r := range m.one {
		if r.by[0] == "hub" {
			r.allow("agent")
		} else {
			r.allow("hub")
		}
	}
	for _, r := range m.rows {
		r.edit("1")
	}
	idle()
	for _, r := range m.one {
		if got := r.Images()[r.app()]; got != "0" {
			m.Errorf("%s: with the %s cut off the edit was deployed, by %q; want nobody", r, r.by[0], r.writers(0))
		}
		r.allow("agent", "hub")
	}
	for _, r := range m.some {
		r.await("with the deployer back", "1")
	}
}

// Where both deploy, each does it alone.
func (m *modeTable) cutOffOneOfTwo(image, alone, cut string) {
	before := map[*modeRow]int{}
	for _, r := range m.two {
		r.allow(alone)
		before[r] = len(r.written())
	}
	for _, r := range m.some {
		r.edit(image)
	}
	for _, r := range m.some {
		r.await("with the "+cut+" cut off", image)
	}
	for _, r := range m.two {
		if got := r.writers(before[r]); !slices.Equal(got, []string{alone}) {
			m.Errorf("%s: written by %q; want by the %s alone", r, got, alone)
		}
		r.allow("agent", "hub")
	}
}

func (m *modeTable) drift() {
	for _, r := range m.some {
		r.Drift(r.app(), "drift")
	}
	for _, r := range m.some {
		r.await("after a drift", "3")
	}
}

// Both sides acknowledge a pause, whichever of them deploys.
func (m *modeTable) pause() {
	for _, r := range m.one {
		r.Pause()
	}
	before := map[*modeRow]int{}
	for _, r := range m.one {
		r.AwaitCondition("True Paused: held by spec.syncPaused; drained: agent, hub")
		before[r] = len(r.written())
		r.edit("4")
	}
	idle()
	for _, r := range m.one {
		if got := r.written()[before[r]:]; len(got) > 0 {
			m.Errorf("%s: written while paused: %v; want nothing", r, got)
		}
		r.Resume()
	}
	for _, r := range m.one {
		r.await("after the pause", "4")
	}
}

// end deletes all Descriptions, and checks who has written and what was reported.
func (m *modeTable) end() {
	for _, r := range m.rows {
		r.DeleteDescription("web")
	}
	for _, r := range m.some {
		r.await("after the deletion", "")
		r.AwaitNoDescription("web")
	}
	for _, r := range m.rows {
		if got := r.writers(0); !slices.Equal(got, r.by) {
			m.Errorf("%s: written by %q; want by %q", r, got, r.by)
		}
		fleettest.Eventually(m, fleettest.Soon, func() bool { return r.log.problem() == r.problem },
			func() string {
				return fmt.Sprintf("%s: the problem %v is logged; want %v", r, r.log.problem(), r.problem)
			})
		fleettest.Eventually(m, fleettest.Soon, func() bool { return r.problem == 0 || m.hasEvent(r) },
			func() string { return r.String() + ": there is no Event about the mismatch" })
	}
	for _, r := range m.none {
		if got := r.Description("web"); got == nil || got.Object["status"] != nil {
			m.Errorf("%s: the Description is %v; want it left alone", r, got)
		}
	}
}

// hasEvent reports whether the agent has written an Event in the namespace of a row.
func (m *modeTable) hasEvent(r *modeRow) bool {
	return slices.ContainsFunc(m.Parent.Writes(), func(w fleettest.Request) bool {
		return w.Method == http.MethodPost && w.Agent == "agent" && strings.HasSuffix(w.Path, "/namespaces/"+r.Namespace+"/events")
	})
}
