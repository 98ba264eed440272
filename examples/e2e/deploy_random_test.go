package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	randomFor      = time.Minute     // how long it goes on
	randomForShort = 5 * time.Second // with -short

	randomDescriptions = 4 // of a child
	randomApps         = 3 // that a Description may have
)

// randomChild is a child, with what the test has done to it.
type randomChild struct {
	*fleettest.Child
	managed, descriptions, apps dynamic.ResourceInterface
	deployer                    string // the user agent of the one who deploys

	// Of the editor.
	want map[string]map[string]string // the images by app, by Description
	next int                          // the next image

	// Of the pauser.
	windows           []randomWindow
	pauses, deployers int

	mu      sync.Mutex         // guards the fields below
	edits   []time.Time        // when the parent's word has changed
	own     map[int64]bool     // resource versions that are the test's own writes to the child
	removed map[types.UID]bool // apps that the test has deleted
	events  []randomEvent      // of the child's apps
}

// randomWindow is a time during which a pause is known to be in force.
type randomWindow struct {
	from, to               time.Time
	fromVersion, toVersion int64
}

type randomEvent struct {
	kind    watch.EventType
	version int64
	uid     types.UID
	what    string
}

func newRandomChild(f *fleettest.Fleet, c *fleettest.Child, deployer string) *randomChild {
	return &randomChild{
		Child: c, deployer: deployer,
		managed:      f.Parent.Client.Resource(informer.Resource).Namespace(c.Namespace),
		descriptions: f.Parent.Client.Resource(deploy.Resource).Namespace(c.Namespace),
		apps:         c.Client.Resource(fleettest.Apps).Namespace(fleettest.AppNamespace),
		want:         map[string]map[string]string{},
		own:          map[int64]bool{},
		removed:      map[types.UID]bool{},
	}
}

func randomVersion(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64) // the server's are numbers
	return n
}

// follow records what happens to the child's apps. What the watch has seen last is
// known once it shows the app that done makes.
func (c *randomChild) follow(ctx context.Context) (done func()) {
	list, err := c.apps.List(ctx, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	events, err := c.apps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		c.Fatal(err)
	}
	const last = "last"
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range events.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				c.Errorf("the watch of %s tells %v", c.Name, event)
				return
			}
			if object.GetName() == last {
				return
			}
			image, _, _ := unstructured.NestedString(object.Object, "spec", "image")
			c.mu.Lock()
			c.events = append(c.events, randomEvent{
				event.Type, randomVersion(object.GetResourceVersion()), object.GetUID(),
				fmt.Sprintf("%s %s image %s", event.Type, object.GetName(), image),
			})
			c.mu.Unlock()
		}
		c.Errorf("the watch of %s has ended early", c.Name)
	}()
	c.Cleanup(func() { events.Stop(); <-ended })
	return func() {
		object := &unstructured.Unstructured{Object: fleettest.App(last, "")}
		if _, err := c.apps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
		<-ended
		if err := c.apps.Delete(ctx, last, metav1.DeleteOptions{}); err != nil {
			c.Fatal(err)
		}
	}
}

// edit changes the parent's word, or the child behind its deployer's back, once.
func (c *randomChild) edit(ctx context.Context, random *rand.Rand) error {
	name := fmt.Sprintf("set%d", random.IntN(randomDescriptions))
	app := fmt.Sprintf("%s-app%d", name, random.IntN(randomApps))
	switch n := random.IntN(100); {
	case n < 50:
		return c.describe(ctx, random, name)
	case n < 65:
		err := c.descriptions.Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil {
			c.changed(name, nil)
		}
		return randomIgnore(err)
	case n < 85:
		patch := fmt.Sprintf(`{"spec":{"image":"drift-%d"}}`, random.IntN(1000))
		object, err := c.apps.Patch(ctx, app, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.own[randomVersion(object.GetResourceVersion())] = true
		}
		return randomIgnore(err)
	default:
		object, err := c.apps.Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return randomIgnore(err)
		}
		uid := object.GetUID()
		err = c.apps.Delete(ctx, app, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.removed[uid] = true
		}
		return randomIgnore(err)
	}
}

