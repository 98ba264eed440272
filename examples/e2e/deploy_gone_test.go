package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

func goneApps(c *fleettest.Child) dynamic.ResourceInterface {
	return c.Client.Resource(fleettest.Apps).Namespace(fleettest.AppNamespace)
}

// goneUID returns that of an app of the child, empty when there is none.
func goneUID(c *fleettest.Child, app string) types.UID {
	c.Helper()
	object, err := goneApps(c).Get(context.Background(), app, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		c.Fatal(err)
	}
	return object.GetUID()
}

// goneLeaveAlone returns a check that nothing was written to the child since, by the log
// of requests and by what is there.
func goneLeaveAlone(c *fleettest.Child) (check func(when string)) {
	c.Helper()
	versions := func() map[string]string {
		list, err := goneApps(c).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			c.Fatal(err)
		}
		versions := map[string]string{}
		for _, object := range list.Items {
			versions[object.GetName()] = string(object.GetUID()) + " " + object.GetResourceVersion()
		}
		return versions
	}
	before, n := versions(), len(c.Writes())
	return func(when string) {
		c.Helper()
		if got := c.Writes()[n:]; len(got) > 0 {
			c.Errorf("%s: written %v; want nothing", when, got)
		}
		if now := versions(); !maps.Equal(now, before) {
			c.Errorf("%s: the apps are %v; want them as before: %v", when, now, before)
		}
	}
}

func goneAwaitPhase(c *fleettest.Child, description, want string) {
	c.Helper()
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool { phase, _ := c.Phase(description); return phase == want }, func() string {
		phase, reason := c.Phase(description)
		return fmt.Sprintf("Description %s: the phase is %q (%s), want %s", description, phase, reason, want)
	})
}

func goneAwaitNone(c *fleettest.Child, descriptions ...string) {
	c.Helper()
	for _, name := range descriptions {
		fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return c.Description(name) == nil }, func() string {
			phase, reason := c.Phase(name)
			return fmt.Sprintf("Description %s is still there: %s %s", name, phase, reason)
		})
	}
}

// goneAwaitImages waits until apps have these images; empty: until they are gone.
func goneAwaitImages(c *fleettest.Child, when string, want map[string]string) {
	c.Helper()
	got := map[string]string{}
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool {
		images := c.Images()
		clear(got)
		for name := range want {
			got[name] = images[name]
		}
		return maps.Equal(got, want)
	}, func() string { return fmt.Sprintf("%s: the images are %v, want %v", when, got, want) })
}

// goneRegister creates a ManagedCluster that is paused from the start.
func goneRegister(f *fleettest.Fleet, c *fleettest.Child, mode syncgate.Mode) {
	c.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"clusterId": string(c.ID), "syncMode": string(mode), "syncPaused": true},
	}}
	object.SetGroupVersionKind(informer.Resource.GroupVersion().WithKind("ManagedCluster"))
	object.SetName(c.Name)
	_, err := f.Parent.Client.Resource(informer.Resource).Namespace(c.Namespace).Create(context.Background(), object, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

// appOf is what a Description of a cluster has by default.
func (c *modesCluster) appOf(description string) string { return c.app() + "-" + description }

// describeEach has each Description want its own app.
func (c *modesCluster) describeEach(image string, descriptions ...string) {
	c.Helper()
	for _, name := range descriptions {
		c.Describe(name, fleettest.App(c.appOf(name), image))
	}
}

func (c *modesCluster) awaitEach(when, image string, descriptions ...string) {
	c.Helper()
	want := map[string]string{}
	for _, name := range descriptions {
		want[c.appOf(name)] = image
	}
	goneAwaitImages(c.Child, when, want)
	if image != "" {
		for _, name := range descriptions {
			goneAwaitPhase(c.Child, name, "Success")
		}
	}
}

const goneReported = `{"status":{"appPusher":true}}`

// When a ManagedCluster is deleted, the last decision holds for an agent, and a hub lets
// go without touching the child.
func TestManagedClusterGone(t *testing.T) {
	t.Parallel()
	f := fleettest.New(t, 1, syncgate.Pull)
	for i, test := range []struct {
		name string
		run  func(*fleettest.Fleet, *modesCluster)
	}{
		{"HubPaused", goneHubPaused},
		{"HubOpen", goneHubOpen},
		{"HubRestart", goneHubRestart},
		{"AgentPaused", goneAgentPaused},
		{"AgentOpen", goneAgentOpen},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := modesClusterOf(f.Children[0], 300+i)
			c.TB = t
			test.run(f.In(t), c)
		})
	}
}

