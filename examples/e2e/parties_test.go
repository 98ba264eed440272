package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	partyChildren    = 4
	partyPauses      = 125 // of each child
	partyPausesShort = 12  // with -short
)

// Agent and hub write to a child at the same time, each with slow writes and slow watches
// of its own. They deploy different Descriptions, so that each has its own last word.
// Nothing may be written between the acknowledgement of a pause and its end.
func TestPartiesAcknowledgeTogether(t *testing.T) {
	t.Parallel()
	pauses := partyPauses
	if testing.Short() {
		pauses = partyPausesShort
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := fleettest.New(t, partyChildren, syncgate.Dual)
	var children sync.WaitGroup
	for i := range f.Children {
		f := f.In(t, f.Children[i])
		c := &partyChild{
			randomChild: newRandomChild(f.Children[0], ""), random: rand.New(rand.NewPCG(seed, uint64(i))),
			fleet: f, running: map[string]*runningParty{},
		}
		c.unfollow = c.follow(t.Context())
		children.Go(func() { c.test(pauses) })
	}
	children.Wait()
}

// test pauses the child so many times.
func (c *partyChild) test(pauses int) {
	c.Intercept(func(r *http.Request) int { // slow writes
		if r.Method != http.MethodGet {
			sleep(atTimes(300 * time.Millisecond))
		}
		return 0
	})
	for _, party := range bothParties {
		c.start(party)
	}
	began := time.Now()
	for range pauses {
		if err := c.once(c.Context()); err != nil {
			c.Error(err)
			return
		}
	}
	c.Logf("%s: %d pauses in %v, %d edits while acknowledged, troubles %v",
		c.Name, pauses, time.Since(began).Round(time.Second), c.editsInWindows(), c.troubles)
	for _, party := range c.running {
		party.stop()
	}
	c.unfollow()
	c.checkWindows()
	writers := map[string]int{}
	for _, w := range c.Writes() {
		writers[w.Agent]++
	}
	if len(writers) != 2 || len(c.windows) != pauses || c.editsInWindows() == 0 {
		c.Errorf("writes by %v, %d acknowledged pauses with %d edits; want writes by both, %d pauses, and edits",
			writers, len(c.windows), c.editsInWindows(), pauses)
	}
}

// partyChild is a child of two parties.
type partyChild struct {
	*randomChild
	random   *rand.Rand
	fleet    *fleettest.Fleet
	running  map[string]*runningParty
	troubles [3]int // restarts, kills, cuts
	holds    int    // how many have been set
}

var bothParties = []string{report.PartyAgent, report.PartyHub}

// runningParty is a process of the child.
type runningParty struct {
	stop func()             // what is in flight ends first
	kill context.CancelFunc // stop is needed as well
	cut  *atomic.Bool       // from the parent
}

// once edits, pauses, edits more, resumes, and waits until the child is as the parent
// wants it.
func (c *partyChild) once(ctx context.Context) error {
	random := c.random
	edit := func(most int) error {
		for range 1 + random.IntN(most) {
			if err := c.describe(ctx, random, fmt.Sprintf("set%d", random.IntN(randomDescriptions))); err != nil {
				return err
			}
			sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		return nil
	}
	if err := edit(4); err != nil {
		return err
	}
	sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	pause, resume := `{"spec":{"syncPaused":true}}`, `{"spec":{"syncPaused":null}}`
	if random.IntN(2) == 0 {
		c.holds++
		hold := fmt.Sprintf("%sci-%d", syncgate.HoldPrefix, random.IntN(2))
		pause = fmt.Sprintf(`{"metadata":{"annotations":{%q:"run %d"}}}`, hold, c.holds)
		resume = fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, hold)
	}
	patch := func(patch string) error {
		_, err := c.ManagedClusters().Patch(ctx, c.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := patch(pause); err != nil {
		return err
	}
	c.trouble()
	if err := edit(2); err != nil {
		return err
	}
	if err := c.awaitAcknowledged(ctx); err != nil {
		return err
	}
	w := randomWindow{from: time.Now()}
	var err error
	if w.fromVersion, err = c.version(ctx); err != nil {
		return err
	}
	c.trouble()
	if err := edit(3); err != nil {
		return err
	}
	sleep(time.Duration(random.IntN(80)) * time.Millisecond)
	if w.toVersion, err = c.version(ctx); err != nil {
		return err
	}
	w.to = time.Now()
	c.windows = append(c.windows, w)
	if err := patch(resume); err != nil {
		return err
	}
	c.AwaitAllImages("after a resume", c.all())
	if c.Failed() {
		return fmt.Errorf("the child does not become as the parent wants it after %d pauses", len(c.windows))
	}
	return nil
}

// trouble restarts or kills one of the parties at times, or cuts it off from the parent.
func (c *partyChild) trouble() {
	party := bothParties[c.random.IntN(2)]
	running := c.running[party]
	kind := c.random.IntN(20)
	if kind >= len(c.troubles) {
		return
	}
	c.troubles[kind]++
	switch kind {
	case 0, 1:
		if kind == 1 {
			running.kill()
		}
		running.stop()
		c.start(party)
	case 2:
		running.cut.Store(true)
		time.AfterFunc(time.Duration(c.random.IntN(500))*time.Millisecond, func() { running.cut.Store(false) })
	}
}

func (c *partyChild) start(party string) {
	running := &runningParty{cut: &atomic.Bool{}}
	var killed context.Context
	killed, running.kill = context.WithCancel(context.Background())
	running.stop = fleettest.Run(c.fleet, func(ctx context.Context) error {
		client, err := dynamic.NewForConfig(slowWatches(c.fleet, party, running.cut))
		if err != nil {
			return err
		}
		if party == report.PartyAgent {
			gate, err := syncgate.New(client, c.Namespace, c.ID, syncgate.Options{})
			if err != nil {
				return err
			}
			return c.runParty(ctx, killed, party, client, gate, gate, gate.Run)
		}
		clusters, err := informer.ForHub(client, informer.Options{})
		if err != nil {
			return err
		}
		hub, err := syncgate.NewHub(clusters, syncgate.Options{})
		if err != nil {
			return err
		}
		return c.runParty(ctx, killed, party, client, hub, hub.Gate(c.ID), hub.Run)
	})
	c.running[party] = running
}

// runParty runs gates, a reporter, and a deployer of the Descriptions that are for this
// party: every second one.
func (c *partyChild) runParty(ctx, killed context.Context, party string, client dynamic.Interface, gates report.Gates, gate *syncgate.Gate, runGates func(context.Context) error) error {
	reporter, err := report.New(client, gates, report.Options{Party: party, Parties: func(s syncgate.State) []string {
		if s.Object.Namespace != c.Namespace { // the other children have hubs of their own
			return nil
		}
		return []string{report.PartyAgent, report.PartyHub}
	}})
	if err != nil {
		return err
	}
	descriptions := deploy.NewInformer(client, c.Namespace, c.ID)
	if err := descriptions.SetTransform(func(object any) (any, error) {
		if o, ok := object.(*unstructured.Unstructured); ok && partyOf(o.GetName()) != party {
			o.SetLabels(nil) // then it is for another cluster
		}
		return object, nil
	}); err != nil {
		return err
	}
	deployer := deploy.New(deploy.Options{
		Parent: client, Descriptions: descriptions, Namespace: c.Namespace, Gate: gate,
		Child: func() (*rest.Config, error) { return fleettest.As(party, c.Config()), nil },
	})
	if _, err := descriptions.AddEventHandler(deploy.OnChange(func(_ deploy.Cluster, key string) { deployer.Add(key) })); err != nil {
		return err
	}
	// The deployer ends first, unless it is killed: what it has in flight counts until the
	// end.
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(killed, cancel)
	gatesCtx, cancelGates := context.WithCancel(killed)
	var parts sync.WaitGroup
	var failed atomic.Value
	run := func(ctx context.Context, part func(context.Context) error) {
		parts.Go(func() {
			if err := part(ctx); err != nil {
				failed.Store(err)
				cancel()
			}
		})
	}
	run(gatesCtx, runGates)
	run(gatesCtx, reporter.Run)
	run(gatesCtx, func(ctx context.Context) error { descriptions.RunWithContext(ctx); return nil })
	err = deployer.Run(ctx)
	cancel()
	cancelGates()
	parts.Wait()
	if failed, ok := failed.Load().(error); ok && err == nil {
		err = failed
	}
	return err
}

// partyOf returns which party deploys a Description.
func partyOf(description string) string {
	if strings.HasSuffix(description, "0") || strings.HasSuffix(description, "2") {
		return report.PartyAgent
	}
	return report.PartyHub
}

// slowWatches returns a configuration for the parent. Each read of a watch takes some time.
func slowWatches(f *fleettest.Fleet, party string, cut *atomic.Bool) *rest.Config {
	config := fleettest.As(party, f.Parent.Config())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, errCut
			}
			answer, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Has("watch") {
				answer.Body = slowBody{answer.Body, cut}
			}
			return answer, err
		})
	})
	return config
}

type slowBody struct {
	io.ReadCloser
	cut *atomic.Bool
}

func (b slowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	sleep(atTimes(200 * time.Millisecond))
	if b.cut.Load() {
		return 0, errCut
	}
	return n, err
}

// atTimes returns a short time in most cases, and a random part of a longer one else.
func atTimes(most time.Duration) time.Duration {
	if rand.IntN(4) == 0 {
		return rand.N(most)
	}
	return rand.N(10 * time.Millisecond)
}
