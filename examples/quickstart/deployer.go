package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/clusternet/syncgate/syncgate"
)

const (
	changeEvery = 400 * time.Millisecond
	writeTakes  = 300 * time.Millisecond
)

var applications = []string{"api", "db", "mail", "shop", "web"}

// deployer stands for the controller that deploys to a child cluster: applications change, their names go
// through a queue, and one worker writes the latest version of each. The child cluster is only counted here,
// but the writes are held for real.
type deployer struct {
	gate  *syncgate.Gate
	queue workqueue.TypedInterface[string]

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	changes int
	wanted  map[string]int // the version that each application should have
	written map[string]int // and the one that it has in the child cluster
	writes  int
	writing string // the application that is being written, if any
	begun   time.Time
}

func newDeployer(gate *syncgate.Gate) *deployer {
	return &deployer{
		gate:    gate,
		queue:   workqueue.NewTyped[string](),
		changed: make(chan struct{}),
		wanted:  map[string]int{},
		written: map[string]int{},
	}
}

// run deploys until ctx ends.
func (d *deployer) run(ctx context.Context) error {
	var source sync.WaitGroup
	defer source.Wait()
	source.Go(func() { d.change(ctx) })
	defer context.AfterFunc(ctx, d.queue.ShutDown)()

	backlog := syncgate.NewBacklog(d.queue.Add) // what the gate refuses comes back to the queue on resume
	for {
		app, shutDown := d.queue.Get()
		if shutDown {
			return nil
		}
		// Nothing fails here but at the end; a real deployer would add app again, rate-limited.
		_, _ = backlog.Do(ctx, d.gate, app, func(ctx context.Context) error { return d.write(ctx, app) })
		d.queue.Done(app)
	}
}

// change lets one application after the other change.
func (d *deployer) change(ctx context.Context) {
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		app := applications[i%len(applications)]
		d.update(func() {
			d.wanted[app]++
			d.changes++
		})
		d.queue.Add(app)
	}
}

// write stands for the requests that a deployer makes to its child cluster.
func (d *deployer) write(ctx context.Context, app string) error {
	var version int
	d.update(func() {
		d.writing, d.begun = app, time.Now()
		version = d.wanted[app]
	})
	requests := time.NewTimer(writeTakes)
	defer requests.Stop()
	select {
	case <-ctx.Done():
		d.update(func() { d.writing = "" })
		return context.Cause(ctx)
	case <-requests.C:
	}
	d.update(func() {
		d.writing = ""
		d.written[app] = version
		d.writes++
	})
	return nil
}

func (d *deployer) update(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fn()
	close(d.changed)
	d.changed = make(chan struct{})
}

// progress is a copy of what the deployer has done so far.
type progress struct {
	changes, writes int
	writing         string
	begun           time.Time
	due             []string // applications that have changed and are not written
	waiting         []string // those of them that are not being written either
}

func (d *deployer) progress() progress {
	p, _ := d.snapshot()
	return p
}

// snapshot also returns a channel that is closed at the next progress.
func (d *deployer) snapshot() (progress, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := progress{changes: d.changes, writes: d.writes, writing: d.writing, begun: d.begun}
	for _, app := range applications {
		if d.wanted[app] == d.written[app] {
			continue
		}
		p.due = append(p.due, app)
		if app != d.writing {
			p.waiting = append(p.waiting, app)
		}
	}
	return p, d.changed
}

// await waits for progress.
func (d *deployer) await(ctx context.Context, enough func(progress) bool) (progress, error) {
	for {
		p, next := d.snapshot()
		if enough(p) {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return p, context.Cause(ctx)
		case <-next:
		}
	}
}

// awaitWritten waits until each of the applications has been written as it is wanted now.
func (d *deployer) awaitWritten(ctx context.Context, apps []string) (progress, error) {
	d.mu.Lock()
	due := map[string]int{}
	for _, app := range apps {
		due[app] = d.wanted[app]
	}
	d.mu.Unlock()
	return d.await(ctx, func(progress) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !slices.ContainsFunc(apps, func(app string) bool { return d.written[app] < due[app] })
	})
}
