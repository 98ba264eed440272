//go:build go1.25

package report_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

// A party that does not run is not taken for drained. Nothing has to be edited when it
// comes back.
func TestPartyThatIsNotHeard(t *testing.T) {
	for _, away := range both {
		t.Run(away, func(t *testing.T) {
			withParties(t, both, one(), func(_ *testing.T, p *parties) {
				p.end(away)
				p.change("child", tu.Paused(true))
				p.pass(10 * time.Second)
				p.wants("child", "False Draining "+waiting2+away+" has not reported yet")
				p.pass(21 * time.Second)
				notHeard := "Unknown NotHeard " + waiting2 + away + " has not reported for 30s; check that it runs and reaches the API server"
				p.wants("child", notHeard)
				p.wantEvents("Warning SyncPauseNotHeard: child")
				p.requests()
				p.pass(time.Hour)
				p.wantRequests("while it is away")

				for _, name := range both { // the other one restarts, and does not begin anew
					if name != away {
						p.end(name)
						p.start(name, report.Options{Party: name})
					}
				}
				p.pass(5 * time.Second)
				p.wants("child", notHeard)
				p.wantRequests("after the restart of the other")

				p.start(away, report.Options{Party: away})
				p.pass(2 * time.Second)
				p.wants("child", drainedBoth2)
			})
		})
	}
}

// An agent of an older version sends heartbeats and never reports.
func TestAgentThatDoesNotKnowPauses(t *testing.T) {
	withParties(t, []string{"hub"}, one(tu.Heartbeat(time.Unix(0, 0))), func(t *testing.T, p *parties) {
		p.change("child", tu.Paused(true))
		p.pass(31 * time.Second)
		p.wants("child", "Unknown NotHeard "+waiting2+"agent has not reported for 30s; check that it runs and reaches the API server")
		p.requests()
		beat := func(object map[string]any) {
			object["status"].(map[string]any)["lastObservedTime"] = time.Now().UTC().Format(time.RFC3339Nano)
		}
		p.change("child", beat)
		p.pass(10 * time.Second)
		c := p.condition("child")
		if c["status"] != "Unknown" || c["reason"] != report.ReasonNotSupported {
			t.Errorf("condition = %v; want Unknown, NotSupported", c)
		}
		p.wantEvents("Warning SyncPauseNotHeard: child", "Warning SyncPauseNotHeard: child")
		p.requests()
		for range 20 {
			p.change("child", beat)
		}
		p.end("hub")
		p.start("hub", report.Options{Party: "hub"})
		p.pass(time.Hour)
		p.wantRequests("for heartbeats, and after a restart")

		p.start("agent", report.Options{Party: "agent"}) // the upgrade
		p.pass(2 * time.Second)
		p.wants("child", drainedBoth2)

		// It has reported before, so it knows pauses: now it does not run.
		p.end("agent")
		p.change("child", tu.Held("ops", "x"))
		p.change("child", beat)
		p.pass(time.Hour)
		if c := p.condition("child"); c["reason"] != report.ReasonNotHeard {
			t.Errorf("condition = %v; want NotHeard", c)
		}
	})
}

// Holds change no generation.
func TestPartiesReportForExactlyTheseHolds(t *testing.T) {
	withParties(t, both, one(tu.Held("ops", "x")), func(t *testing.T, p *parties) {
		p.wants("child", "True Paused 1: held by ops (x); drained: agent, hub")
		p.wantAcknowledged(true)
		p.end("agent")
		for name, change := range map[string]tu.Option{
			"another holder": tu.Held("backup", "nightly"), "another reason": tu.Held("ops", "y"),
		} {
			object := tu.With(p.server.Get(ns, "child"), change)
			if report.Acknowledged(object) {
				t.Errorf("%s: the True of the earlier holds counts for the new ones", name)
			}
		}
		p.change("child", tu.Held("backup", "nightly"))
		p.pass(time.Second)
		p.wants("child", "False Draining 1: held by backup (nightly), ops (x); waiting for the parties: agent has not reported yet")
		p.start("agent", report.Options{Party: "agent"})
		p.pass(time.Second)
		p.wants("child", "True Paused 1: held by backup (nightly), ops (x); drained: agent, hub")
		p.wantAcknowledged(true)
		p.change("child", tu.Released("ops"))
		p.pass(time.Second)
		p.wants("child", "True Paused 1: held by backup (nightly); drained: agent, hub")
		p.wantAcknowledged(true)
	})
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
		p.wants("child", "False Syncing 3: not every party is paused; another one is held by spec.syncPaused, see ManagedCluster elsewhere/double")
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

func TestPartyNames(t *testing.T) {
	server := tu.NewAPIServer()
	defer server.Close()
	gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := func(syncgate.State) []string { return nil }
	for _, opts := range []report.Options{{Party: "a b"}, {Party: "a/b"}, {Party: "-"}, {Parties: all}} {
		if _, err := report.New(server.Client(), gate, opts); err == nil {
			t.Errorf("New(%+v) = nil; want an error", opts)
		}
	}
	for _, opts := range []report.Options{{Party: "SyncPaused"}, {Party: "My.deployer_1"}, {Party: "x", Parties: all}} {
		if _, err := report.New(server.Client(), gate, opts); err != nil {
			t.Errorf("New(%+v) = %v; want no error", opts, err)
		}
	}
	if report.Acknowledged(&unstructured.Unstructured{}) || report.Acknowledged(nil) {
		t.Error("Acknowledged = true for nothing; want false")
	}
}

func TestAcknowledgedObjects(t *testing.T) {
	drained := own("True", "Paused", "held by spec.syncPaused; nothing is in flight", 2)
	held := func(message string) *unstructured.Unstructured {
		return child(tu.Held("ops", "x"), withConditions(own("True", "Paused", message, 1)))
	}
	got := map[string]bool{}
	for name, object := range map[string]*unstructured.Unstructured{
		"paused":               child(tu.Paused(true), withConditions(drained)),
		"of a generation ago":  child(tu.Paused(true), edited, withConditions(drained)),
		"twice":                child(tu.Paused(true), withConditions(drained, drained)),
		"False":                child(tu.Paused(true), withConditions(own("False", "Draining", "", 2))),
		"no condition":         child(tu.Paused(true)),
		"held, not named":      held("held by ops (x); nothing is in flight"),
		"held, others named":   held("held by ops (x); nothing is in flight (holds 0123456789ab)"),
		"not held, but named":  child(tu.Paused(true), withConditions(own("True", "Paused", "held by spec.syncPaused; nothing is in flight (holds 0123456789ab)", 2))),
		"an owner who cheats":  child(tu.Paused(true), withConditions(own("True", "Paused", "held by a ( (holds 0123456789ab)); nothing is in flight", 2))),
		"status of other type": child(func(object map[string]any) { object["status"] = "x" }),
	} {
		if report.Acknowledged(object) {
			got[name] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"paused": true, "an owner who cheats": true}, got); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
}
