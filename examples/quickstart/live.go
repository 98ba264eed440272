package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/clusternet/syncgate/syncgate"
)

// live prints a line for each change of the gate, and what comes of it, until ctx ends. Writes
// that came to their end are called done.
func live(ctx context.Context, out *printer, gate *syncgate.Gate, d *deployer, done string) {
	changes := make(chan syncgate.Change)
	defer gate.OnChange(func(c syncgate.Change) {
		select {
		case changes <- c:
		case <-ctx.Done():
		}
	})()
	following, follow := newGroup(ctx) // what comes of the last change; its end is no error
	defer func() { _ = follow.stop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-changes:
			if c.Paused() || c.Resumed() {
				_ = follow.stop() // resumed before it was drained, or the other way round
				following, follow = newGroup(ctx)
			}
			out.step("%s; %s", describe(c), tally(d.progress(), c.New.Paused, done))
			switch {
			case c.Paused():
				follow.start(following, func(ctx context.Context) error { return printHeld(ctx, out, gate, d) })
			case c.Resumed():
				follow.start(following, func(ctx context.Context) error { return printCaughtUp(ctx, out, d) })
			}
		}
	}
}

func printHeld(ctx context.Context, out *printer, gate *syncgate.Gate, d *deployer) error {
	if err := gate.WaitDrained(ctx); err != nil {
		return err
	}
	out.step("  drained: nothing is in flight")
	p, err := d.await(ctx, func(p progress) bool { return len(p.waiting) > 0 })
	if err != nil {
		return err
	}
	out.step("  held from now on: %s, and what else changes", strings.Join(p.waiting, ", "))
	return nil
}

func printCaughtUp(ctx context.Context, out *printer, d *deployer) error {
	due := d.progress().due
	if len(due) == 0 {
		return nil
	}
	if _, err := d.awaitWritten(ctx, due); err != nil {
		return err
	}
	out.step("  caught up: %s", strings.Join(due, ", "))
	return nil
}

// describe returns what is known of a cluster now.
func describe(c syncgate.Change) string {
	s := c.New
	switch s.Reason {
	case syncgate.ReasonSyncAllowed:
		return fmt.Sprintf("%s is Open", s.Object.Name)
	case syncgate.ReasonSyncPaused, syncgate.ReasonHeld:
		return fmt.Sprintf("%s is Paused by %s", s.Object.Name, holders(s))
	default:
		return fmt.Sprintf("cluster %s is %s (%s): %s", c.ClusterID, s.Phase, s.Reason, s.Message)
	}
}

// tally returns what the change means for the writes.
func tally(p progress, paused bool, done string) string {
	text := fmt.Sprintf("%s %s", number(p.writes, "write"), done)
	switch {
	case paused && p.writing != "":
		text += fmt.Sprintf(", 1 in flight, %d held", len(p.waiting))
	case paused:
		text += fmt.Sprintf(", %d held", len(p.waiting))
	case len(p.due) > 0:
		text += fmt.Sprintf(", %d to catch up on", len(p.due))
	}
	return text
}
