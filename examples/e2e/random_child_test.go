package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
)

// randomChild is a child, with what the test has done to it.
type randomChild struct {
	*fleettest.Child
	deployer string // its user agent; empty: there are several
	start    func() (stop func())
	unfollow func() // waits for the last event

	// Of keepEditing.
	want map[string]map[string]string // the images by app, by Description
	next int                          // the next image

	// Of keepPausing.
	windows           []randomWindow
	pauses, deployers int

	mu      sync.Mutex         // guards the fields below
	edits   []time.Time        // when a Description has changed
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

func newRandomChild(c *fleettest.Child, deployer string) *randomChild {
	return &randomChild{
		Child: c, deployer: deployer,
		want:    map[string]map[string]string{},
		own:     map[int64]bool{},
		removed: map[types.UID]bool{},
	}
}

func randomVersion(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64) // the server's are numbers
	return n
}

// follow records what happens to the child's apps. To know that all events have come, done
// creates a last app, and waits for its event.
func (c *randomChild) follow(ctx context.Context) (done func()) {
	list, err := c.Apps().List(ctx, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	events, err := c.Apps().Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
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
				c.Errorf("the watch of %s has the event %v", c.Name, event)
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
		if _, err := c.Apps().Create(ctx, object, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
		<-ended
		if err := c.Apps().Delete(ctx, last, metav1.DeleteOptions{}); err != nil {
			c.Fatal(err)
		}
	}
}

// edit changes a Description once, or an app as somebody else than its deployer.
func (c *randomChild) edit(ctx context.Context, random *rand.Rand) error {
	name := fmt.Sprintf("set%d", random.IntN(randomDescriptions))
	app := fmt.Sprintf("%s-app%d", name, random.IntN(randomApps))
	switch n := random.IntN(100); {
	case n < 50:
		return c.describe(ctx, random, name)
	case n < 65:
		err := c.Descriptions().Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil {
			c.changed(name, nil)
		}
		return randomIgnore(err)
	case n < 85:
		patch := fmt.Sprintf(`{"spec":{"image":"drift-%d"}}`, random.IntN(1000))
		object, err := c.Apps().Patch(ctx, app, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.own[randomVersion(object.GetResourceVersion())] = true
		}
		return randomIgnore(err)
	default:
		object, err := c.Apps().Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return randomIgnore(err)
		}
		uid := object.GetUID()
		err = c.Apps().Delete(ctx, app, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
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

// describe edits a Description, or creates it again. One that is being deleted is left
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
	switch object, err := c.Descriptions().Get(ctx, name, metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		object = &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetGroupVersionKind(deploy.Resource.GroupVersion().WithKind("Description"))
		object.SetName(name)
		object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.ID)})
		if random.IntN(2) == 0 { // or the deployer adds it
			object.SetFinalizers([]string{deploy.Finalizer})
		}
		if _, err := c.Descriptions().Create(ctx, object, metav1.CreateOptions{}); err != nil {
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
		if _, err := c.Descriptions().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	c.changed(name, want)
	return nil
}

// pause pauses the child and resumes it. While the pause is known to be in force it
// keeps a window.
func (c *randomChild) pause(ctx context.Context, random *rand.Rand) error {
	_, err := c.ManagedClusters().Patch(ctx, c.Name, types.MergePatchType, []byte(pause), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	c.pauses++
	if random.IntN(4) == 0 { // nobody waits for each pause
		sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	} else {
		if err := c.awaitAcknowledged(ctx); err != nil {
			return err
		}
		w := randomWindow{from: time.Now()}
		if w.fromVersion, err = c.version(ctx); err != nil {
			return err
		}
		sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		if w.toVersion, err = c.version(ctx); err != nil {
			return err
		}
		w.to = time.Now()
		c.windows = append(c.windows, w)
	}
	_, err = c.ManagedClusters().Patch(ctx, c.Name, types.MergePatchType, []byte(resume), metav1.PatchOptions{})
	return err
}

// awaitAcknowledged waits until the current pause is acknowledged, not an earlier one.
func (c *randomChild) awaitAcknowledged(ctx context.Context) error {
	var object *unstructured.Unstructured
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, fleettest.Soon, true, func(ctx context.Context) (ok bool, err error) {
		object, err = c.ManagedClusters().Get(ctx, c.Name, metav1.GetOptions{})
		return err == nil && report.Acknowledged(object), err
	})
	if err != nil {
		return fmt.Errorf("waiting for the acknowledgement: %w; it is %v", err, object)
	}
	return nil
}

// version returns that of the newest write to the child that is done.
func (c *randomChild) version(ctx context.Context) (int64, error) {
	list, err := c.Apps().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return randomVersion(list.GetResourceVersion()), nil
}

// checkWindows checks that nothing was written in the windows, by the request log and by
// the watch.
func (c *randomChild) checkWindows() {
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
	}
	for _, write := range writes {
		if c.deployer != "" && write.Agent != c.deployer {
			c.Errorf("%s: %v; want writes by the %s only", c.Name, write, c.deployer)
		}
	}
}

// editsInWindows returns how many edits of Descriptions came in the windows.
func (c *randomChild) editsInWindows() (edits int) {
	for _, w := range c.windows {
		for _, at := range c.edits {
			if at.After(w.from) && at.Before(w.to) {
				edits++
			}
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

// unfinished returns what is still missing in the parent, or nothing.
func (c *randomChild) unfinished() string {
	list, err := c.Descriptions().List(c.Context(), metav1.ListOptions{})
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
