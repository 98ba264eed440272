package histories

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	descriptionsOfParty = 2
	pausesOfOperator    = 5
)

// cluster is a child cluster with its own namespace in the parent, and its history.
type cluster struct {
	recorder
	shard     *shard
	number    int
	namespace string
	id        types.UID
	objects   int // ManagedClusters
	keys      []string
	child     child
	links     map[string]*link // by party
	edits     int

	acknowledged atomic.Int64 // pauses that an operator has waited for
	restarts     atomic.Int64
	stale        atomic.Bool // a process has had StaleAfter
	faults       sync.Map    // fault to *atomic.Int64

	mu       sync.Mutex // guards the fields below
	started  map[string]int
	running  map[string]*process
	versions map[string]Event // the latest of each object
	failures []string
	ops      int64
}

func newCluster(s *shard, number int) *cluster {
	c := &cluster{
		recorder: recorder{base: s.base}, shard: s, number: number,
		namespace: fmt.Sprintf("clusternet-%06d", number),
		id:        types.UID(fmt.Sprintf("0b1c2d3e-3333-4a6b-8c7d-%012d", number)),
		child:     child{values: map[string]int{}},
		started:   map[string]int{}, running: map[string]*process{}, versions: map[string]Event{},
	}
	c.links = map[string]*link{report.PartyAgent: newLink(""), report.PartyHub: newLink(c.namespace)}
	for _, party := range parties {
		for i := range descriptionsOfParty {
			c.keys = append(c.keys, party+strconv.Itoa(i))
		}
	}
	c.objects = 1 + max(0, c.random("objects").IntN(5)-2) // 1, 1, 1, 2, 3
	return c
}

// random returns the choices of a part of the history. They depend on the seed only.
func (c *cluster) random(part string) *rand.Rand {
	sum := uint64(14695981039346656037)
	for _, b := range []byte(fmt.Sprintf("%d %s", c.number, part)) {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(c.shard.seed, sum))
}

func (c *cluster) object(i int) string { return fmt.Sprintf("child-%d", i) }

func (c *cluster) fail(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, why)
}

// describe sets what an event says of an object.
func (c *cluster) describe(e *Event, o *unstructured.Unstructured) {
	e.Version, _ = strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	e.Generation = o.GetGeneration()
	e.Field, _, _ = unstructured.NestedBool(o.Object, "spec", "syncPaused")
	for name, value := range o.GetAnnotations() {
		if strings.HasPrefix(name, syncgate.HoldPrefix) && value != "false" {
			e.Hold = true
		}
	}
	summary, condition := fleettest.Condition(o)
	e.True = condition["status"] == "True"
	e.Condition = fmt.Sprintf("%s %v", summary, condition["observedGeneration"])
	e.Acknowledged = report.Acknowledged(o)
}

// observe records a version that the parent shows.
func (c *cluster) observe(o *unstructured.Unstructured, deleted, gap bool) {
	e := Event{Kind: Observed, Object: o.GetName(), Deleted: deleted, Gap: gap}
	c.describe(&e, o)
	c.add(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions[e.Object] = e
}

func (c *cluster) latest(object string) Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.versions[object]
}

// live runs the random part of the history.
func (c *cluster) live(ctx context.Context) {
	paused := c.random("paused").IntN(4) == 0
	for i := range c.objects {
		c.create(ctx, c.object(i), paused && i == 0)
	}
	for _, key := range c.keys {
		c.edit(ctx, key)
	}
	stale := c.random("stale")
	for _, party := range parties {
		c.restart(party, stale.IntN(8) == 0, false)
	}
	ctx, cancel := context.WithCancel(ctx)
	var others, operators sync.WaitGroup
	others.Go(func() { c.workOthers(ctx, c.random("others")) })
	others.Go(func() { c.trouble(ctx, c.random("trouble")) })
	for _, name := range []string{"a", "b"} {
		operators.Go(func() { (&operator{c, name, c.random(name)}).work(ctx, pausesOfOperator) })
	}
	operators.Wait()
	cancel()
	others.Wait()
}

// trouble disturbs the parties: faults between them and the parent, restarts, kills.
func (c *cluster) trouble(ctx context.Context, random *rand.Rand) {
	// client-go waits longer after each failure, so a party that has many is deaf most of the
	// time.
	most := []int{0, 1500, 4000}[random.IntN(3)]
	if most == 0 {
		return
	}
	for sleep(ctx, time.Duration(random.IntN(most))*time.Millisecond) {
		party := parties[random.IntN(len(parties))]
		kind, length := faultKinds[random.IntN(len(faultKinds))], time.Duration(100+random.IntN(1500))*time.Millisecond
		restarts, kills, stale := random.IntN(4) == 0, random.IntN(2) == 0, random.IntN(8) == 0
		if restarts {
			c.restart(party, stale, kills)
			continue
		}
		count, _ := c.faults.LoadOrStore(kind, &atomic.Int64{})
		count.(*atomic.Int64).Add(1)
		c.links[party].during(ctx, kind, length)
	}
}

