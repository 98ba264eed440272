//go:build go1.25

package report_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that a pause is acknowledged for all parties: each reports for itself,
// and SyncPaused is True only when all of them have drained.

// parties is an API server and the processes that write to a cluster.
type parties struct {
	*fixture  // what the checks need: the server, and the Events of all parties
	processes map[string]*process
}

// process is a party that runs: gates and a reporter.
type process struct {
	*fixture
	stop, stopReporter func()
}

// withParties calls test with these parties running, in a bubble of synctest.
func withParties(t *testing.T, names []string, objs []*unstructured.Unstructured, test func(t *testing.T, p *parties)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &parties{
			fixture:   &fixture{T: t, server: tu.NewAPIServer(objs...), logger: klog.Background()},
			processes: map[string]*process{},
		}
		t.Cleanup(p.server.Close)
		for _, name := range names {
			p.start(name, report.Options{Party: name})
		}
		p.pass(time.Second)
		p.requests()
		test(t, p)
		for name := range p.processes {
			p.end(name)
		}
	})
}

// start starts a party: the gate of an agent, or a hub.
func (p *parties) start(name string, opts report.Options) *process {
	p.Helper()
	f := &fixture{T: p.T, server: p.server, logger: p.logger}
	if opts.Recorder == nil {
		opts.Recorder = &p.recorded
	}
	var gates interface {
		report.Gates
		Run(ctx context.Context) error
	}
	if name == report.PartyAgent {
		gate, err := syncgate.New(p.server.Client(), ns, id, syncgate.Options{})
		if err != nil {
			p.Fatal(err)
		}
		f.gate, gates = gate, gate
	} else {
		inf, err := informer.ForHub(p.server.Client(), informer.Options{})
		if err != nil {
			p.Fatal(err)
		}
		hub, err := syncgate.NewHub(inf, syncgate.Options{})
		if err != nil {
			p.Fatal(err)
		}
		f.gate, gates = hub.Gate(id), hub
	}
	reporter, err := report.New(p.server.Client(), gates, opts)
	if err != nil {
		p.Fatal(err)
	}
	stopGates := start(context.Background(), p.T, gates.Run)
	stopReporter := start(context.Background(), p.T, reporter.Run)
	process := &process{f, func() { stopReporter(); stopGates() }, stopReporter}
	p.processes[name] = process
	return process
}

func (p *parties) end(name string) {
	p.Helper()
	p.processes[name].stop()
	delete(p.processes, name)
}

// reported returns what a party has reported of the child, as "status reason generation".
func (p *parties) reported(party string) string {
	for _, c := range conditions(p.server.Get(ns, "child")) {
		if c := c.(condition); c["type"] == report.PartyConditionPrefix+party {
			return fmt.Sprintf("%v %v %v", c["status"], c["reason"], c["observedGeneration"])
		}
	}
	return ""
}

func (p *parties) wantReported(party, want string) {
	p.Helper()
	if got := p.reported(party); got != want {
		p.Errorf("%s has reported %q; want %q", party, got, want)
	}
}

func (p *parties) wantAcknowledged(want bool) {
	p.Helper()
	if got := report.Acknowledged(p.server.Get(ns, "child")); got != want {
		p.Errorf("Acknowledged = %v; want %v: %v", got, want, p.condition("child"))
	}
}

var both = []string{report.PartyAgent, report.PartyHub}

const (
	drainedBoth2 = "True Paused 2: held by spec.syncPaused; drained: agent, hub"
	waiting2     = "2: held by spec.syncPaused; waiting for the parties: "
)

// Each party needs one read and one write, and there is no conflict.
func TestPartiesPauseAndResume(t *testing.T) {
	withParties(t, both, one(), func(t *testing.T, p *parties) {
		p.pass(time.Hour)
		p.wantRequests("for a cluster that was never paused")

		p.change("child", tu.Paused(true))
		p.wants("child", drainedBoth2)
		p.wantReported("agent", "True Drained 2")
		p.wantReported("hub", "True Drained 2")
		p.wantAcknowledged(true)
		p.wantRequests("for the pause", get, put, get, put)
		p.pass(time.Hour)
		p.wantRequests("afterwards")

		p.change("child", tu.Unpaused())
		p.pass(time.Second)
		p.wants("child", syncing3)
		p.wantReported("agent", "False Syncing 3")
		p.wantReported("hub", "False Syncing 3")
		p.wantAcknowledged(false)
		p.wantEvents("Normal SyncPaused: child", "Normal SyncResumed: child")

		// What was reported of the pause before does not count for the next one.
		end := p.processes["agent"].operate()
		p.change("child", tu.Paused(true))
		p.pass(time.Second)
		p.wants("child", "False Draining 4: held by spec.syncPaused; waiting for the parties: agent has 1 in flight")
		p.wantReported("hub", "True Drained 4")
		end()
		p.wants("child", "True Paused 4: held by spec.syncPaused; drained: agent, hub")
	})
}

func TestTrueWaitsForEachParty(t *testing.T) {
	for _, busy := range both {
		t.Run(busy, func(t *testing.T) {
			withParties(t, both, one(), func(_ *testing.T, p *parties) {
				end, second := p.processes[busy].operate(), p.processes[busy].operate()
				p.change("child", tu.Paused(true))
				p.pass(time.Hour) // the party has reported, so no time runs out
				p.wants("child", "False Draining "+waiting2+busy+" has 2 in flight")
				p.wantAcknowledged(false)
				end()
				p.pass(10 * time.Second)
				p.wants("child", "False Draining "+waiting2+busy+" has 1 in flight")
				second()
				p.wants("child", drainedBoth2)
				p.wantEvents("Normal SyncPaused: child")
			})
		})
	}
}

