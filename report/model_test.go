//go:build go1.25

package report_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/internal/testutil/random"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// The model test of acknowledgements: an agent and a hub report one ManagedCluster through
// random sequences of pauses, holds, operations, restarts and faults. Whenever the object
// on the server is acknowledged for what it has at that moment, nothing is in flight.
// RAPID_CHECKS=N makes N sequences, RAPID_SEED=SEED replays the sequences of a seed.
//
// Left out are the exceptions that the documentation of the package names: several
// ManagedClusters, a hold that comes again with the same reason, and a process that ends
// while it operates.

func TestModelOfParties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sequence := reportSteps().Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = newReportWorld(t).run(sequence) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

type reportStep struct {
	Do   string
	A, B int
}

func reportSteps() *rapid.Generator[[]reportStep] {
	kinds := []string{
		"pause", "pause", "release", "release", "hold", "hold", "unhold", "malform", "heartbeat", "clobber",
		"operate", "operate", "operate", "end", "end", "end", "restart", "stop", "start", "start",
		"fail", "heal", "heal", "cut", "expire", "pass", "pass", "pass", "pass",
	}
	return random.Steps(func(t *rapid.T) reportStep {
		return reportStep{kinds[random.Index(t, len(kinds))], random.Index(t, 2), random.Index(t, 8)}
	})
}

// reportWorld is an API server with the two parties.
type reportWorld struct {
	*testing.T
	server  *tu.APIServer
	parties [2]*runningParty // nil: it does not run
	reasons int

	mu  sync.Mutex
	err error // the first violation
}

// runningParty is one process.
type runningParty struct {
	gate *syncgate.Gate
	ops  []chan struct{} // of the operations in flight
	end  func() error
}

func newReportWorld(t *testing.T) *reportWorld {
	w := &reportWorld{T: t, server: tu.NewAPIServer(child())}
	w.start(0)
	w.start(1)
	w.pass(time.Second)
	return w
}

func (w *reportWorld) start(i int) {
	if w.parties[i] != nil {
		return
	}
	var gates interface {
		report.Gates
		Run(ctx context.Context) error
	}
	p := &runningParty{}
	if i == 0 {
		gate, err := syncgate.New(w.server.Client(), ns, id, syncgate.Options{})
		if err != nil {
			w.Fatal(err)
		}
		p.gate, gates = gate, gate
	} else {
		inf, err := informer.ForHub(w.server.Client(), informer.Options{})
		if err != nil {
			w.Fatal(err)
		}
		hub, err := syncgate.NewHub(inf, syncgate.Options{})
		if err != nil {
			w.Fatal(err)
		}
		p.gate, gates = hub.Gate(id), hub
	}
	reporter, err := report.New(w.server.Client(), gates, report.Options{Party: both[i]})
	if err != nil {
		w.Fatal(err)
	}
	ctxGates, endGates := context.WithCancel(context.Background())
	ctxReporter, endReporter := context.WithCancel(context.Background())
	gatesEnded, reporterEnded := make(chan error, 1), make(chan error, 1)
	go func() { gatesEnded <- gates.Run(ctxGates) }()
	go func() { reporterEnded <- reporter.Run(ctxReporter) }()
	p.end = func() error {
		endReporter()
		err := <-reporterEnded
		endGates()
		return errors.Join(err, <-gatesEnded)
	}
	w.parties[i] = p
}

// stop ends a party after its operations.
func (w *reportWorld) stop(i int) error {
	p := w.parties[i]
	if p == nil {
		return nil
	}
	for len(p.ops) > 0 {
		p.leave()
	}
	w.parties[i] = nil
	return p.end()
}

// leave ends an operation.
func (p *runningParty) leave() {
	if p != nil && len(p.ops) > 0 {
		close(p.ops[0])
		p.ops = p.ops[1:]
		synctest.Wait()
	}
}

// operate starts an operation if the gate is open.
func (w *reportWorld) operate(p *runningParty) {
	if p == nil {
		return
	}
	leave, admitted := make(chan struct{}), make(chan bool, 1)
	go func() {
		err := p.gate.Do(context.Background(), func(context.Context) error {
			w.check("as an operation started")
			admitted <- true
			<-leave
			return nil
		})
		if err != nil {
			admitted <- false
		}
	}()
	if <-admitted {
		p.ops = append(p.ops, leave)
	}
}

// check notes a violation: the object is acknowledged, and something is in flight.
func (w *reportWorld) check(when string) {
	obj := w.server.Get(ns, "child")
	if !report.Acknowledged(obj) {
		return
	}
	for i, p := range w.parties {
		if p == nil || p.gate.InFlight() == 0 {
			continue
		}
		w.mu.Lock()
		if w.err == nil {
			w.err = fmt.Errorf("%s the object is acknowledged, and the %s has %d in flight: %v", when, both[i], p.gate.InFlight(), obj.Object["status"])
		}
		w.mu.Unlock()
	}
}