func goneHubPaused(f *fleettest.Fleet, c *modesCluster) {
	c.Register(syncgate.Push)
	c.Patch(goneReported, "status")
	c.describeEach("1", "before", "after", "stays")
	modesHub(f, c)
	c.awaitEach("at first", "1", "before", "after", "stays")
	c.Pause()
	modesAwaitPaused(c.Child)
	check := goneLeaveAlone(c.Child)
	c.DeleteDescription("before")
	c.describeEach("2", "stays")
	goneAwaitPhase(c.Child, "before", "Pending")
	goneAwaitPhase(c.Child, "stays", "Pending")

	c.Unregister()
	goneAwaitNone(c.Child, "before")
	c.DeleteDescription("after")
	goneAwaitNone(c.Child, "after")
	check("let go of what was deleted")
	c.describeEach("3", "stays")
	modesWait(modesQuiet)
	check("without a ManagedCluster")

	goneRegister(f, c.Child, syncgate.Push)
	c.Patch(goneReported, "status")
	modesWait(modesQuiet)
	check("with a new ManagedCluster, paused")
	c.Resume()
	c.awaitEach("resumed", "3", "stays")
	c.awaitApps("resumed", "1", "before", "after") // they were let go
}

func (c *modesCluster) awaitApps(when, image string, descriptions ...string) {
	c.Helper()
	for _, name := range descriptions {
		goneAwaitImages(c.Child, when, map[string]string{c.appOf(name): image})
	}
}

func goneHubOpen(f *fleettest.Fleet, c *modesCluster) {
	c.Register(syncgate.Push)
	c.Patch(goneReported, "status")
	c.describeEach("1", "waiting", "later", "stays")
	modesHub(f, c)
	c.awaitEach("at first", "1", "waiting", "later", "stays")
	// One is deleted while the child is away: that the hub lets it go tells that it
	// has seen the deletion of the ManagedCluster.
	c.byHub.cut.Store(true)
	c.DeleteDescription("waiting")
	goneAwaitPhase(c.Child, "waiting", "Failure")
	check := goneLeaveAlone(c.Child)
	c.Unregister()
	goneAwaitNone(c.Child, "waiting")
	c.byHub.cut.Store(false)
	c.DeleteDescription("later")
	goneAwaitNone(c.Child, "later")
	c.describeEach("2", "stays")
	modesWait(modesQuiet)
	check("without a ManagedCluster")

	c.Register(syncgate.Push)
	modesWait(modesQuiet)
	check("with a new ManagedCluster whose agent has not reported")
	c.Patch(goneReported, "status")
	c.awaitEach("with a new ManagedCluster", "2", "stays")
	c.awaitApps("with a new ManagedCluster", "1", "waiting", "later")
	uid := goneUID(c.Child, c.appOf("later"))
	c.describeEach("2", "later")
	c.awaitEach("described again", "2", "later")
	if got := goneUID(c.Child, c.appOf("later")); got != uid {
		c.Errorf("an app that was let go and is described again has UID %s, want %s as before", got, uid)
	}
	c.Drift(c.appOf("later"), "drift")
	c.awaitEach("drifted", "2", "later")
}

func goneHubRestart(f *fleettest.Fleet, c *modesCluster) {
	c.Register(syncgate.Push)
	c.Patch(goneReported, "status")
	c.describeEach("1", "before", "after", "stays")
	stop := modesHub(f, c)
	c.awaitEach("at first", "1", "before", "after", "stays")
	c.Pause()
	modesAwaitPaused(c.Child)
	check := goneLeaveAlone(c.Child)
	c.DeleteDescription("before")
	goneAwaitPhase(c.Child, "before", "Pending")
	stop()
	c.Unregister()
	c.describeEach("2", "stays")
	modesHub(f, c)
	goneAwaitNone(c.Child, "before")
	c.DeleteDescription("after")
	goneAwaitNone(c.Child, "after")
	modesWait(modesQuiet)
	check("with a hub that has never seen the ManagedCluster")
	c.Register(syncgate.Push)
	c.Patch(goneReported, "status")
	c.awaitEach("with a new ManagedCluster", "2", "stays")
}

