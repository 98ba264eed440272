package histories

import (
	"slices"
	"testing"
	"time"
)

// ms is a moment, in milliseconds.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// A history by hand: at 10 the object is paused, at 20 that is acknowledged, at 30 it is
// resumed.
func paused(more ...Event) *History {
	return &History{Objects: 1, Events: append([]Event{
		{Kind: Commit, Start: ms(9), End: ms(10), Object: "child", Version: 10, Generation: 2, Field: true},
		{Kind: Observed, Start: ms(11), End: ms(11), Object: "child", Version: 10, Generation: 2, Field: true},
		{Kind: Observed, Start: ms(20), End: ms(20), Object: "child", Version: 20, Generation: 2, Field: true, True: true, Acknowledged: true, Condition: "True"},
		{Kind: Commit, Start: ms(29), End: ms(30), Object: "child", Version: 30, Generation: 3},
		{Kind: Observed, Start: ms(31), End: ms(31), Object: "child", Version: 30, Generation: 3, True: true, Condition: "True"},
	}, more...)}
}

func write(at, value int) Event {
	return Event{Kind: Write, Process: "agent/1", Key: "web", Value: value, Start: ms(at), End: ms(at + 1)}
}

func sample(at int, closed bool, resumes, admitted uint64) Event {
	return Event{Kind: Sample, Process: "agent/1", Start: ms(at), End: ms(at), Closed: closed, Resumes: resumes, Admitted: admitted}
}

func operation(at int, resumes uint64) Event {
	return Event{Kind: Operation, Process: "agent/1", Key: "web", Start: ms(at), End: ms(at + 1), Resumes: resumes}
}

func changed(at int, from, to string) Event {
	return Event{
		Kind: Changed, Process: "agent/1", Subscriber: "gate", Start: ms(at), End: ms(at),
		Old: Decision{from == "closed", from}, New: Decision{to == "closed", to},
	}
}

func counted(e Event, pauses uint64) Event { e.Pauses = pauses; return e }

func parked(at int) Event {
	return Event{Kind: Parked, Process: "agent/1", Key: "web", Start: ms(at), End: ms(at + 1)}
}

func requeued(at int) Event {
	return Event{Kind: Requeued, Process: "agent/1", Key: "web", Start: ms(at), End: ms(at)}
}

func edit(at, value int) Event {
	return Event{Kind: Edit, Key: "web", Value: value, Start: ms(at), End: ms(at + 1)}
}

var (
	ended    = Event{Kind: Ended, Process: "agent/1", Start: ms(50), End: ms(50)}
	ended95  = Event{Kind: Ended, Process: "agent/1", Start: ms(95), End: ms(95)}
	finished = Event{Kind: Finished, Start: ms(90), End: ms(90)}
)

// swap is the CRD's replacement, which takes a millisecond.
func swap(at int, stock bool) Event {
	return Event{Kind: Swap, Start: ms(at), End: ms(at + 1), Stock: stock}
}

// observed returns an observation of the paused object with something changed.
func observed(at int, change func(*Event)) Event {
	e := Event{Kind: Observed, Start: ms(at), End: ms(at), Object: "child", Version: uint64(at), Generation: 2, Field: true}
	change(&e)
	return e
}

func committed(at int, change func(*Event)) Event {
	e := Event{Kind: Commit, Start: ms(at - 1), End: ms(at), Object: "child", Version: uint64(at), Generation: 2}
	change(&e)
	return e
}

// The rules by name.
const (
	ruleAcknowledged = "no write while acknowledged"
	ruleNames        = "acknowledgements name the pause"
	ruleAdmission    = "no admission at a closed gate"
	ruleChain        = "callbacks form a chain"
	ruleRequeued     = "each parked key is requeued"
	ruleLastWord     = "the last word wins"
	ruleEnd          = "it ends as it should"
)

func acknowledge(e *Event) { e.True, e.Acknowledged, e.Condition = true, true, "True" }

func byHold(e *Event) { e.Field, e.Hold = false, true; acknowledge(e) }

func release(e *Event) { e.Generation = 3 }

// checkCase is a history, and the rule that it breaks; empty: none.
type checkCase struct {
	name   string
	h      *History
	broken string
}

var acknowledgedCases = []checkCase{
	{"writes before and after", paused(write(5, 1), write(19, 2), write(30, 3)), ""},
	{"a write that starts while the resume is on its way", paused(write(29, 1)), ""},
	{"a write while acknowledged", paused(write(25, 1)), ruleAcknowledged},
	{"a second write, after one that may be", paused(write(20, 1), write(21, 2)), ruleAcknowledged},
	{"a write after the CRD lost the field", paused(swap(22, true), write(25, 1)), ""},
	{"a write before the CRD loses the field", paused(swap(26, true), write(25, 1)), ruleAcknowledged},
	{"a write while the field may be an old one", paused(swap(12, true), swap(14, false), write(25, 1)), ""},
	{"a write after the field was set under the new CRD", paused(swap(3, true), swap(5, false), write(25, 1)), ruleAcknowledged},
	{"a hold, which no CRD takes away", &History{Objects: 1, Events: []Event{
		committed(10, byHold), observed(20, byHold), swap(22, true), write(25, 1),
	}}, ruleAcknowledged},
	{"a release that another hold outlasts", paused(committed(22, func(e *Event) { e.Field, e.Hold = true, true }),
		committed(30, byHold), write(25, 1)), ruleAcknowledged},
	{"a deletion, after which the last decision holds", &History{Objects: 1, Events: []Event{
		observed(20, acknowledge), committed(22, func(e *Event) { e.Deleted = true }), write(25, 1),
	}}, ruleAcknowledged},
	{"a deletion, after which another one decides", &History{Objects: 2, Events: []Event{
		observed(20, acknowledge), committed(22, func(e *Event) { e.Deleted = true }), write(25, 1),
	}}, ""},
	{"one that was created anew", &History{Objects: 1, Events: []Event{
		observed(20, acknowledge), committed(22, func(e *Event) { e.Deleted = true }), committed(24, release), write(25, 1),
	}}, ""},
	{"a field that vanishes without a client", &History{Objects: 1, Events: []Event{
		observed(20, acknowledge), observed(23, func(e *Event) { e.Field = false }), write(25, 1),
	}}, ""},
}

