//go:build go1.25

package report_test

import (
	"testing"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
)

// These tests check what becomes of a pause when a party does not report for it.

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
				notHeard := "Unknown NotHeard " + waiting2 + away + " has not reported for 30s; check that it runs, reaches the API server, and may update managedclusters/status"
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

// A new hold gives the parties time again.
func TestTimeToReportBeginsAnew(t *testing.T) {
	withParties(t, []string{"hub"}, one(tu.Held("ops", "x")), func(_ *testing.T, p *parties) {
		p.pass(20 * time.Second)
		p.change("child", tu.Held("backup", "nightly"))
		p.pass(15 * time.Second)
		p.wants("child", "False Draining 1: held by backup (nightly), ops (x); waiting for the parties: agent has not reported yet")
		p.pass(15 * time.Second)
		if c := p.condition("child"); c["reason"] != report.ReasonNotHeard {
			p.Errorf("condition = %v; want NotHeard", c)
		}
	})
}

// An agent of an older version sends heartbeats and never reports.
func TestAgentThatDoesNotKnowPauses(t *testing.T) {
	withParties(t, []string{"hub"}, one(tu.Heartbeat(time.Unix(0, 0))), func(t *testing.T, p *parties) {
		p.change("child", tu.Paused(true))
		p.pass(31 * time.Second)
		p.wants("child", "Unknown NotHeard "+waiting2+"agent has not reported for 30s; check that it runs, reaches the API server, and may update managedclusters/status")
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