func goneAgentPaused(f *fleettest.Fleet, c *modesCluster) {
	c.Register(syncgate.Pull)
	c.describeEach("1", "before", "after", "stays")
	run := func() (stop func()) {
		return fleettest.Run(f.TB, func(ctx context.Context) error { return agent.Run(ctx, c.agent(f, syncgate.Pull, false)) })
	}
	stop := run()
	c.awaitEach("at first", "1", "before", "after", "stays")
	c.Pause()
	modesAwaitPaused(c.Child)
	check := goneLeaveAlone(c.Child)
	c.DeleteDescription("before")
	goneAwaitPhase(c.Child, "before", "Pending")
	c.Unregister()
	modesWait(modesQuiet) // until the agent has seen it, which nothing tells
	c.DeleteDescription("after")
	c.describeEach("2", "stays")
	goneAwaitPhase(c.Child, "after", "Pending")
	goneAwaitPhase(c.Child, "stays", "Pending")
	modesWait(modesQuiet)
	check("without a ManagedCluster")
	stop()
	stop = run()
	modesWait(modesQuiet)
	check("started anew without a ManagedCluster")
	goneRegister(f, c.Child, syncgate.Pull)
	modesAwaitPaused(c.Child)
	modesWait(modesQuiet)
	check("with a new ManagedCluster, paused")
	for _, name := range []string{"before", "after"} {
		if c.Description(name) == nil {
			c.Errorf("Description %s is gone, and its app was not deleted", name)
		}
	}
	c.Resume()
	c.awaitEach("resumed", "2", "stays")
	c.awaitEach("resumed", "", "before", "after")
	goneAwaitNone(c.Child, "before", "after")
	stop()
}

func goneAgentOpen(f *fleettest.Fleet, c *modesCluster) {
	c.Register(syncgate.Pull)
	c.describeEach("1", "before", "stays")
	fleettest.Run(f.TB, func(ctx context.Context) error { return agent.Run(ctx, c.agent(f, syncgate.Pull, false)) })
	c.awaitEach("at first", "1", "before", "stays")
	c.Unregister()
	modesWait(modesQuiet) // until the agent has seen it, which nothing tells
	c.describeEach("2", "stays")
	c.awaitEach("without a ManagedCluster", "2", "stays")
	c.DeleteDescription("before")
	c.awaitEach("without a ManagedCluster", "", "before")
	goneAwaitNone(c.Child, "before")

	goneRegister(f, c.Child, syncgate.Pull)
	modesAwaitPaused(c.Child)
	check := goneLeaveAlone(c.Child)
	c.describeEach("3", "stays")
	goneAwaitPhase(c.Child, "stays", "Pending")
	modesWait(modesQuiet)
	check("with a new ManagedCluster, paused")
	c.Unregister()
	modesWait(modesQuiet)
	check("and that deleted")
	c.Register(syncgate.Pull)
	c.awaitEach("with a third, open", "3", "stays")
}

// A child that does not answer, and then one that is not there, delays no other.
func TestChildAway(t *testing.T) {
	t.Parallel()
	f := fleettest.New(t, 2, syncgate.Push)
	var clusters []*modesCluster
	for i, c := range f.Children {
		c.Unregister()
		own := modesClusterOf(c, 400+i)
		own.Register(syncgate.Push)
		own.Patch(goneReported, "status")
		clusters = append(clusters, own)
	}
	away, well := clusters[0], clusters[1]
	var sets []string // more than there are workers
	for i := range 10 {
		sets = append(sets, fmt.Sprintf("set%d", i))
	}
	away.describeEach("0", sets...)
	well.describeEach("0", sets...)
	stop := modesHub(f, clusters...)
	away.awaitEach("at first", "0", sets...)
	well.awaitEach("at first", "0", sets...)

	// atOnce is far less than what a request may take, after which it is given up.
	const atOnce = 5 * time.Second
	edits := func(how string, images ...string) {
		t.Helper()
		var longest time.Duration
		for _, image := range images {
			away.describeEach(image, sets...)
			modesWait(200 * time.Millisecond)
			began := time.Now()
			well.describeEach(image, sets...)
			well.awaitEach(how, image, sets...)
			longest = max(longest, time.Since(began))
		}
		t.Logf("%s: an edit of %d Descriptions of the other takes up to %v", how, len(sets), longest)
		if longest > atOnce {
			t.Errorf("%s: an edit of the other takes %v, want at most %v", how, longest, atOnce)
		}
	}
	answer := make(chan struct{})
	var hanging atomic.Int64
	f.Children[0].Intercept(func(r *http.Request) int {
		hanging.Add(1)
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		return 0
	})
	edits("one hangs", "1", "2", "3")
	if hanging.Load() == 0 {
		t.Error("nothing was asked of the one that hangs")
	}
	close(answer)
	began := time.Now()
	away.awaitEach("answering again", "3", sets...)
	t.Logf("the one that hung has caught up in %v", time.Since(began))

	if err := f.Children[0].Stop(); err != nil {
		t.Fatal(err)
	}
	edits("one is down", "4", "5", "6")
	goneAwaitPhase(away.Child, sets[0], "Failure")
	began = time.Now()
	stop()
	if took := time.Since(began); took > atOnce {
		t.Errorf("the hub ends in %v while one is down, want at most %v", took, atOnce)
	}
}

