package histories

import (
	"fmt"
	"slices"
	"time"
)

// Violation is a rule that a history breaks.
type Violation struct {
	Rule   string
	Text   string
	Events []Event // that prove it
}

func (v Violation) String() string {
	out := v.Rule + ": " + v.Text
	for _, e := range v.Events {
		out += "\n\t" + e.String()
	}
	return out
}

// rule checks a history, and counts what it has checked: a history in which nothing
// could break the rule proves nothing.
type rule struct {
	name  string
	check func(h *History, violate func(text string, proof ...Event)) (checked int)
}

// rules are what must hold in each history. Each of them is sound: what it reports is
// a violation whatever the order of events that overlap.
var rules = []rule{
	{"no write while acknowledged", checkAcknowledged},
	{"acknowledgements name the pause", checkNames},
	{"no admission at a closed gate", checkAdmission},
	{"callbacks form a chain", checkChanges},
	{"each parked key is requeued", checkRequeued},
	{"the last word wins", checkLastWord},
	{"it ends as it should", checkFinished},
}

// check returns the violations of a history, and adds how much was checked for each rule.
func check(h *History, checked map[string]int) []Violation {
	var violations []Violation
	for _, r := range rules {
		found := 0
		checked[r.name] += r.check(h, func(text string, proof ...Event) {
			if found++; found <= 3 { // one fault has many proofs
				violations = append(violations, Violation{r.name, text, proof})
			}
		})
	}
	return violations
}

// checkAdmission: after a reader has got Paused, nothing is admitted, and no reader gets
// open, before the gate opens. Each opening of a gate that knows a ManagedCluster is counted
// in its Stats, so two equal counts prove that it has not opened in between.
func checkAdmission(h *History, violate func(string, ...Event)) (checked int) {
	operations := h.byProcess(Operation)
	for process, samples := range h.byProcess(Sample) {
		closed := slices.DeleteFunc(slices.Clone(samples), func(s Event) bool { return !s.Closed })
		slices.SortFunc(closed, func(a, b Event) int { return int(min(max(a.End-b.End, -1), 1)) })
		// lastBefore returns the last sample of a closed gate that had ended before e began.
		lastBefore := func(e *Event) *Event {
			i, _ := slices.BinarySearchFunc(closed, e.Start, func(s Event, start time.Duration) int { return int(min(max(s.End-start, -1), 1)) })
			if i == 0 {
				return nil
			}
			return &closed[i-1]
		}
		for i := range samples {
			s := &samples[i]
			before := lastBefore(s)
			if before == nil || before.Resumes != s.Resumes {
				continue
			}
			checked++
			switch {
			case !s.Closed:
				violate("a reader got open at a gate that another one had found closed", *before, *s)
			case s.Admitted != before.Admitted:
				violate(fmt.Sprintf("%d operations were admitted at a closed gate", s.Admitted-before.Admitted), *before, *s)
			}
		}
		for _, o := range operations[process] {
			if before := lastBefore(&o); before != nil {
				checked++
				if before.Resumes == o.Resumes {
					violate("an operation was admitted at a closed gate", *before, o)
				}
			}
		}
	}
	return checked
}

// checkChanges: each callback gets changes in which each Old is the New before it, and
// none after the end of its process. The gate has changed before it gets them: it does not
// get more pauses than the gate has counted.
func checkChanges(h *History, violate func(string, ...Event)) (checked int) {
	ended := h.byProcess(Ended)
	for process, changes := range h.byProcess(Changed) {
		last, pauses := map[string]Event{}, map[string]uint64{}
		for _, c := range changes {
			checked++
			before, ok := last[c.Subscriber]
			switch {
			case ok && before.New != c.Old:
				violate("the Old of a change is not the New of the one before", before, c)
			case ok && c.Old == c.New:
				violate("a change changes nothing", c)
			case ok && c.New.Paused && !c.Old.Paused:
				if pauses[c.Subscriber]++; pauses[c.Subscriber] > c.Pauses {
					violate("a callback got a pause before the gate had closed", before, c)
				}
			}
			if end := ended[process]; len(end) > 0 && c.Start > end[0].End {
				violate("a callback was called after the end of Run", end[0], c)
			}
			if finish := h.of(Finished); len(finish) > 0 && c.Start > finish[0].Start && c.New.Paused {
				continue // StaleAfter may close a gate after the end
			}
			last[c.Subscriber] = c
		}
		if endedBefore(h, process) || len(h.of(Finished)) == 0 {
			continue // only of what runs at the end the truth is known: open
		}
		for _, c := range last {
			if c.New.Paused {
				violate("the last change is not the truth, which is open", c)
			}
		}
	}
	return checked
}

// endedBefore reports whether a process ended before its history was at its end.
func endedBefore(h *History, process string) bool {
	finished := h.of(Finished)
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		return e.Kind == Ended && e.Process == process && (len(finished) == 0 || e.Start < finished[0].Start)
	})
}

// checkRequeued: a parked key is requeued after it was parked, unless its process ends.
// Nothing else is requeued.
func checkRequeued(h *History, violate func(string, ...Event)) (checked int) {
	type id struct{ process, key string }
	requeues, parks := map[id][]Event{}, map[id]int{}
	for _, r := range h.of(Requeued) {
		requeues[id{r.Process, r.Key}] = append(requeues[id{r.Process, r.Key}], r)
	}
	finish := forever
	if finished := h.of(Finished); len(finished) > 0 {
		finish = finished[0].Start
	}
	ended := map[string]bool{}
	for process := range h.byProcess(Parked) {
		ended[process] = endedBefore(h, process)
	}
	for _, p := range h.of(Parked) {
		key := id{p.Process, p.Key}
		parks[key]++
		if ended[p.Process] || p.End > finish {
			continue
		}
		checked++
		after := slices.ContainsFunc(requeues[key], func(r Event) bool { return r.End > p.Start })
		if !after {
			violate("a parked key was not requeued", p)
		}
	}
	for key, all := range requeues {
		if len(all) > parks[key] {
			violate(fmt.Sprintf("a key was requeued %d times and parked %d times", len(all), parks[key]), all...)
		}
	}
	return checked
}

// checkLastWord: the last write of a key is the last edit of it.
func checkLastWord(h *History, violate func(string, ...Event)) (checked int) {
	if len(h.of(Finished)) == 0 {
		return 0
	}
	written := map[string]Event{}
	for _, w := range h.of(Write) {
		written[w.Key] = w
	}
	wanted := map[string]Event{}
	for _, e := range h.of(Edit) {
		wanted[e.Key] = e
	}
	for key, e := range wanted {
		checked++
		switch w, ok := written[key]; {
		case !ok:
			violate("a key was never written", e)
		case w.Value != e.Value:
			violate("the last write of a key is not its last edit", w, e)
		}
	}
	return checked
}

// checkFinished: both gates open, the backlogs are empty, no condition is True.
func checkFinished(h *History, violate func(string, ...Event)) (checked int) {
	for _, e := range h.of(Finished) {
		checked++
		if e.Failure != "" {
			violate(e.Failure, e)
		}
	}
	return checked
}
