//go:build go1.25

package syncgate_test

import (
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/clusternet/syncgate/syncgate"
)

// What the model test compares after each step.

// check compares the hub with the model. quiet: wait until nothing runs any more.
func (w *world) check(quiet bool) error {
	if err := w.decisions(); err != nil || !quiet {
		return err
	}
	synctest.Wait()
	if err := w.decisions(); err != nil {
		return err
	}
	for _, id := range modelClusters[:2] {
		o := w.operations[id]
		s := o.gate.State()
		if err := errors.Join(o.complete(s), w.callbacks.complete(o.gate, s)); err != nil {
			return fmt.Errorf("cluster %s: %w", id, err)
		}
	}
	if check := w.hub.Check(nil); w.synced && (w.err != nil && !w.plain || w.stopped) && check == nil {
		return errors.New("Check() = nil while the server fails, or after the end")
	}
	return w.backlog.complete(w.operations)
}

// decisions compares the decision on each cluster with the model.
func (w *world) decisions() error {
	silent := w.opts.StaleAfter > 0 && w.synced && time.Since(w.contact) >= w.opts.StaleAfter
	stale := silent
	w.recovering = w.recovering || silent
	for _, id := range modelClusters[:2] {
		o, c := w.operations[id], w.clusters[id]
		s := o.gate.State()
		o.observed(s.Paused)
		w.callbacks.observed(o.gate, s.Paused)
		var err error
		switch {
		case s.Paused != o.gate.Paused():
			err = errors.New("Paused() and State().Paused differ")
		case w.stopped:
			err = is(s, true, syncgate.ReasonStopped)
		case !w.synced:
			err = is(s, !w.opts.FailOpen, syncgate.ReasonNotSynced)
		case silent:
			err = is(s, true, syncgate.ReasonStale)
		case w.recovering && s.Reason == syncgate.ReasonStale && s.Paused:
			stale = true
		case w.recovering && time.Since(w.again) < quietTime:
			err = errors.New("the gate follows the server before the handler has caught up")
		default:
			err = c.observe(s, w.relisting())
		}
		if err != nil {
			return fmt.Errorf("cluster %s: %w", id, err)
		}
	}
	w.recovering = stale
	return nil
}

func is(s syncgate.State, paused bool, reason string) error {
	if s.Paused != paused || s.Reason != reason {
		return fmt.Errorf("the gate is %v (%s, Paused %t); want %s, Paused %t", s.Phase, s.Reason, s.Paused, reason, paused)
	}
	return nil
}

// settled checks what must be so once all is quiet.
func (w *world) settled() error {
	w.recovering = false
	if err := w.decisions(); err != nil || w.stopped || !w.synced {
		return err
	}
	for _, id := range modelClusters[:2] {
		gate, c := w.operations[id].gate, w.clusters[id]
		if err := c.settled(gate.State(), gate.Objects()); err != nil {
			return fmt.Errorf("cluster %s, settled: %w", id, err)
		}
		for _, name := range modelNames {
			found, ok := w.hub.GateOf(ns, name)
			if wanted := c.objects[name] != nil; wanted && (!ok || found != gate) || !wanted && ok && found == gate {
				return fmt.Errorf("GateOf(%s) = %v, %t", name, found, ok)
			}
		}
	}
	if w.hub.Check(nil) != nil {
		return fmt.Errorf("Check() = %w, settled", w.hub.Check(nil))
	}
	return nil
}
