package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// staleAfter is short: heartbeats come more often.
const staleAfter = 3 * time.Second

var parties = []string{report.PartyAgent, report.PartyHub}

// process is one run of a party: a gate, a reporter, and a deployer.
type process struct {
	id       string // agent/1
	party    string
	cluster  *cluster
	gate     *syncgate.Gate
	deployer *deployer
	dead     bool               // guarded by cluster.child.mu
	kill     context.CancelFunc // ends all at once
	stop     context.CancelFunc // operations end first
	ended    chan struct{}
	paused   map[string]bool // what each callback got last; guarded by cluster.mu
}

// start starts the next process of a party.
func (c *cluster) start(party string, stale bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started[party]++
	p := &process{id: fmt.Sprintf("%s/%d", party, c.started[party]), party: party, cluster: c, ended: make(chan struct{}), paused: map[string]bool{}}
	config := c.shard.config()
	config.UserAgent = party
	config.Wrap(c.links[party].wrap)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	gates, run, err := p.makeGates(client, stale)
	if err != nil {
		return err
	}
	reporter, err := report.New(client, gates, report.Options{Party: party, Parties: func(syncgate.State) []string { return parties }})
	if err != nil {
		return err
	}
	descriptions := deploy.NewInformer(client, c.namespace, c.id)
	p.deployer = newDeployer(p, descriptions)
	if _, err := descriptions.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, _ bool) { p.deployer.add(object) },
		UpdateFunc: func(_, object any) { p.deployer.add(object) },
	}); err != nil {
		return err
	}
	p.subscribe(gates)
	p.run(run, reporter.Run, func(ctx context.Context) error { descriptions.RunWithContext(ctx); return nil })
	c.running[party] = p
	return nil
}

func (p *process) makeGates(client dynamic.Interface, stale bool) (report.Gates, func(context.Context) error, error) {
	opts := syncgate.Options{}
	if stale {
		opts.StaleAfter = staleAfter
		p.cluster.stale.Store(true)
	}
	if p.party == report.PartyAgent {
		gate, err := syncgate.New(client, p.cluster.namespace, p.cluster.id, opts)
		if err != nil {
			return nil, nil, err
		}
		p.gate = gate
		return gate, gate.Run, nil
	}
	clusters, err := informer.ForHub(client, informer.Options{})
	if err != nil {
		return nil, nil, err
	}
	hub, err := syncgate.NewHub(clusters, opts)
	if err != nil {
		return nil, nil, err
	}
	p.gate = hub.Gate(p.cluster.id)
	return hub, hub.Run, nil
}

// subscribe adds callbacks. One of them is slow, which makes all of them late.
func (p *process) subscribe(gates report.Gates) {
	add := func(name string, gates interface {
		OnChange(func(syncgate.Change)) func()
	}, most time.Duration) {
		gates.OnChange(func(c syncgate.Change) {
			p.cluster.add(Event{Kind: Changed, Process: p.id, Subscriber: name, Old: decisionOf(&c.Old), New: decisionOf(&c.New), Pauses: p.gate.Stats().Pauses})
			p.cluster.mu.Lock()
			p.paused[name] = c.New.Paused
			p.cluster.mu.Unlock()
			if most > 0 {
				<-time.After(rand.N(most))
			}
		})
	}
	add("gate", p.gate, 0)
	add("slow", p.gate, 50*time.Millisecond)
	if p.party == report.PartyHub {
		add("hub", gates, 0)
	}
}

func decisionOf(s *syncgate.State) Decision {
	return Decision{s.Paused, fmt.Sprintf("%s %s %s %s %v", s.Phase, s.Reason, s.Object, s.UID, s.Holds)}
}

// run runs the parts of the process. The deployer ends before them, unless all is killed.
func (p *process) run(parts ...func(context.Context) error) {
	killed, kill := context.WithCancel(context.Background())
	p.kill = func() { p.cluster.child.kill(p); kill() }
	working, stop := context.WithCancel(killed)
	p.stop = stop
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() {
			if err := part(killed); err != nil {
				p.cluster.fail(fmt.Sprintf("%s: a part of the process has ended: %v", p.id, err))
			}
		})
	}
	running.Go(func() { p.read(killed) })
	go func() {
		defer close(p.ended)
		p.deployer.run(working)
		kill()
		running.Wait()
		stop()
		p.cluster.add(Event{Kind: Ended, Process: p.id})
	}()
}

// read samples the gate again and again.
func (p *process) read(ctx context.Context) {
	for sleep(ctx, rand.N(40*time.Millisecond)) {
		p.sample()
	}
}

// sample records what a reader gets of the gate, unless it has opened meanwhile.
func (p *process) sample() {
	s := Event{Kind: Sample, Process: p.id, Start: p.cluster.now()}
	resumes := p.gate.Stats().Resumes
	state := p.gate.State()
	s.Closed = p.gate.Paused()
	stats := p.gate.Stats()
	known := state.Object.Name != ""
	if s.Closed && !known || stats.Resumes != resumes {
		return // the opening of a gate that knows no ManagedCluster is not counted
	}
	s.Resumes, s.Admitted = resumes, stats.Admitted
	p.cluster.add(s)
}

// child is the child cluster: what was written last, by key.
type child struct {
	mu     sync.Mutex
	values map[string]int
	writes atomic.Int64
}

var errKilled = errors.New("the process was killed")

// write takes some time. A process that was killed starts no write.
func (c *child) write(ctx context.Context, p *process, key string, value int) error {
	w := Event{Kind: Write, Process: p.id, Key: key, Value: value}
	c.mu.Lock()
	if p.dead {
		c.mu.Unlock()
		return errKilled
	}
	w.Start = p.cluster.now()
	c.values[key] = value
	c.mu.Unlock()
	c.writes.Add(1)
	length := rand.N(3 * time.Millisecond)
	if rand.IntN(100) == 0 {
		length = rand.N(400 * time.Millisecond)
	}
	sleep(ctx, length)
	p.cluster.add(w)
	return ctx.Err()
}

func (c *child) kill(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.dead = true
}

func (c *child) value(key string) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok := c.values[key]
	return value, ok
}