// What is wrong with one Description is told in its status, and harms no other.
func TestTroubles(t *testing.T) {
	t.Parallel()
	f := fleettest.New(t, 1, syncgate.Pull)
	for i, test := range []struct {
		name string
		run  func(*fleettest.Fleet, *modesCluster)
	}{
		{"Malformed", goneMalformed},
		{"Impossible", goneImpossible},
		{"ClaimedTwice", goneClaimedTwice},
		{"MovedAddFirst", goneMovedAddFirst},
		{"MovedRemoveFirst", goneMovedRemoveFirst},
		{"MovedToNowhere", goneMovedToNowhere},
		{"TwiceInOne", goneTwiceInOne},
		{"KindComesLate", goneKindComesLate},
		{"KindGoes", goneKindGoes},
		{"OtherVersion", goneOtherVersion},
		{"WithdrawnVersion", goneWithdrawnVersion},
		{"NotRecorded", goneNotRecorded},
		{"Crash", goneCrash},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := modesClusterOf(f.Children[0], 500+i)
			c.TB = t
			c.Register(syncgate.Pull)
			test.run(f.In(t), c)
		})
	}
}

// run runs an agent of the cluster.
func (c *modesCluster) run(f *fleettest.Fleet) (stop func()) {
	return fleettest.Run(f.TB, func(ctx context.Context) error { return agent.Run(ctx, c.agent(f, syncgate.Pull, false)) })
}

// describeRaw is Describe for what need not be an object.
func (c *modesCluster) describeRaw(f *fleettest.Fleet, name string, raw ...string) {
	c.Helper()
	var encoded []string
	for _, each := range raw {
		encoded = append(encoded, base64.StdEncoding.EncodeToString([]byte(each)))
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"raw": encoded}})
	if err != nil {
		c.Fatal(err)
	}
	_, err = f.Parent.Client.Resource(deploy.Resource).Namespace(c.Namespace).
		Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

// awaitFailure waits for the phase Failure with a reason that has all of these.
func (c *modesCluster) awaitFailure(description string, texts ...string) {
	c.Helper()
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool {
		phase, reason := c.Phase(description)
		return phase == "Failure" && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(reason, text) })
	}, func() string {
		phase, reason := c.Phase(description)
		return fmt.Sprintf("Description %s: %q, %q; want a Failure whose reason has each of %q", description, phase, reason, texts)
	})
}

func goneMalformed(f *fleettest.Fleet, c *modesCluster) {
	c.describeEach("1", "bad", "good")
	c.run(f)
	c.awaitEach("at first", "1", "bad", "good")
	whole, err := json.Marshal(fleettest.App(c.appOf("bad"), "2"))
	if err != nil {
		c.Fatal(err)
	}
	for i, test := range []struct{ raw, reason string }{
		{`{"apiVersion":"demo.example.com/v1","kind":"App"`, "unexpected end of JSON input"},
		{`{"apiVersion":"demo.example.com/v1"}`, "Kind"},
		{`{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"namespace":"default"}}`, "the App has no name"},
	} {
		c.describeRaw(f, "bad", string(whole), test.raw)
		c.awaitFailure("bad", c.Namespace+"/bad", "spec.raw[1]", test.reason)
		c.describeEach(fmt.Sprint(i), "good")
		c.awaitEach("beside a malformed one", fmt.Sprint(i), "good")
	}
	c.describeEach("3", "bad")
	c.awaitEach("corrected", "3", "bad")

	// It can be deleted malformed as well.
	c.describeRaw(f, "bad", "{")
	c.awaitFailure("bad", "spec.raw[0]")
	c.DeleteDescription("bad")
	goneAwaitNone(c.Child, "bad")
	c.awaitEach("deleted malformed", "", "bad")
}

