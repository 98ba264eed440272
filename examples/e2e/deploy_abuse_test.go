package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// What others write in the child, what answers in its place, and what a Description
// says, can be wrong or meant ill. One deployer goes through all of it.
func TestAbuse(t *testing.T) {
	eachDeployer(t, []deployer{pulls, pushes}, 1, func(t *testing.T, f *fleettest.Fleet, d deployer) {
		d.run(f, "one", "")
		for _, test := range []struct {
			name string
			run  func(*fleettest.Fleet, *fleettest.Child)
		}{
			{"AnswersOfAProxy", abuseProxy},
			{"MarkOfAnother", abuseMarks},
			{"ValuesThatAreNoText", abuseValues},
			{"TwoWriters", abuseFight},
		} {
			t.Run(test.name, func(t *testing.T) {
				if d.pushes && test.name == "TwoWriters" {
					t.Skip("it takes long, and the pace is of what both share")
				}
				f := f.In(t)
				test.run(f, f.Children[0])
			})
		}
	})
}

// What stands before a child and does not know it answers 404 to all. That is not to be
// taken for "there is no such object": the object would be forgotten, and left behind.
func abuseProxy(f *fleettest.Fleet, c *fleettest.Child) {
	c.Describe("deleted", fleettest.App("deleted", "1"))
	c.Describe("shrunk", fleettest.App("stays", "1"), fleettest.App("shrunk", "1"))
	phases(c, "Success", "deleted", "shrunk")
	check := goneLeaveAlone(c)
	var objects, kinds, groups atomic.Int64
	c.Intercept(func(r *http.Request) int {
		switch {
		case r.URL.Path == "/apis":
			groups.Add(1)
		case path.Base(r.URL.Path) == fleettest.Apps.Version:
			kinds.Add(1)
		case strings.Contains(r.URL.Path, "/apps/"):
			objects.Add(1)
		}
		return http.StatusNotFound
	})
	c.DeleteDescription("deleted")
	c.Describe("shrunk", fleettest.App("stays", "1"))
	// First for an object; then, since that was odd, for its kind and for all kinds.
	fleettest.Eventually(f, fleettest.Soon, func() bool { return objects.Load() > 0 && kinds.Load() > 4 && groups.Load() > 2 }, func() string {
		return fmt.Sprintf("asked %d times for an object, %d times for its kind, %d times for all; want more", objects.Load(), kinds.Load(), groups.Load())
	})
	phases(c, "Failure", "deleted", "shrunk")
	for _, name := range []string{"deleted", "shrunk"} {
		if object := c.Description(name); object == nil || !slices.Contains(owned(object), name) {
			c.Errorf("Description %s has forgotten what it has in the child: %v", name, object)
		}
	}
	check("behind the proxy")
	c.Intercept(func(*http.Request) int { return 0 })
	goneAwaitNone(c, "deleted")
	goneAwaitImages(c, "answering again", map[string]string{"deleted": "", "shrunk": "", "stays": "1"})
	phases(c, "Success", "shrunk")
}

// owned returns the names of what a Description has in the child by its own account.
func owned(object *unstructured.Unstructured) []string {
	var names []string
	manifests, _, _ := unstructured.NestedSlice(object.Object, "status", "manifestStatuses")
	for _, each := range manifests {
		name, _, _ := unstructured.NestedString(each.(map[string]any), "name")
		names = append(names, name)
	}
	return names
}