// restart ends the process of a party, if there is one, and starts the next.
func (c *cluster) restart(party string, stale, kill bool) {
	c.end(party, kill)
	if err := c.start(party, stale); err != nil {
		c.fail(fmt.Sprintf("start %s: %v", party, err))
	}
}

func (c *cluster) end(party string, kill bool) {
	c.mu.Lock()
	p := c.running[party]
	c.mu.Unlock()
	if p == nil {
		return
	}
	if kill {
		p.kill()
	}
	p.stop()
	<-p.ended
	c.restarts.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops += p.deployer.admitted.Load()
	delete(c.running, party)
}

// settle runs the last part, without faults: one more pause, which must be acknowledged,
// and the last resume.
func (c *cluster) settle(ctx context.Context) {
	beating, cancel := context.WithCancel(ctx)
	defer cancel()
	go c.keepBeating(beating)
	last := operator{c, "a", c.random("settle")}
	for i := range c.objects {
		c.release(ctx, c.object(i), "before")
	}
	c.await(ctx, "the gates do not open", c.unsettledGates)
	last.pause(ctx, c.object(0), last.random.IntN(2) == 0, 0)
	for _, key := range c.keys {
		c.edit(ctx, key)
	}
	c.await(ctx, "the last pause is not acknowledged", func() string {
		if v := c.latest(c.object(0)); !v.Acknowledged {
			return v.String() + " " + v.Condition
		}
		return ""
	})
	sleep(ctx, 50*time.Millisecond)
	c.release(ctx, c.object(0), "after")
	c.await(ctx, "the child does not become what the parent wants", func() string { return c.unsettledGates() + c.unsettledChild() })
	c.await(ctx, "a condition stays True", c.unsettledConditions)
	c.mu.Lock()
	failure := strings.Join(c.failures, "; ")
	c.mu.Unlock()
	c.add(Event{Kind: Finished, Failure: failure})
	for _, party := range parties {
		c.end(party, false)
	}
}

// release ends all that holds an object. It changes the spec in any case: a gate may have
// lost the field with the CRD, and stays closed until then.
func (c *cluster) release(ctx context.Context, object, when string) {
	c.create(ctx, object, false) // if it is gone
	c.patch(ctx, object, map[string]any{
		"spec": map[string]any{"syncPaused": nil, "clusterType": when},
		"metadata": map[string]any{"annotations": map[string]any{
			syncgate.HoldPrefix + "a": nil, syncgate.HoldPrefix + "b": nil,
		}},
	})
}

// await waits for what must happen at last. It is generous: nothing here is about speed.
func (c *cluster) await(ctx context.Context, what string, unsettled func() string) {
	why := ""
	for began := c.now(); c.now()-began < patience; {
		if why = unsettled(); why == "" {
			return
		}
		if !sleep(ctx, 20*time.Millisecond) {
			break
		}
	}
	c.fail(what + ": " + why)
}

func (c *cluster) unsettledGates() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := ""
	for _, party := range parties {
		if p := c.running[party]; p == nil {
			out += party + " does not run; "
		} else if s := p.gate.State(); s.Paused || p.deployer.backlog.Len() > 0 {
			out += fmt.Sprintf("%s is %s (%s: %s), %d keys parked, Check: %v; ", p.id, s.Phase, s.Reason, s.Message, p.deployer.backlog.Len(), p.gate.Check(nil))
		} else if slices.Contains(slices.Collect(maps.Values(p.paused)), true) {
			out += fmt.Sprintf("a callback of %s has not got the resume: %v; ", p.id, p.paused)
		}
	}
	return out
}

func (c *cluster) unsettledChild() string {
	wanted := map[string]int{}
	for _, e := range c.all() {
		if e.Kind == Edit {
			wanted[e.Key] = e.Value
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if value, ok := c.child.value(key); !ok || value != wanted[key] {
			return fmt.Sprintf("%s is %d, and should be %d", key, value, wanted[key])
		}
	}
	return ""
}

func (c *cluster) unsettledConditions() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.versions {
		if v.True {
			return v.String()
		}
	}
	return ""
}