// randomIgnore drops the errors of an edit that has met the deployer.
func randomIgnore(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (c *randomChild) changed(name string, want map[string]string) {
	c.want[name] = want
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edits = append(c.edits, time.Now())
}

// describe edits a Description, or creates it anew. One that is being deleted is left
// alone, as an operator has to.
func (c *randomChild) describe(ctx context.Context, random *rand.Rand, name string) error {
	want, raw := map[string]string{}, []any{}
	for i := range randomApps {
		if random.IntN(3) == 0 {
			continue
		}
		c.next++
		app, image := fmt.Sprintf("%s-app%d", name, i), strconv.Itoa(c.next)
		data, err := json.Marshal(fleettest.App(app, image))
		if err != nil {
			return err
		}
		want[app] = image
		raw = append(raw, base64.StdEncoding.EncodeToString(data))
	}
	spec := map[string]any{"deployer": "Generic", "raw": raw}
	switch object, err := c.descriptions.Get(ctx, name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		object = &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetGroupVersionKind(deploy.Resource.GroupVersion().WithKind("Description"))
		object.SetName(name)
		object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.ID)})
		if random.IntN(2) == 0 { // or the deployer adds it
			object.SetFinalizers([]string{deploy.Finalizer})
		}
		if _, err := c.descriptions.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	case err != nil:
		return err
	case object.GetDeletionTimestamp() != nil:
		return nil
	default:
		patch, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			return err
		}
		if _, err := c.descriptions.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	c.changed(name, want)
	return nil
}