// Whose an object is, is marked in the child, where others can write. A mark that no
// Description answers for does not take an object from the one that has it.
func abuseMarks(f *fleettest.Fleet, c *fleettest.Child) {
	c.Describe("keeper", fleettest.App("keeper", "1"))
	marks := map[string]string{
		"nobody":  c.Namespace + ".no-such",
		"nowhere": "no-such.keeper",
		"nothing": ".",
		"another": c.Namespace + ".keeper", // which neither has it nor wants it
		"edited":  c.Namespace + ".keeper",
	}
	var names []string
	for name := range marks {
		c.Describe(name, fleettest.App(name, "1"))
		names = append(names, name)
	}
	phases(c, "Success", append(names, "keeper")...)
	c.Pause()
	modesAwaitPaused(c)
	for name, mark := range marks {
		abuseMark(c, name, mark)
		if name == "edited" {
			c.Describe(name)
		} else {
			c.DeleteDescription(name)
		}
	}
	parked(c, names...)
	c.Resume()
	gone := map[string]string{"keeper": "1"}
	for _, name := range names {
		gone[name] = ""
	}
	goneAwaitImages(c, "resumed", gone)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "edited" })
	goneAwaitNone(c, names...)
	phases(c, "Success", "edited")

	// One that is still wanted is marked anew, and nobody need know why.
	abuseMark(c, "keeper", c.Namespace+".no-such")
	fleettest.Eventually(f, fleettest.Soon, func() bool { return abuseMarkOf(c, "keeper") == c.Namespace+".keeper" }, func() string {
		return fmt.Sprintf("the mark is %q; want that of its Description again", abuseMarkOf(c, "keeper"))
	})
}

const abuseAnnotation = "apps.clusternet.io/owned-by-description"

func abuseMark(c *fleettest.Child, app, mark string) {
	c.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{abuseAnnotation: mark}}})
	if err != nil {
		c.Fatal(err)
	}
	if _, err := goneApps(c).Patch(context.Background(), app, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.Fatal(err)
	}
}

