//go:build go1.25

package report_test

import (
	"context"
	"testing"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
)

// These tests check that parties stay calm when others disturb them, and each other.

// Somebody drops all conditions as fast as they are written.
func TestPartiesDoNotFightForEver(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(every.String(), func(t *testing.T) {
			withParties(t, both, one(), func(t *testing.T, p *parties) {
				p.change("child", tu.Paused(true))
				p.pass(time.Minute)
				p.requests()
				for range int(10 * time.Minute / every) {
					if p.condition("child") != nil {
						p.server.Update(tu.With(p.server.Get(ns, "child"), withConditions()))
					}
					p.pass(every)
				}
				n := len(p.requests(tu.UpdateStatus))
				t.Logf("%d writes in ten minutes", n)
				if n > 160 { // of two parties
					t.Errorf("writes in ten minutes = %d; want them to slow down", n)
				}
				if n := len(p.recorded.all()); n > 3 { // for some time a party is not heard
					t.Errorf("events = %v; want them not repeated", brief(p.recorded.all()))
				}
				p.pass(time.Minute)
				p.wants("child", drainedBoth2)
			})
		})
	}
}

// Each party has many operations that end one by one. The number of one is an event for
// the other.
func TestNumbersAreNotAConversation(t *testing.T) {
	withParties(t, both, one(), func(t *testing.T, p *parties) {
		for i := range 2000 {
			for _, name := range both {
				go func() {
					_ = p.processes[name].gate.Do(context.Background(), func(context.Context) error {
						time.Sleep(time.Duration(i+1) * 20 * time.Millisecond)
						return nil
					})
				}()
			}
		}
		p.server.OnRequest(func(r tu.Request) {
			if r.Verb == tu.Get || r.Verb == tu.UpdateStatus {
				time.Sleep(20 * time.Millisecond)
			}
		})
		p.pass(0)
		p.change("child", tu.Paused(true))
		p.pass(time.Second)
		p.requests()
		p.pass(35 * time.Second)
		if n := len(p.requests(tu.UpdateStatus)); n == 0 || n > 10 {
			t.Errorf("writes in 35 s of draining = %d; want one of each party in ten seconds", n)
		}
		p.pass(10 * time.Second)
		p.wants("child", drainedBoth2)
	})
}

// Each heartbeat replaces the status, and with it what the hub has reported. An agent that
// does not know pauses is named all the same.
func TestDroppedReportsHideNoOldAgent(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Second, 3 * time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			withParties(t, []string{"hub"}, one(tu.Heartbeat(time.Unix(0, 0))), func(t *testing.T, p *parties) {
				p.change("child", tu.Paused(true))
				for range 20 {
					p.server.Update(tu.With(p.server.Get(ns, "child"), tu.Heartbeat(time.Now())))
					p.pass(every)
				}
				if c := p.condition("child"); c["reason"] != report.ReasonNotSupported {
					t.Errorf("condition = %v; want NotSupported", c)
				}
				if n := len(p.recorded.all()); n > 2 {
					t.Errorf("events = %v; want no more than NotHeard and NotSupported", brief(p.recorded.all()))
				}
			})
		})
	}
}

// A program of an older configuration acknowledges alone. It is never True while a party
// that it can read of drains.
func TestAloneNextToParties(t *testing.T) {
	withParties(t, []string{"agent"}, one(), func(t *testing.T, p *parties) {
		end := p.processes["agent"].operate()
		p.change("child", tu.Paused(true))
		p.start("hub", report.Options{})
		p.pass(time.Minute)
		for range 12000 {
			time.Sleep(50 * time.Millisecond)
			if p.condition("child")["status"] == "True" {
				t.Fatalf("condition = %v while the agent drains", p.condition("child"))
			}
		}
		for _, event := range brief(p.recorded.all()) { // a True may be short
			if event == "Normal SyncPaused: child" {
				t.Error("a True was written while the agent drained")
			}
		}
		end()
	})
}

// A party that is gone has left two conditions. They count for nothing, and keep nobody.
func TestDoubledReportOfAPartyThatIsGone(t *testing.T) {
	withParties(t, both, one(), func(_ *testing.T, p *parties) {
		p.change("child", tu.Paused(true))
		p.pass(time.Second)
		left := own("False", "Draining", `{"text":"x","inFlight":1}`, 2)
		left["type"] = report.PartyConditionPrefix + "gone"
		p.change("child", withConditions(append(conditions(p.server.Get(ns, "child")), left, left)...))
		p.pass(time.Minute)
		p.wants("child", drainedBoth2)
		p.wantAcknowledged(true)
		p.requests()
		p.pass(time.Hour)
		p.wantRequests("afterwards")

		// A required party that is doubled reports again.
		p.change("child", func(object map[string]any) {
			list := object["status"].(map[string]any)["conditions"].([]any)
			for _, c := range list {
				if c.(condition)["type"] == report.PartyConditionPrefix+"agent" {
					list = append(list, c)
				}
			}
			withConditions(list...)(object)
		})
		p.pass(time.Minute)
		p.wants("child", drainedBoth2)
		p.wantReported("agent", "True Drained 2")
	})
}

// Whichever party writes the pause or the resume, each has one Event.
func TestEachPauseHasItsEvents(t *testing.T) {
	for name, tt := range map[string][2]tu.Option{
		"field": {tu.Paused(true), tu.Unpaused()}, "the same hold": {tu.Held("ops", "x"), tu.Released("ops")},
	} {
		t.Run(name, func(t *testing.T) {
			withParties(t, both, one(), func(_ *testing.T, p *parties) {
				for n := range 5 {
					p.change("child", tt[0])
					p.pass(time.Second)
					p.change("child", tt[1])
					p.pass(time.Second)
					if got := len(p.recorded.all()); got != 2*(n+1) {
						p.Errorf("events = %v; want a pause and a resume each time", brief(p.recorded.all()))
					}
				}
			})
		})
	}
}

// A True that is over is withdrawn at once, also by the party whose turn comes later.
func TestTrueIsWithdrawnOutOfTurn(t *testing.T) {
	withParties(t, both, one(tu.Paused(true)), func(_ *testing.T, p *parties) {
		p.wantAcknowledged(true)
		p.end("agent")
		p.server.Update(tu.With(p.server.Get(ns, "child"), tu.Unpaused()))
		p.pass(turn / 2)
		p.wants("child", syncing3)
	})
}

const turn = 250 * time.Millisecond // of a party