// pause pauses the child and resumes it. While the pause is known to be in force it
// keeps a window.
func (c *randomChild) pause(ctx context.Context, random *rand.Rand) error {
	object, err := c.managed.Patch(ctx, c.Name, types.MergePatchType, []byte(pause), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	c.pauses++
	generation := object.GetGeneration()
	if random.IntN(4) == 0 { // nobody waits for each pause
		modesWait(time.Duration(random.IntN(100)) * time.Millisecond)
	} else {
		for deadline := time.Now().Add(soon); ; modesWait(time.Millisecond) {
			if object, err = c.managed.Get(ctx, c.Name, metav1.GetOptions{}); err != nil {
				return err
			}
			// True of an earlier pause is not an answer to this one.
			if status, observed := modesCondition(object); status == "True" && observed >= generation {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("after %v the pause of generation %d is not acknowledged: %v", soon, generation, object.Object["status"])
			}
		}
		w := randomWindow{from: time.Now()}
		if w.fromVersion, err = c.version(ctx); err != nil {
			return err
		}
		modesWait(time.Duration(random.IntN(1000)) * time.Millisecond)
		if w.toVersion, err = c.version(ctx); err != nil {
			return err
		}
		w.to = time.Now()
		c.windows = append(c.windows, w)
	}
	_, err = c.managed.Patch(ctx, c.Name, types.MergePatchType, []byte(resume), metav1.PatchOptions{})
	return err
}

// version returns that of the newest write to the child that is done.
func (c *randomChild) version(ctx context.Context) (int64, error) {
	list, err := c.apps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return randomVersion(list.GetResourceVersion()), nil
}

// quiet tells what was written in the windows, by the log of requests and by the
// watch, and how many edits came in them.
func (c *randomChild) quiet() (edits int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := c.Writes()
	for _, w := range c.windows {
		for _, write := range writes {
			if !write.At.Before(w.from) && !write.At.After(w.to) {
				c.Errorf("%s, acknowledged as paused from %v to %v: %v at %v; want no write", c.Name, w.from, w.to, write, write.At)
			}
		}
		for _, e := range c.events {
			own := c.own[e.version] || e.kind == watch.Deleted && c.removed[e.uid]
			if e.version > w.fromVersion && e.version <= w.toVersion && !own {
				c.Errorf("%s, acknowledged as paused from version %d to %d: %s at %d; want no change but the test's own",
					c.Name, w.fromVersion, w.toVersion, e.what, e.version)
			}
		}
		for _, at := range c.edits {
			if at.After(w.from) && at.Before(w.to) {
				edits++
			}
		}
	}
	for _, write := range writes {
		if write.Agent != c.deployer {
			c.Errorf("%s: %v; want writes by the %s only", c.Name, write, c.deployer)
		}
	}
	return edits
}

// all returns the images that the child is to have in the end.
func (c *randomChild) all() map[string]string {
	all := map[string]string{}
	for _, want := range c.want {
		maps.Copy(all, want)
	}
	return all
}

// settled tells what is still missing in the parent; empty: nothing.
func (c *randomChild) settled(ctx context.Context) string {
	list, err := c.descriptions.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var problems []string
	for _, object := range list.Items {
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		if phase != "Success" || c.want[object.GetName()] == nil {
			problems = append(problems, fmt.Sprintf("Description %s: phase %q, deleted %t", object.GetName(), phase, c.want[object.GetName()] == nil))
		}
	}
	return strings.Join(problems, "; ")
}

// Two children are paused and resumed at random, while what they are to have changes,
// others change what they have, and their deployers are started anew.
func TestRandomPauses(t *testing.T) {
	t.Parallel()
	length := randomFor
	if testing.Short() {
		length = randomForShort
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, for %v", seed, length)

	f := fleettest.New(t, 2, syncgate.Pull)
	byAgent, byHub := newRandomChild(f, f.Children[0], "agent"), newRandomChild(f, f.Children[1], "hub")
	children := []*randomChild{byAgent, byHub}
	byHub.Patch(`{"spec":{"syncMode":"Push"}}`)
	runAgent := func(c *randomChild, name string, mode syncgate.Mode, appPusher bool) (stop func()) {
		var parent, child modesLink
		opts := agent.Options{
			Parent: parent.config(f.Parent.Config(), name), Child: child.config(c.Config(), name),
			Namespace: c.Namespace, ClusterID: c.ID, SyncMode: mode, AppPusher: appPusher,
			Heartbeat: 50 * time.Millisecond, // which must not matter
		}
		return fleettest.Run(t, func(ctx context.Context) error { return agent.Run(ctx, opts) })
	}
	runHub := func() (stop func()) {
		var parent modesLink
		return fleettest.Run(t, func(ctx context.Context) error {
			return hub.Run(ctx, hub.Options{Parent: parent.config(f.Parent.Config(), "hub"), Child: func(_ string, id types.UID) (*rest.Config, error) {
				if id != byHub.ID {
					return nil, fmt.Errorf("asked for %s, which is not its own", id)
				}
				var child modesLink
				return child.config(byHub.Config(), "hub"), nil
			}})
		})
	}
	runAgent(byHub, "agent-of-hub", syncgate.Push, true)
	start := map[*randomChild]func() func(){
		byAgent: func() func() { return runAgent(byAgent, "agent", syncgate.Pull, false) },
		byHub:   runHub,
	}
	var done []func()
	for _, c := range children {
		done = append(done, c.follow(t.Context()))
	}

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var parts sync.WaitGroup
	for i, c := range children {
		editing, pausing := rand.New(rand.NewPCG(seed, uint64(2*i))), rand.New(rand.NewPCG(seed, uint64(2*i+1)))
		parts.Go(func() {
			for ctx.Err() == nil {
				if err := c.edit(t.Context(), editing); err != nil {
					t.Errorf("editing %s: %v", c.Name, err)
					return
				}
				modesWait(time.Duration(editing.IntN(40)) * time.Millisecond)
			}
		})
		parts.Go(func() {
			stop := start[c]()
			c.deployers++
			for ctx.Err() == nil {
				modesWait(time.Duration(pausing.IntN(1000)) * time.Millisecond)
				if pausing.IntN(8) == 0 {
					stop()
					stop = start[c]()
					c.deployers++
				}
				if err := c.pause(t.Context(), pausing); err != nil {
					t.Errorf("pausing %s: %v", c.Name, err)
					return
				}
			}
		})
	}
	parts.Wait()
	over := time.Now()
	for i, c := range children {
		converge := func(when string) {
			t.Helper()
			fleettest.Eventually(t, fleettest.Soon, func() bool { return maps.Equal(c.Images(), c.all()) && c.settled(t.Context()) == "" },
				func() string {
					return fmt.Sprintf("%s has not converged %s: images %v, want %v; %s", c.Name, when, c.Images(), c.all(), c.settled(t.Context()))
				})
		}
		converge("after the last resume")
		converged := time.Since(over)
		// A drift that came before may have been mended by an edit.
		for j, app := range slices.Sorted(maps.Keys(c.all())) {
			if j%2 == 0 {
				c.Drift(app, "drift")
			} else {
				c.Remove(app)
			}
		}
		converge("after a drift of all")
		done[i]()
		edits, writes := c.quiet(), len(c.Writes())
		t.Logf("%s: converged in %v; %d pauses, %d of them waited for, %d edits of which %d came in those, %d drifts, %d removals, %d writes, %d deployers, %d events",
			c.Name, converged, c.pauses, len(c.windows), len(c.edits), edits, len(c.own), len(c.removed), writes, c.deployers, len(c.events))
		// It proves nothing when little has happened.
		few := 3 // under the race detector a minute is short, too
		if testing.Short() {
			few = 0
		}
		if len(c.windows) == 0 || len(c.windows) < few || edits < few || writes < 5*few || len(c.own) < few || len(c.removed) < few {
			t.Errorf("%s: too little has happened in %v", c.Name, length)
		}
		if few > 0 && !slices.ContainsFunc(c.windows, func(w randomWindow) bool { return w.to.Sub(w.from) > 100*time.Millisecond }) {
			t.Errorf("%s: all windows are short", c.Name)
		}
	}
}