// A condition that nobody of the parties has written.
func TestNonsenseInTheNameOfAParty(t *testing.T) {
	good := `{"text":"held by spec.syncPaused"}`
	for name, tt := range map[string]struct{ status, reason, message string }{
		"no JSON":              {"True", "Drained", "drained"},
		"another status":       {"False", "Drained", good},
		"another reason":       {"True", "Draining", good},
		"in flight":            {"True", "Drained", `{"text":"","inFlight":1}`},
		"for other holds":      {"True", "Drained", `{"text":"","holds":"0123456789ab"}`},
		"another type of JSON": {"True", "Drained", `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			c := own(tt.status, tt.reason, tt.message, 2)
			c["type"] = report.PartyConditionPrefix + "agent"
			withParties(t, []string{"hub"}, one(tu.Paused(true), withConditions(c)), func(_ *testing.T, p *parties) {
				p.pass(time.Second)
				p.wants("child", "False Draining "+waiting2+"agent has not reported yet")
				p.start("agent", report.Options{Party: "agent"})
				p.pass(2 * time.Second)
				p.wants("child", drainedBoth2)
			})
		})
	}
}

// A party that the others don't know of counts as soon as it reports.
func TestPartyThatOthersDoNotRequire(t *testing.T) {
	withParties(t, both, one(), func(_ *testing.T, p *parties) {
		p.start("batch", report.Options{Party: "batch"})
		p.pass(time.Second)
		end := p.processes["batch"].operate()
		p.change("child", tu.Paused(true))
		p.pass(time.Second)
		p.wants("child", "False Draining "+waiting2+"batch has 1 in flight")
		p.requests()
		p.pass(time.Hour)
		p.wantRequests("while it drains")
		end()
		p.pass(time.Second)
		p.wants("child", "True Paused 2: held by spec.syncPaused; drained: agent, batch, hub")
	})
}

// Somebody drops the conditions again and again. No report is lost, and the parties do not
// fight.
func TestClobberedReportsComeBack(t *testing.T) {
	withParties(t, both, one(), func(_ *testing.T, p *parties) {
		p.change("child", tu.Paused(true))
		for name, clobber := range map[string]tu.Option{
			"all":          withConditions(),
			"one party":    func(object map[string]any) { dropParty(object, "agent") },
			"a wrong True": withConditions(own("True", "Paused", "", 1)),
		} {
			p.change("child", clobber)
			p.pass(5 * time.Second)
			p.wants("child", drainedBoth2)
			p.wantReported("agent", "True Drained 2")
			p.wantReported("hub", "True Drained 2")
			p.requests()
			p.pass(time.Hour)
			p.wantRequests("after " + name + " was dropped")
		}
		p.wantEvents("Normal SyncPaused: child")
	})
}

func dropParty(object map[string]any, party string) {
	var kept []any
	for _, c := range object["status"].(map[string]any)["conditions"].([]any) {
		if c.(condition)["type"] != report.PartyConditionPrefix+party {
			kept = append(kept, c)
		}
	}
	withConditions(kept...)(object)
}

// The hub knows a ManagedCluster of another namespace, which the agent can't read.
func TestPartiesThatDoNotKnowTheSame(t *testing.T) {
	elsewhere := tu.ManagedCluster("elsewhere", "double", id)
	withParties(t, both, append(one(), elsewhere), func(_ *testing.T, p *parties) {
		p.change("child", tu.Paused(true))
		p.pass(time.Second)
		p.wants("child", drainedBoth2)
		p.server.Update(tu.With(p.server.Get("elsewhere", "double"), tu.Paused(true)))
		p.pass(time.Minute)
		p.wants("child", drainedBoth2)
		p.change("child", tu.Unpaused())
		p.pass(time.Minute)
		p.wants("child", "False Syncing 3: not all parties are paused; hub is held by spec.syncPaused, see ManagedCluster elsewhere/double")
		p.requests()
		p.pass(time.Hour)
		p.wantRequests("afterwards")
	})
}

// A hold is released, and set again as it was, while the one party can't write. What it has
// reported of the hold before does not count.
func TestSameHoldAgain(t *testing.T) {
	for _, busy := range both {
		t.Run(busy, func(t *testing.T) {
			withParties(t, both, one(tu.Held("ci", "deploy")), func(t *testing.T, p *parties) {
				p.wantAcknowledged(true)
				process := p.processes[busy]
				process.stopReporter()
				p.change("child", tu.Released("ci"))
				end := process.operate()
				p.pass(time.Second)
				p.change("child", tu.Held("ci", "deploy"))
				p.pass(time.Minute)
				p.wantAcknowledged(false)
				c := p.condition("child")
				if c["reason"] != report.ReasonNotHeard {
					t.Errorf("condition = %v; want NotHeard", c)
				}
				end()
				p.end(busy)
				p.start(busy, report.Options{Party: busy})
				p.pass(2 * time.Second)
				p.wants("child", "True Paused 1: held by ci (deploy); drained: agent, hub")
			})
		})
	}
}