var namesCases = []checkCase{
	{"a True for another generation", &History{Objects: 1, Events: []Event{
		observed(10, func(*Event) {}), observed(20, func(e *Event) { e.True, e.Condition = true, "True" }),
	}}, ruleNames},
	{"a True that an edit has outdated", paused(), ""},
	{"another True for another generation", paused(observed(25, func(e *Event) { e.True, e.Condition = true, "True again" })), ruleNames},
	{"a True that was written in a gap", &History{Objects: 1, Events: []Event{
		observed(10, func(*Event) {}), observed(20, func(e *Event) { e.True, e.Gap, e.Condition = true, true, "True" }),
	}}, ""},
	{"a True for what is not held", &History{Objects: 1, Events: []Event{
		observed(10, func(*Event) {}), observed(20, func(e *Event) { acknowledge(e); e.Field = false }),
	}}, ruleNames},
}

var admissionCases = []checkCase{
	{"admission at an open gate", paused(sample(1, false, 0, 3), operation(2, 0), sample(4, false, 0, 4)), ""},
	{"admission that overlaps the closing", paused(operation(2, 0), sample(2, true, 0, 3)), ""},
	{"admission after the closing", paused(sample(1, true, 0, 3), operation(2, 0)), ruleAdmission},
	{"admission after an opening", paused(sample(1, true, 0, 3), operation(2, 1)), ""},
	{"admission between two readers", paused(sample(1, true, 0, 3), sample(4, true, 0, 4)), ruleAdmission},
	{"open, closed and open without an opening", paused(sample(1, false, 0, 3), sample(2, true, 0, 3), sample(4, false, 0, 3)), ruleAdmission},
	{"open, closed and open", paused(sample(1, false, 0, 3), sample(2, true, 0, 3), sample(4, false, 1, 3)), ""},
}

var chainCases = []checkCase{
	{"a chain", paused(changed(1, "unknown", "closed"), changed(2, "closed", "open"), finished), ""},
	{"a change that is missing", paused(changed(1, "unknown", "closed"), changed(2, "other", "open")), ruleChain},
	{"a pause that the gate has counted", paused(changed(1, "unknown", "open"), counted(changed(2, "open", "closed"), 1)), ""},
	{"a pause before the gate has closed", paused(changed(1, "unknown", "open"), counted(changed(2, "open", "closed"), 0)), ruleChain},
	{"a change of nothing", paused(changed(1, "unknown", "closed"), changed(2, "closed", "closed")), ruleChain},
	{"a chain that ends in an untruth", paused(changed(1, "unknown", "open"), counted(changed(2, "open", "closed"), 1), finished), ruleChain},
	{"an untruth in a process that ends after all is over", paused(changed(1, "unknown", "open"), counted(changed(2, "open", "closed"), 1), finished, ended95), ruleChain},
	{"a change after the end", paused(changed(1, "unknown", "open"), ended, counted(changed(51, "open", "closed"), 1)), ruleChain},
}

var requeueCases = []checkCase{
	{"parked and requeued", paused(parked(1), requeued(5)), ""},
	{"requeued before Do has returned", paused(Event{Kind: Parked, Process: "agent/1", Key: "web", Start: ms(1), End: ms(9)}, requeued(5)), ""},
	{"parked twice and requeued once", paused(parked(1), parked(2), requeued(5)), ""},
	{"parked and lost", paused(parked(1), requeued(5), parked(6)), ruleRequeued},
	{"parked until the end of the process", paused(parked(1), ended), ""},
	{"parked in a process that ends after all is over", paused(parked(1), finished, ended95), ruleRequeued},
	{"requeued twice", paused(parked(1), requeued(5), requeued(6)), ruleRequeued},
	{"requeued and never parked", paused(requeued(5)), ruleRequeued},
}

var lastWordCases = []checkCase{
	{"the last word", paused(edit(1, 1), write(2, 1), edit(3, 2), write(5, 2), finished), ""},
	{"an earlier word", paused(edit(1, 1), write(2, 1), edit(3, 2), write(5, 2), write(6, 1), finished), ruleLastWord},
	{"a word that is not written", paused(edit(1, 1), finished), ruleLastWord},
}

var finishedCases = []checkCase{
	{"a failure at the end", paused(Event{Kind: Finished, Failure: "the gates do not open"}), ruleEnd},
}

func TestCheck(t *testing.T) {
	for _, test := range slices.Concat(
		acknowledgedCases, namesCases, admissionCases, chainCases, requeueCases, lastWordCases, finishedCases,
	) {
		t.Run(test.name, func(t *testing.T) {
			var broken []string
			for _, v := range check(test.h, map[string]int{}) {
				broken = append(broken, v.Rule)
			}
			want := []string{test.broken}
			if test.broken == "" {
				want = nil
			}
			if broken = slices.Compact(broken); !slices.Equal(broken, want) {
				t.Errorf("broken: %q; want %q", broken, want)
			}
		})
	}
}
