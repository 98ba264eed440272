package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// tourTime limits the tour, so that a fault ends in an error.
const tourTime = 3 * time.Minute

// tour pauses own, holds it twice, and resumes it.
func tour(ctx context.Context, s *stage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tourTime, fmt.Errorf("the tour took longer than %v", tourTime))
	defer cancel()
	if err := s.pause(ctx); err != nil {
		return err
	}
	if err := s.holdTwice(ctx); err != nil {
		return err
	}
	if err := s.resume(ctx); err != nil {
		return err
	}
	s.out.step("the clusters at the end:")
	s.out.block(table(s.hub))
	s.out.step("to pause by hand: go run -C examples ./quickstart -keep")
	return nil
}

// pause pauses in the midst of a write, to show that it ends by itself.
func (s *stage) pause(ctx context.Context) error {
	p, err := s.deployer.await(ctx, func(p progress) bool { return p.writes >= 4 && p.writing != "" })
	if err != nil {
		return fmt.Errorf("waiting for the deployer: %w", err)
	}
	s.out.step("%s done, that of %q has just begun", number(p.writes, "write"), p.writing)

	sent := time.Now()
	if err := s.operator.setPaused(ctx, own, true); err != nil {
		return err
	}
	answered := time.Now()
	paused, err := await(ctx, s.gate, isPaused)
	if err != nil {
		return err
	}
	s.out.step("patched spec.syncPaused=true on %s: gate closed in %s", own, took(paused.Since.Sub(sent)))
	s.out.step("  measured from sending the request; it closed %s", relative(paused.Since, answered))
	p = s.deployer.progress()
	s.out.step("  in flight: %s", inFlight(s.gate, p))
	hubPaused, err := await(ctx, s.hub.Gate(own.id), isPaused)
	if err != nil {
		return err
	}
	s.out.step("  the hub agrees in %s: %s", took(hubPaused.Since.Sub(sent)), phases(s.hub))
	if err := s.gate.WaitDrained(ctx); err != nil {
		return err
	}
	s.out.step("drained %s after the gate closed: %s done, none in flight",
		took(time.Since(paused.Since)), number(s.deployer.progress().writes, "write"))
	message, err := s.operator.awaitCondition(ctx, own, "True", "Paused")
	if err != nil {
		return err
	}
	s.out.step("  acknowledged %s after the gate closed: condition %s=True", took(time.Since(paused.Since)), report.ConditionType)
	s.out.step("  %q", message)
	return s.prove(ctx, 2*time.Second)
}

// holdTwice lets another owner hold the paused cluster, and release it.
func (s *stage) holdTwice(ctx context.Context) error {
	const reason = "nightly"
	if err := s.operator.hold(ctx, own, reason); err != nil {
		return err
	}
	held, err := await(ctx, s.gate, func(st syncgate.State) bool { return len(st.Holds) == 2 })
	if err != nil {
		return err
	}
	s.out.step("annotated %s%s=%s; held by %s", syncgate.HoldPrefix, backup, reason, holders(held))
	if err := s.prove(ctx, time.Second); err != nil {
		return err
	}
	if err := s.operator.hold(ctx, own, nil); err != nil {
		return err
	}
	if held, err = await(ctx, s.gate, func(st syncgate.State) bool { return len(st.Holds) == 1 }); err != nil {
		return err
	}
	s.out.step("removed that annotation; still %s, held by %s", held.Phase, holders(held))
	return s.prove(ctx, time.Second)
}

// resume resumes, and shows that nothing is lost.
func (s *stage) resume(ctx context.Context) error {
	before := s.deployer.progress()
	sent := time.Now()
	if err := s.operator.setPaused(ctx, own, false); err != nil {
		return err
	}
	if err := s.gate.WaitOpen(ctx); err != nil {
		return err
	}
	opened := s.gate.State().Since
	s.out.step("patched spec.syncPaused=false on %s: gate open in %s", own, took(opened.Sub(sent)))
	if _, err := s.operator.awaitCondition(ctx, own, "False", "Syncing"); err != nil {
		return err
	}
	s.out.step("  condition %s=False (Syncing) %s after the gate opened", report.ConditionType, took(time.Since(opened)))
	after, err := s.deployer.awaitWritten(ctx, before.waiting)
	if err != nil {
		return fmt.Errorf("waiting for the writes that were held: %w", err)
	}
	s.out.step("%s later the held writes are done, each once with its latest version: %s",
		took(time.Since(opened)), strings.Join(before.waiting, ", "))
	s.out.step("  %s in all for %s: a write has the latest version, so none is lost", number(after.writes, "write"), number(after.changes, "change"))
	return nil
}

// prove shows that nothing is written for a while though applications change.
func (s *stage) prove(ctx context.Context, while time.Duration) error {
	before := s.deployer.progress()
	if err := pass(ctx, while); err != nil {
		return err
	}
	after := s.deployer.progress()
	if after.writes != before.writes || after.writing != "" {
		return bug("watching the paused cluster: the deployer wrote to it (%d writes before, %d after)", before.writes, after.writes)
	}
	s.out.step("%s later still %s done; %s; waiting: %s", took(while), number(after.writes, "write"),
		number(after.changes-before.changes, "more change"), strings.Join(after.waiting, ", "))
	return nil
}

// pass lets a while pass.
func pass(ctx context.Context, while time.Duration) error {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("watching the paused cluster: %w", context.Cause(ctx))
	case <-timer.C:
		return nil
	}
}

// await waits until the gate shows a state that is wanted.
func await(ctx context.Context, gate *syncgate.Gate, wanted func(syncgate.State) bool) (syncgate.State, error) {
	found := make(chan syncgate.State, 1)
	stop := gate.OnChange(func(c syncgate.Change) { // it begins with the current state
		if wanted(c.New) {
			select {
			case found <- c.New:
			default: // the first one counts
			}
		}
	})
	defer stop()
	select {
	case state := <-found:
		return state, nil
	case <-ctx.Done():
		return syncgate.State{}, fmt.Errorf("waiting for the gate of %s: %w", gate.State().Object, context.Cause(ctx))
	}
}

func isPaused(s syncgate.State) bool { return s.Phase == syncgate.Paused }

func relative(closed, answered time.Time) string {
	if closed.Before(answered) {
		return took(answered.Sub(closed)) + " before the response was read"
	}
	return took(closed.Sub(answered)) + " after the response was read"
}

func inFlight(gate *syncgate.Gate, p progress) string {
	if gate.InFlight() == 0 || p.writing == "" {
		return "nothing"
	}
	return fmt.Sprintf("the write of %q, begun %s ago; a pause cancels nothing, so it ends by itself", p.writing, took(time.Since(p.begun)))
}

// table shows every cluster as the hub knows it.
func table(hub *syncgate.Hub) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	row := func(cells ...any) { _, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cells...) } // into memory
	row("NAMESPACE", "NAME", "PHASE", "REASON", "HELD BY")
	for _, c := range children {
		gate, ok := hub.GateOf(c.namespace, c.name)
		if !ok {
			continue
		}
		s := gate.State()
		row(s.Object.Namespace, s.Object.Name, s.Phase, s.Reason, holders(s))
	}
	_ = w.Flush()
	return text.String()
}