// An object that can be read but can't be anywhere is a mistake that can be corrected,
// and must not keep its Description from being deleted.
func goneImpossible(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	const within = 3 * time.Second // a failure is tried again after up to a minute
	for i, test := range []struct{ what, raw, reason string }{
		{"no namespace", `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"name":"x"}}`, "it has no namespace"},
		{"a namespace too many", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x","namespace":"default"}}`, "its kind has no namespaces"},
		{"no such kind", `{"apiVersion":"demo.example.com/v1","kind":"Ap","metadata":{"name":"x","namespace":"default"}}`, "does not serve this kind"},
		{"no such group", `{"apiVersion":"x.example.com/v1","kind":"App","metadata":{"name":"x","namespace":"default"}}`, "does not serve this kind"},
		{"no such version", `{"apiVersion":"a/b/c","kind":"App","metadata":{"name":"x","namespace":"default"}}`, "a/b/c"},
		{"no version", `{"kind":"App","metadata":{"name":"x","namespace":"default"}}`, "App default/x"},
		{"no such name", `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"name":"X_/y","namespace":"default"}}`, "X_/y"},
	} {
		corrected, deleted := fmt.Sprintf("corrected%d", i), fmt.Sprintf("deleted%d", i)
		for _, name := range []string{corrected, deleted} {
			c.describeEach("1", name)
			goneAwaitPhase(c.Child, name, "Success")
			c.describeRaw(f, name, test.raw)
			c.awaitFailure(name, test.reason)
		}
		c.describeEach("2", corrected)
		c.DeleteDescription(deleted)
		fleettest.Eventually(c.TB, within, func() bool { phase, _ := c.Phase(corrected); return phase == "Success" }, func() string {
			phase, reason := c.Phase(corrected)
			return fmt.Sprintf("%s, corrected: %s (%s); want Success", test.what, phase, reason)
		})
		fleettest.Eventually(c.TB, within, func() bool { return c.Description(deleted) == nil }, func() string {
			phase, reason := c.Phase(deleted)
			return fmt.Sprintf("%s, deleted: it is still there: %s (%s)", test.what, phase, reason)
		})
	}
}

func goneClaimedTwice(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	both := c.app()
	c.Describe("first", fleettest.App(both, "1"))
	goneAwaitPhase(c.Child, "first", "Success")
	c.Describe("second", fleettest.App(both, "2"), fleettest.App(c.appOf("second"), "2"))
	c.awaitFailure("second", c.Namespace+"/first has it too", "App default/"+both)
	goneAwaitImages(c.Child, "claimed twice", map[string]string{both: "1", c.appOf("second"): "2"})
	modesWait(2 * modesQuiet)
	if got := c.written(); len(got) != 1 {
		c.Errorf("claimed twice: written %v; want the first write only", got)
	}
	if phase, reason := c.Phase("first"); phase != "Success" {
		c.Errorf("the first Description is %s (%s), want Success", phase, reason)
	}
	c.Drift(both, "drift")
	goneAwaitImages(c.Child, "drifted", map[string]string{both: "1"})

	began := time.Now()
	c.DeleteDescription("second")
	goneAwaitNone(c.Child, "second")
	goneAwaitImages(c.Child, "the second deleted", map[string]string{both: "1", c.appOf("second"): ""})
	c.Describe("second", fleettest.App(both, "2"))
	c.awaitFailure("second", c.Namespace+"/first has it too")
	c.DeleteDescription("first")
	goneAwaitImages(c.Child, "the first deleted", map[string]string{both: "2"})
	goneAwaitPhase(c.Child, "second", "Success")
	c.Logf("taken over %v after the first was deleted", time.Since(began))
}

// An app that moves is not deleted on the way: the second Description has asked for it
// before the first gives it up.
func goneMovedAddFirst(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	moves, from, to := c.app(), fleettest.App(c.appOf("from"), "1"), fleettest.App(c.appOf("to"), "1")
	c.Describe("from", from, fleettest.App(moves, "1"))
	c.Describe("to", to)
	goneAwaitPhase(c.Child, "from", "Success")
	goneAwaitPhase(c.Child, "to", "Success")
	uid := goneUID(c.Child, moves)
	c.Describe("to", to, fleettest.App(moves, "2"))
	c.awaitFailure("to", c.Namespace+"/from has it too")
	modesWait(modesQuiet) // a person does not do the one right after the other
	began := time.Now()
	c.Describe("from", from)
	goneAwaitImages(c.Child, "moved", map[string]string{moves: "2"})
	c.Logf("moved in %v", time.Since(began))
	if got := goneUID(c.Child, moves); got != uid {
		c.Errorf("the app that has moved was deleted on the way and created anew, after %v", time.Since(began))
	}
	goneAwaitPhase(c.Child, "to", "Success")
}

// One that is given up before it is asked for has been unwanted for a moment.
func goneMovedRemoveFirst(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	moves, from, to := c.app(), fleettest.App(c.appOf("from"), "1"), fleettest.App(c.appOf("to"), "1")
	for range 5 {
		c.Describe("from", from, fleettest.App(moves, "1"))
		c.Describe("to", to)
		goneAwaitPhase(c.Child, "from", "Success")
		goneAwaitPhase(c.Child, "to", "Success")
		c.Describe("from", from)
		c.Describe("to", to, fleettest.App(moves, "2"))
		goneAwaitImages(c.Child, "moved", map[string]string{moves: "2"})
		goneAwaitPhase(c.Child, "from", "Success")
		goneAwaitPhase(c.Child, "to", "Success")
		c.Describe("to", to)
		goneAwaitImages(c.Child, "removed", map[string]string{moves: ""})
	}
}

// A Description asks for an app and never gets it: that another one has given it up
// for its sake must not leave it behind when nobody asks for it any more.
func goneMovedToNowhere(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	for name, raw := range map[string]string{
		"refused":   `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"namespace":"default","name":%q},"spec":{"image":5}}`,
		"malformed": `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"namespace":"default","name":%q}}`,
	} {
		from, to, moves := "from-"+name, "to-"+name, c.appOf(name)
		c.Describe(from, fleettest.App(moves, "1"))
		goneAwaitPhase(c.Child, from, "Success")
		c.describeEach("1", to)
		goneAwaitPhase(c.Child, to, "Success")
		objects := []string{fmt.Sprintf(raw, moves)}
		if name == "malformed" {
			objects = append(objects, "{")
		}
		c.describeRaw(f, to, objects...)
		c.awaitFailure(to)
		c.Describe(from)
		modesWait(modesQuiet / 2)
		c.describeEach("2", to)
		c.awaitEach("corrected", "2", to)
		goneAwaitPhase(c.Child, from, "Success")
		modesWait(modesQuiet / 2)
		if got := c.Images()[moves]; got != "" {
			c.Errorf("%s: the app is left in the child, and no Description has it", name)
		}
	}
}

// A Description that contradicts itself must not make its deployer write for ever.
func goneTwiceInOne(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	c.Describe("web", fleettest.App(c.app(), "1"), fleettest.App(c.app(), "2"))
	modesWait(2 * modesQuiet)
	n := len(c.written())
	modesWait(modesQuiet)
	if now := len(c.written()); now > n || n > 2 {
		phase, reason := c.Phase("web")
		c.Errorf("an object that is twice in one Description was written %d times in %v, and %d times more in %v (%s %s); want it refused",
			n, 2*modesQuiet, now-n, modesQuiet, phase, reason)
	}
	c.Describe("web", fleettest.App(c.app(), "3"))
	goneAwaitImages(c.Child, "corrected", map[string]string{c.app(): "3"})
	goneAwaitPhase(c.Child, "web", "Success")
}

const goneGroup = "gone.example.com"

// goneCRD returns a CRD with these versions, of which the first is stored; one with a
// minus sign is not served.
func goneCRD(kind string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	keep, plural := true, strings.ToLower(kind)+"s"
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + goneGroup}}
	crd.Spec.Group, crd.Spec.Scope = goneGroup, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)}
	for i, version := range versions {
		name := strings.TrimPrefix(version, "-")
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: name == version, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
			},
		})
	}
	return crd
}