func abuseMarkOf(c *fleettest.Child, app string) string {
	c.Helper()
	object, err := goneApps(c).Get(context.Background(), app, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return object.GetAnnotations()[abuseAnnotation]
}

// Annotations and labels with a value that is no text, which are read as if there were
// none, and would be replaced by the deployer's own.
func abuseValues(f *fleettest.Fleet, c *fleettest.Child) {
	values := &modesCluster{Child: c}
	c.Describe("values", fleettest.App("values", "1"))
	phases(c, "Success", "values")
	c.Quiet()
	check := goneLeaveAlone(c)
	for _, field := range []string{"annotations", "labels"} {
		for _, value := range []string{"3", "true", "null", `{"a":"b"}`, `["a"]`} {
			values.describeRaw(f, "values", fmt.Sprintf(`{"apiVersion":"demo.example.com/v1","kind":"App",
				"metadata":{"namespace":"default","name":"values",%q:{"keep":"me","n":%s}},"spec":{"image":"2"}}`, field, value))
			values.awaitFailure("values", "spec.raw[0]", c.Namespace+"/values", "the "+field+" of App default/values", `non-string value in the map under key "n"`)
			values.describeRaw(f, "values", "{") // so that the next failure is told anew
			values.awaitFailure("values", "unexpected")
		}
	}
	check("values that are no text")
	c.Describe("values", fleettest.App("values", "3"))
	goneAwaitImages(c, "corrected", map[string]string{"values": "3"})
}

// Who fights over an object is answered about once a second, not as fast as it goes.
func abuseFight(f *fleettest.Fleet, c *fleettest.Child) {
	c.Describe("fight", fleettest.App("fight", "1"))
	phases(c, "Success", "fight")
	c.Quiet()
	const lasts = 4 * time.Second
	before, inParent := len(c.Writes()), len(f.Parent.Writes())
	began := time.Now()
	for time.Since(began) < lasts {
		if c.Images()["fight"] == "1" {
			c.Drift("fight", "x")
		}
		modesWait(5 * time.Millisecond)
	}
	seconds := int(time.Since(began) / time.Second)
	if got := len(c.Writes()) - before; got < seconds/2 || got > seconds+1 {
		c.Errorf("in a fight of %d seconds the app was written %d times; want about one a second", seconds, got)
	}
	// Nor is there anything to tell.
	if got := slices.DeleteFunc(f.Parent.Writes()[inParent:], func(w fleettest.Write) bool { return !strings.Contains(w.Path, "/descriptions/") }); len(got) > 1 {
		c.Errorf("in a fight of %d seconds the Description was written: %v; want it left alone", seconds, got)
	}
	goneAwaitImages(c, "given up", map[string]string{"fight": "1"})
}

// A label says which cluster a Description is for, and whoever may write in one
// namespace can write it: it must not reach the cluster of another.
func TestForeignLabel(t *testing.T) {
	f := fleettest.New(t, 2, syncgate.Push)
	own, victim := f.Children[0], f.Children[1]
	var mu sync.Mutex
	asked := map[string]bool{}
	fleettest.Run(t, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{
			Parent: fleettest.As("hub", f.Parent.Config()),
			// By the ID alone, which is a mistake that the hub does not build upon.
			Child: func(namespace string, id types.UID) (*rest.Config, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[namespace+"/"+string(id)] = true
				for _, c := range f.Children {
					if c.ID == id {
						return fleettest.As("hub", c.Config()), nil
					}
				}
				return nil, fmt.Errorf("%s is no child", id)
			},
		})
	})
	for _, c := range f.Children {
		c.Patch(goneReported, "status")
		c.Describe("web", fleettest.App("front", "1"))
		phases(c, "Success", "web")
	}
	settled(victim)
	alone, deployers := leave(victim), abuseDeployers()
	if deployers != len(f.Children) {
		t.Errorf("there are %d deployers; want one for each cluster", deployers)
	}

	// The same names too, in case that it goes by them.
	foreign, unknown := *own, *own
	foreign.ID, unknown.ID = victim.ID, "0b1c2d3e-1111-4a6b-8c7d-999999999999"
	foreign.Describe("web-2", fleettest.App("front", "evil"), fleettest.App("new", "evil"))
	unknown.Describe("unknown", fleettest.App("unknown", "evil"))
	unlabelled := *own
	unlabelled.ID = ""
	unlabelled.Describe("unlabelled", fleettest.App("unlabelled", "evil"))
	own.Describe("web", fleettest.App("front", "2")) // which the hub is told of last
	images(own, fleettest.Soon, map[string]string{"front": "2"})
	victim.Quiet()
	alone.check(t, "with Descriptions of other namespaces")
	if got := abuseDeployers(); got != deployers {
		t.Errorf("labels of no cluster of the namespace: %d deployers; want %d as before", got, deployers)
	}
	for _, name := range []string{"web-2", "unknown", "unlabelled"} {
		if phase, reason := own.Phase(name); phase != "" {
			t.Errorf("Description %s is %s (%s); want it left alone", name, phase, reason)
		}
	}

	// One that was deployed comes to be labelled so.
	abuseLabel(f, own, "web", victim.ID)
	foreign.DeleteDescription("web-2")
	own.DeleteDescription("web")
	own.Describe("last", fleettest.App("last", "1"))
	phases(own, "Success", "last")
	victim.Quiet()
	alone.check(t, "with those deleted")
	images(victim, fleettest.Soon, map[string]string{"front": "1"})
	mu.Lock()
	defer mu.Unlock()
	for cluster := range asked {
		if cluster != own.Namespace+"/"+string(own.ID) && cluster != victim.Namespace+"/"+string(victim.ID) {
			t.Errorf("Child was asked for %s; want nothing but what is registered", cluster)
		}
	}
}

func abuseLabel(f *fleettest.Fleet, c *fleettest.Child, description string, id types.UID) {
	c.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, deploy.ClusterIDLabel, id)
	_, err := f.Parent.Client.Resource(deploy.Resource).Namespace(c.Namespace).
		Patch(context.Background(), description, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

// abuseDeployers returns how many deployers run in this process. No other test runs
// next to one that is not parallel.
func abuseDeployers() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "deploy.(*Deployer).Run(")
}
