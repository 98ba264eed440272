//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/internal/testutil/random"
	"github.com/clusternet/syncgate/syncgate"
)

// The model test: a hub gets random sequences of events and calls, and after each step it
// is compared with a plain model. RAPID_CHECKS=N makes N sequences, RAPID_SEED=SEED
// replays the sequences of a seed. A sequence that fails is shrunk and printed.

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		opts := syncgate.Options{FailOpen: rapid.Bool().Draw(rt, "FailOpen")}
		plain := random.Index(rt, 4) == 3
		if !plain && rapid.Bool().Draw(rt, "StaleAfter") {
			opts.StaleAfter = 5 * time.Minute
		}
		sequence := steps().Draw(rt, "steps")
		if random.Index(rt, 4) > 0 {
			sequence = append([]step{{Do: "sync"}}, sequence...)
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = newWorld(t, opts, plain).run(sequence) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// world is a hub with its model.
type world struct {
	events
	hub        *syncgate.Hub
	opts       syncgate.Options
	operations map[string]*operations // by cluster
	callbacks  callbacks
	backlog    *backlogModel

	cancel  context.CancelFunc // ends Run
	ended   chan error         // of Run
	stopped bool

	contact    time.Time
	again      time.Time // the contact that ended the last silence
	err        error     // of the informer
	recovering bool      // the server was silent for too long, and the gates may not follow it yet

	waits     context.Context //nolint:containedctx // of all waits, which end together
	endsWaits context.CancelFunc
}

func newWorld(t *testing.T, opts syncgate.Options, plain bool) *world {
	source := &modelSource{Source: tu.NewSource()}
	w := &world{opts: opts, operations: map[string]*operations{}, backlog: newBacklogModel(), ended: make(chan error, 1)}
	w.events = events{
		source: source, plain: plain, clusters: map[string]*modelCluster{},
		delivered: map[string]*unstructured.Unstructured{}, earlier: map[string][]*unstructured.Unstructured{},
		hidden: map[string]*unstructured.Unstructured{},
	}
	w.waits, w.endsWaits = context.WithCancel(context.Background())
	var inf cache.SharedIndexInformer = source
	if plain {
		inf = plainInformer{source.Source}
	}
	var err error
	if w.hub, err = syncgate.NewHub(inf, opts); err != nil {
		t.Fatal(err)
	}
	for _, id := range modelClusters[:2] {
		w.clusters[id] = newModelCluster(opts.FailOpen)
		w.operations[id] = &operations{gate: w.hub.Gate(types.UID(id))}
	}
	w.callbacks.hub = w.hub
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() { w.ended <- w.hub.Run(ctx) }()
	synctest.Wait()
	return w
}

// run does the steps, and returns the first violation.
func (w *world) run(sequence []step) (err error) {
	defer w.clean()
	for i, s := range sequence {
		err := w.do(s)
		if err == nil {
			err = w.check(!s.Burst)
		}
		if err != nil {
			var done []string
			for _, s := range sequence[:i+1] {
				done = append(done, s.String())
			}
			return fmt.Errorf("%w\nafter %s", err, strings.Join(done, "\n  "))
		}
	}
	if err := w.do(step{Do: "settle"}); err != nil {
		return err
	}
	return w.check(true)
}

// clean ends all that runs.
func (w *world) clean() {
	w.endsWaits()
	w.callbacks.block(false)
	_ = w.backlog.end(w.operations, 0)
	for _, o := range w.operations {
		for len(o.running) > 0 {
			_ = o.leave(0, 0)
		}
	}
	w.cancel()
	if !w.stopped {
		<-w.ended //nolint:errcheck // the step that ends Run checks its error
	}
}

// do does one step.
func (w *world) do(s step) error {
	if w.event(s) {
		return nil
	}
	if s.Do != "subscribe" && s.Do != "subscribe hub" {
		synctest.Wait()
		if err := w.backlog.take(); err != nil {
			return err
		}
	}
	id := modelClusters[s.A%2]
	o, key := w.operations[id], modelKey{id, s.C}
	switch s.Do {
	case "subscribe":
		w.callbacks.subscribe(o.gate, s.C)
	case "subscribe hub":
		w.callbacks.subscribe(nil, s.C)
	case "unsubscribe":
		w.callbacks.unsubscribe(s.B)
	case "block callbacks", "free callbacks":
		w.callbacks.block(s.Do == "block callbacks")
	case "operate":
		return o.operate(context.Background())
	case "nest":
		if len(w.backlog.work) == 0 {
			return o.nest(s.B)
		}
	case "leave":
		if len(w.backlog.work) == 0 {
			return o.leave(s.B, s.C)
		}
	case "late", "done", "panic":
		return o.special(s.Do)
	case "await open", "await drained":
		o.wait(w.waits, s.Do == "await open")
	case "park":
		return w.backlog.park(o, key)
	case "begin work":
		w.backlog.begin(o, key)
	case "end work":
		return w.backlog.end(w.operations, s.C)
	case "forget":
		w.backlog.forget(key)
	case "close in replay":
		w.closeInReplay(modelNames[s.A])
	case "race":
		return w.backlog.race(o, func() { w.set(modelNames[s.C%3], s.B%2 == 0) })
	default:
		return w.pass(s)
	}
	return nil
}

// pass does a step that takes time, or that is about the server.
func (w *world) pass(s step) error {
	switch s.Do {
	case "pass":
		time.Sleep([]time.Duration{10 * time.Millisecond, 60 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second}[s.C])
	case "silence":
		time.Sleep(10 * time.Second) // what is due comes before the gates are stale
		synctest.Wait()
		if err := w.decisions(); err != nil {
			return err
		}
		time.Sleep(6 * time.Minute)
	case "contact":
		w.setContact()
	case "fault":
		w.err = nil
		if s.B%2 == 0 {
			w.err = errors.New("503")
		}
		w.source.SetErr(w.err)
	case "sync":
		if w.synced || w.stopped {
			return nil
		}
		w.setContact()
		w.source.Sync()
		time.Sleep(10 * time.Second)
		if !w.hub.HasSynced() {
			return errors.New("the hub has not synced")
		}
		w.synced, w.relist, w.recovering = true, time.Time{}, false
		for _, c := range w.clusters {
			c.sync()
		}
	case "settle", "select by field":
		if s.Do != "settle" {
			w.selectByField(s.B)
		}
		w.err = nil
		w.source.SetErr(nil)
		w.setContact()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s.Do != "settle" && w.synced {
			w.removeHidden()
		}
		return w.settled()
	case "stop":
		return w.stop()
	default:
		return fmt.Errorf("no such step: %v", s)
	}
	synctest.Wait()
	return nil
}

func (w *world) setContact() {
	if time.Since(w.contact) >= w.opts.StaleAfter {
		w.again = time.Now()
	}
	w.contact = time.Now()
	w.source.SetContact(w.contact)
}

// closeInReplay opens a gate. While the first key that this requeues is on its way, it
// closes again.
func (w *world) closeInReplay(name string) {
	requeues, closed := make(chan struct{}, 1), make(chan struct{})
	w.backlog.setHook(func() {
		requeues <- struct{}{}
		<-closed
	})
	w.set(name, false)
	for _, o := range w.operations {
		o.observed(o.gate.Paused())
	}
	synctest.Wait()
	w.backlog.setHook(nil)
	select {
	case <-requeues:
		w.set(name, true)
	default:
	}
	close(closed)
}

func (w *world) stop() error {
	if w.stopped {
		return nil
	}
	w.callbacks.block(false)
	synctest.Wait()
	w.cancel()
	if err := <-w.ended; err != nil {
		return fmt.Errorf("Run = %w; want nil", err)
	}
	w.stopped = true
	w.callbacks.mu.Lock()
	w.callbacks.ended = true
	w.callbacks.mu.Unlock()
	return nil
}