func goneApply(c *modesCluster, crd *apiextensionsv1.CustomResourceDefinition) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fleettest.Soon)
	defer cancel()
	if err := c.Apply(ctx, crd); err != nil {
		c.Fatal(err)
	}
}

// goneThing is an object of such a CRD.
func goneThing(kind, version, name, size string) map[string]any {
	return map[string]any{
		"apiVersion": goneGroup + "/" + version, "kind": kind,
		"metadata": map[string]any{"namespace": fleettest.AppNamespace, "name": name},
		"spec":     map[string]any{"size": size},
	}
}

// thing returns one that the child has, or nil.
func (c *modesCluster) thing(kind, version, name string) *unstructured.Unstructured {
	c.Helper()
	resource := schema.GroupVersionResource{Group: goneGroup, Version: version, Resource: strings.ToLower(kind) + "s"}
	object, err := c.Client.Resource(resource).Namespace(fleettest.AppNamespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return object
}

// awaitThing waits until it has a size; empty: until it is gone.
func (c *modesCluster) awaitThing(when, kind, version, name, size string) *unstructured.Unstructured {
	c.Helper()
	var object *unstructured.Unstructured
	got := ""
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool {
		got = ""
		if object = c.thing(kind, version, name); object != nil {
			got, _, _ = unstructured.NestedString(object.Object, "spec", "size")
		}
		return got == size
	}, func() string { return fmt.Sprintf("%s: %s %s has size %q, want %q", when, kind, name, got, size) })
	return object
}

