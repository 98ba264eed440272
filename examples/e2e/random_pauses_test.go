package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	randomFor      = time.Minute     // how long it takes at least
	randomForShort = 5 * time.Second // with -short

	randomDescriptions = 4 // of a child
	randomApps         = 3 // that a Description may have
)

// Two children are paused and resumed at random. Meanwhile their Descriptions are edited,
// others change their apps, and their deployers are restarted.
func TestRandomPauses(t *testing.T) {
	t.Parallel()
	length, few := randomFor, 3
	if testing.Short() {
		length, few = randomForShort, 1
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, for %v", seed, length)

	f := fleettest.New(t, 2, syncgate.Pull)
	byAgent, byHub := newRandomChild(f.Children[0], "agent"), newRandomChild(f.Children[1], "hub")
	byHub.Patch(`{"spec":{"syncMode":"Push"}}`)
	byAgent.start = func() func() { return byAgent.runAgent(f, "agent", syncgate.Pull, false, report.PartyAgent) }
	byHub.start = func() func() { return runHub(f, "hub", "", childOf(f, "hub"), report.PartyHub) }
	byHub.runAgent(f, "agent-of-hub", syncgate.Push, true)

	children := []*randomChild{byAgent, byHub}
	var parts sync.WaitGroup
	for i, c := range children {
		c.unfollow = c.follow(t.Context())
		editing, pausing := rand.New(rand.NewPCG(seed, uint64(2*i))), rand.New(rand.NewPCG(seed, uint64(2*i+1)))
		ctx, cancel := context.WithCancel(t.Context())
		parts.Go(func() { c.keepEditing(ctx, editing) })
		parts.Go(func() {
			defer cancel()
			c.keepPausing(ctx, pausing, length, few)
		})
	}
	parts.Wait()
	for _, c := range children {
		c.checkAfterwards(t)
	}
}

func (c *randomChild) runAgent(f *fleettest.Fleet, name string, mode syncgate.Mode, appPusher bool, parties ...string) (stop func()) {
	return fleettest.Run(f, func(ctx context.Context) error {
		return agent.Run(ctx, agent.Options{
			Parent: fleettest.As(name, f.Parent.Config()), Child: fleettest.As(name, c.Config()),
			Namespace: c.Namespace, ClusterID: c.ID, SyncMode: mode, AppPusher: appPusher, Parties: parties,
			Heartbeat: 50 * time.Millisecond, // which must not matter
		})
	})
}

func (c *randomChild) keepEditing(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		if err := c.edit(c.Context(), random); err != nil {
			c.Errorf("editing %s: %v", c.Name, err)
			return
		}
		sleep(time.Duration(random.IntN(40)) * time.Millisecond)
	}
}

// keepPausing pauses and resumes the child for a time, and for longer when too little has
// happened by then to prove anything.
func (c *randomChild) keepPausing(ctx context.Context, random *rand.Rand, length time.Duration, few int) {
	stop := c.start()
	c.deployers++
	for began := time.Now(); ctx.Err() == nil; {
		sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		if random.IntN(8) == 0 {
			stop()
			stop = c.start()
			c.deployers++
		}
		if err := c.pause(ctx, random); err != nil {
			c.Errorf("pausing %s: %v", c.Name, err)
			return
		}
		switch took := time.Since(began); {
		case took < length:
		case c.enough(few):
			return
		case took > length+fleettest.Soon:
			c.Errorf("%s: too little has happened in %v", c.Name, took)
			return
		}
	}
}

// enough reports whether each kind of thing has happened a few times.
func (c *randomChild) enough(few int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	long := func(w randomWindow) bool { return w.to.Sub(w.from) > 100*time.Millisecond }
	return len(c.windows) >= few && slices.ContainsFunc(c.windows, long) && c.editsInWindows() >= few &&
		len(c.Writes()) >= 5*few && len(c.own) >= few && len(c.removed) >= few
}

// checkAfterwards checks that the child becomes what the Descriptions ask for, and what
// happened to it on the way.
func (c *randomChild) checkAfterwards(t *testing.T) {
	began := time.Now()
	c.awaitConverged("after the last resume")
	converged := time.Since(began)
	// Earlier drifts may have been repaired by an edit.
	for i, app := range slices.Sorted(maps.Keys(c.all())) {
		if i%2 == 0 {
			c.Drift(app, "drift")
		} else {
			c.Remove(app)
		}
	}
	c.awaitConverged("after a drift of all")
	c.unfollow()
	c.checkWindows()
	t.Logf("%s: converged in %v; %d pauses, %d of them waited for, %d edits, %d of them in those, %d drifts, %d removals, %d writes, %d deployers, %d events",
		c.Name, converged, c.pauses, len(c.windows), len(c.edits), c.editsInWindows(), len(c.own), len(c.removed), len(c.Writes()), c.deployers, len(c.events))
}

func (c *randomChild) awaitConverged(when string) {
	c.Helper()
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return maps.Equal(c.Images(), c.all()) && c.unfinished() == "" }, func() string {
		return fmt.Sprintf("%s has not converged %s: images %v, want %v; %s", c.Name, when, c.Images(), c.all(), c.unfinished())
	})
}