// pass lets time pass in parts, and checks after each.
func (w *reportWorld) pass(d time.Duration) {
	for part := range 20 {
		time.Sleep(d / 20)
		synctest.Wait()
		w.check(fmt.Sprintf("%v later", d*time.Duration(part+1)/20))
	}
}

func (w *reportWorld) change(opts ...tu.Option) {
	w.server.Update(tu.With(w.server.Get(ns, "child"), opts...))
}

func (w *reportWorld) run(sequence []reportStep) (err error) {
	defer func() {
		w.server.Heal()
		err = errors.Join(err, w.stop(0), w.stop(1))
		w.server.Close()
	}()
	for i, s := range sequence {
		err := w.do(s)
		w.check("at once")
		if err = errors.Join(err, w.err); err != nil {
			var done []string
			for _, s := range sequence[:i+1] {
				done = append(done, fmt.Sprint(s))
			}
			return fmt.Errorf("%w\nafter %s", err, strings.Join(done, "\n  "))
		}
	}
	return w.quiet()
}

func (w *reportWorld) do(s reportStep) error {
	p := w.parties[s.A]
	switch s.Do {
	case "pause":
		w.change(tu.Paused(true))
	case "release":
		w.change(tu.Unpaused())
	case "malform":
		if s.B == 0 {
			w.change(tu.Paused("true"))
		}
	case "hold":
		w.reasons++
		w.change(tu.Held([]string{"ci", "ops"}[s.A], fmt.Sprint("reason ", w.reasons)))
	case "unhold":
		w.change(tu.Released([]string{"ci", "ops"}[s.A]))
	case "heartbeat":
		w.change(func(object map[string]any) {
			list := conditions(w.server.Get(ns, "child"))
			tu.Heartbeat(time.Now())(object)
			withConditions(list...)(object)
		})
	case "clobber":
		w.change(withConditions())
	case "operate":
		w.operate(p)
	case "end":
		p.leave()
	case "restart":
		err := w.stop(s.A)
		w.start(s.A)
		return err
	case "stop":
		return w.stop(s.A)
	case "start":
		w.start(s.A)
	case "pass":
		w.pass([]time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 12 * time.Second, 40 * time.Second}[s.B])
	default:
		w.disturb(s)
	}
	return nil
}

// disturb makes the server fail.
func (w *reportWorld) disturb(s reportStep) {
	switch s.Do {
	case "fail":
		w.server.Fail([]tu.Fault{
			tu.Refused, tu.Reset.On(tu.UpdateStatus).Times(3), tu.Status(500).On(tu.UpdateStatus, tu.Get).Times(2), tu.Status(409).On(tu.UpdateStatus).Times(4),
			tu.Status(403), tu.EOF.Times(5), tu.Status(429).On(tu.Watch, tu.List, tu.WatchList), tu.InStream(410).Times(2),
		}[s.B])
	case "heal":
		w.server.Heal()
	case "cut":
		w.server.CutWatches()
	case "expire":
		w.server.SendError(410)
	}
}

// quiet heals everything, and checks the condition once all is quiet.
func (w *reportWorld) quiet() error {
	w.server.Heal()
	w.start(0)
	w.start(1)
	for range 2 {
		w.pass(15 * time.Minute)
		if err := errors.Join(w.err, w.settled()); err != nil {
			return err
		}
		for _, p := range w.parties {
			for len(p.ops) > 0 {
				p.leave()
			}
		}
	}
	return nil
}

// settled checks the condition.
func (w *reportWorld) settled() error {
	obj := w.server.Get(ns, "child")
	var c condition
	for _, element := range conditions(obj) {
		if element.(condition)["type"] == report.ConditionType {
			c = element.(condition)
		}
	}
	agent, hub := w.parties[0].gate, w.parties[1].gate
	inFlight := agent.InFlight() + hub.InFlight()
	flag := obj.Object["spec"].(map[string]any)["syncPaused"]
	held := false
	for name, value := range obj.GetAnnotations() {
		held = held || strings.HasPrefix(name, syncgate.HoldPrefix) && value != "false"
	}
	want := "False Syncing"
	switch {
	case flag == "true":
		want = "Unknown Malformed"
	case (flag == true || held) && inFlight == 0:
		want = "True Paused"
	case flag == true || held:
		want = "False Draining"
	case c == nil: // never paused, or the condition was dropped
		want = "<nil> <nil>"
	}
	if agent.Paused() != hub.Paused() || agent.Paused() != (want[0] == 'T' || want[0] == 'U' || want == "False Draining") {
		return fmt.Errorf("the gates are closed: %t and %t; want what %s says", agent.Paused(), hub.Paused(), want)
	}
	if got := fmt.Sprint(c["status"], " ", c["reason"]); got != want || c != nil && c["observedGeneration"] != obj.GetGeneration() {
		return fmt.Errorf("settled, the condition is %v of generation %d; want %s", c, obj.GetGeneration(), want)
	}
	if acknowledged := report.Acknowledged(obj); acknowledged != (want == "True Paused") {
		return fmt.Errorf("settled, Acknowledged = %t; want %s", acknowledged, want)
	}
	return nil
}