func goneKindComesLate(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	c.describeEach("1", "web")
	c.awaitEach("at first", "1", "web")
	c.Describe("web", goneThing("Late", "v1", "one", "1"), fleettest.App(c.app(), "1"))
	c.awaitFailure("web", "Late default/one", "does not serve this kind", "CustomResourceDefinition")
	goneAwaitImages(c.Child, "beside a kind that is not served", map[string]string{c.app(): "1"})
	c.describeEach("1", "other")
	c.awaitEach("beside a kind that is not served", "1", "other")
	const missing = 3 * time.Second
	modesWait(missing)
	c.awaitApps("which is not there to replace it", "1", "web")
	goneApply(c, goneCRD("Late", "v1"))
	began := time.Now()
	c.awaitThing("with its CRD", "Late", "v1", "one", "1")
	c.Logf("a kind that was missing for %v is applied %v after its CRD came", missing, time.Since(began))
	goneAwaitPhase(c.Child, "web", "Success")
	c.awaitApps("replaced", "", "web")
}

func goneKindGoes(f *fleettest.Fleet, c *modesCluster) {
	goneApply(c, goneCRD("Brief", "v1"))
	c.run(f)
	c.Describe("web", goneThing("Brief", "v1", "one", "1"))
	c.Describe("goes", goneThing("Brief", "v1", "two", "1"))
	c.awaitThing("at first", "Brief", "v1", "one", "1")
	c.awaitThing("at first", "Brief", "v1", "two", "1")
	crds := c.Client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	name := goneCRD("Brief").Name
	if err := crds.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool {
		_, err := crds.Get(context.Background(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() string { return "the CRD is still there" })
	c.awaitFailure("web")
	c.DeleteDescription("goes")
	goneAwaitNone(c.Child, "goes")

	goneApply(c, goneCRD("Brief", "v1"))
	c.awaitThing("with a new CRD", "Brief", "v1", "one", "1")
	goneAwaitPhase(c.Child, "web", "Success")
	c.DeleteDescription("web")
	goneAwaitNone(c.Child, "web")
	c.awaitThing("deleted", "Brief", "v1", "one", "")
}

func goneOtherVersion(f *fleettest.Fleet, c *modesCluster) {
	goneApply(c, goneCRD("Grown", "v1", "v1beta1"))
	c.run(f)
	c.Describe("web", goneThing("Grown", "v1beta1", "one", "1"))
	uid := c.awaitThing("at first", "Grown", "v1", "one", "1").GetUID()
	for size, version := range map[string]string{"2": "v1", "3": "v1beta1"} {
		c.Describe("web", goneThing("Grown", version, "one", size))
		if got := c.awaitThing("in "+version, "Grown", "v1", "one", size).GetUID(); got != uid {
			c.Errorf("in %s it has UID %s, want %s as before: it was created anew", version, got, uid)
		}
		goneAwaitPhase(c.Child, "web", "Success")
		manifests, _, _ := unstructured.NestedSlice(c.Description("web").Object, "status", "manifestStatuses")
		if len(manifests) != 1 || manifests[0].(map[string]any)["apiVersion"] != goneGroup+"/"+version {
			c.Errorf("in %s status.manifestStatuses = %v; want the one object in that version", version, manifests)
		}
	}
	for _, w := range c.Writes() {
		if w.Method == http.MethodDelete && strings.HasSuffix(w.Path, "/growns/one") {
			c.Errorf("it was deleted: %v", w)
		}
	}
	c.Describe("web")
	c.awaitThing("removed", "Grown", "v1", "one", "")
}

// What was written in a version that the child does not serve any more is deleted in
// another one.
func goneWithdrawnVersion(f *fleettest.Fleet, c *modesCluster) {
	for name, restart := range map[string]bool{"Stale": false, "Fresh": true} {
		goneApply(c, goneCRD(name, "v1", "v1beta1"))
		stop := c.run(f)
		c.Describe("removed", goneThing(name, "v1beta1", "one", "1"), fleettest.App(c.appOf("removed"), "1"))
		c.Describe("deleted", goneThing(name, "v1beta1", "two", "1"))
		c.awaitThing("at first", name, "v1", "one", "1")
		c.awaitThing("at first", name, "v1", "two", "1")
		goneAwaitPhase(c.Child, "removed", "Success")
		goneAwaitPhase(c.Child, "deleted", "Success")
		goneApply(c, goneCRD(name, "v1", "-v1beta1"))
		fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return c.thing(name, "v1beta1", "one") == nil },
			func() string { return "v1beta1 is still served" })
		if restart {
			stop()
			stop = c.run(f)
		}
		c.Describe("removed", fleettest.App(c.appOf("removed"), "2"))
		c.awaitEach("removed", "2", "removed")
		c.DeleteDescription("deleted")
		goneAwaitNone(c.Child, "deleted")
		for _, object := range []string{"one", "two"} {
			fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return c.thing(name, "v1", object) == nil }, func() string {
				return fmt.Sprintf("%s %s is left in the child, and no Description knows of it; the deployer was started anew: %t", name, object, restart)
			})
		}
		stop()
	}
}

// refuse has the parent refuse what is written to a status of Descriptions, after the
// first so many.
func (c *modesCluster) refuse(f *fleettest.Fleet, after int64) (refused *atomic.Int64, stop func()) {
	var asked, refusals atomic.Int64
	var over atomic.Bool
	f.Parent.Intercept(f.TB, func(r *http.Request) int {
		if over.Load() || r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/"+c.Namespace+"/descriptions/") ||
			!strings.HasSuffix(r.URL.Path, "/status") || asked.Add(1) <= after {
			return 0
		}
		refusals.Add(1)
		return http.StatusInternalServerError
	})
	return &refusals, func() { over.Store(true) }
}

// Nothing is written to the child that is not on record in the parent.
func goneNotRecorded(f *fleettest.Fleet, c *modesCluster) {
	c.run(f)
	first, second, third := c.appOf("first"), c.appOf("second"), c.appOf("third")
	c.Describe("web", fleettest.App(first, "1"))
	goneAwaitPhase(c.Child, "web", "Success")
	check := goneLeaveAlone(c.Child)
	refused, stop := c.refuse(f, 0)
	c.Describe("web", fleettest.App(first, "2"), fleettest.App(second, "2"))
	c.Describe("new", fleettest.App(third, "2"))
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return refused.Load() > 4 }, func() string { return "no status was refused" })
	check("without a record")
	c.Describe("web", fleettest.App(second, "3"))
	modesWait(modesQuiet)
	check("without a record")
	stop()
	goneAwaitImages(c.Child, "recorded", map[string]string{first: "", second: "3", third: "2"})
	goneAwaitPhase(c.Child, "web", "Success")
	c.DeleteDescription("web")
	goneAwaitImages(c.Child, "deleted", map[string]string{second: "", third: "2"})
}

// A deployer that ends after it has written to the child, before it could tell.
func goneCrash(f *fleettest.Fleet, c *modesCluster) {
	end := c.run(f)
	first, second := c.appOf("first"), c.appOf("second")
	refused, stop := c.refuse(f, 1) // but for the record
	c.Describe("web", fleettest.App(first, "1"), fleettest.App(second, "1"))
	goneAwaitImages(c.Child, "before the crash", map[string]string{first: "1", second: "1"})
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return refused.Load() > 0 }, func() string { return "no status was refused" })
	end()
	stop()
	if phase, _ := c.Phase("web"); phase != "" {
		c.Errorf("the phase is %q; want none, since nothing was told", phase)
	}
	c.Describe("web", fleettest.App(first, "2"))
	c.run(f)
	goneAwaitImages(c.Child, "after the crash", map[string]string{first: "2", second: ""})
	goneAwaitPhase(c.Child, "web", "Success")
}
