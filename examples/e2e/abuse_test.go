package e2e

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

// What others write in the child, what answers in its place, and what a Description
// contains can be wrong or malicious. One deployer goes through all of it.
func TestAbuse(t *testing.T) {
	eachDeployer(t, []deployer{pulls, pushes}, 1, func(t *testing.T, f *fleettest.Fleet, d deployer) {
		d.run(f, "one", "")
		for _, test := range []struct {
			name string
			run  func(*fleettest.Fleet, *fleettest.Child)
		}{
			{"AnswersOfAProxy", testProxyAnswers},
			{"MarkOfAnother", testMarksOfOthers},
			{"ValuesThatAreNoText", testNonStringValues},
			{"TwoWriters", testTwoWriters},
		} {
			t.Run(test.name, func(t *testing.T) {
				if d.pushes && test.name == "TwoWriters" {
					t.Skip("it takes long, and tests code that both deployers share")
				}
				f := f.In(t)
				test.run(f, f.Children[0])
			})
		}
	})
}

// A proxy in front of a child that does not know the child answers 404 to all. This must
// not count as "there is no such object": the object would be forgotten, and stay.
func testProxyAnswers(f *fleettest.Fleet, c *fleettest.Child) {
	c.Describe("deleted", fleettest.App("deleted", "1"))
	c.Describe("shrunk", fleettest.App("stays", "1"), fleettest.App("shrunk", "1"))
	c.AwaitPhase("Success", "deleted", "shrunk")
	check := unchanged(c)
	var objects, kinds, groups atomic.Int64
	c.Intercept(func(r *http.Request) int {
		switch {
		case r.URL.Path == "/apis":
			groups.Add(1)
		case path.Base(r.URL.Path) == fleettest.AppResource.Version:
			kinds.Add(1)
		case strings.Contains(r.URL.Path, "/apps/"):
			objects.Add(1)
		}
		return http.StatusNotFound
	})
	c.DeleteDescription("deleted")
	c.Describe("shrunk", fleettest.App("stays", "1"))
	// The first request is for an object. After that answer, the kind is looked up again.
	fleettest.Eventually(f, fleettest.Soon, func() bool { return objects.Load() > 0 && kinds.Load() > 4 && groups.Load() > 2 }, func() string {
		return fmt.Sprintf("%d requests for an object, %d for its kind, %d for all kinds; want more", objects.Load(), kinds.Load(), groups.Load())
	})
	c.AwaitPhase("Failure", "deleted", "shrunk")
	for _, name := range []string{"deleted", "shrunk"} {
		if object := c.Description(name); object == nil || !slices.Contains(owned(object), name) {
			c.Errorf("Description %s has forgotten what it has in the child: %v", name, object)
		}
	}
	check("behind the proxy")
	c.Intercept(func(*http.Request) int { return 0 })
	c.AwaitNoDescription("deleted")
	c.AwaitImages("answering again", map[string]string{"deleted": "", "shrunk": "", "stays": "1"})
	c.AwaitPhase("Success", "shrunk")
}

// owned returns the names of what a Description has in the child, by its status.
func owned(object *unstructured.Unstructured) []string {
	var names []string
	manifests, _, _ := unstructured.NestedSlice(object.Object, "status", "manifestStatuses")
	for _, each := range manifests {
		name, _, _ := unstructured.NestedString(each.(map[string]any), "name")
		names = append(names, name)
	}
	return names
}

// The owner of an object is marked in the child, where others can write. A mark of a
// Description that does not exist takes the object from nobody. A mark of another one
// keeps the object: what lives may be its.
func testMarksOfOthers(f *fleettest.Fleet, c *fleettest.Child) {
	c.Describe("keeper", fleettest.App("keeper", "1"))
	marks := map[string]string{
		"nobody":  c.Namespace + ".no-such",
		"nowhere": "no-such.keeper",
		"nothing": ".",
		"another": c.Namespace + ".keeper",
		"edited":  c.Namespace + ".keeper",
	}
	var names []string
	for name := range marks {
		c.Describe(name, fleettest.App(name, "1"))
		names = append(names, name)
	}
	c.AwaitPhase("Success", append(names, "keeper")...)
	c.Pause()
	c.AwaitPaused()
	for name, mark := range marks {
		setOwnerMark(c, name, mark)
		if name == "edited" {
			c.Describe(name)
		} else {
			c.DeleteDescription(name)
		}
	}
	c.AwaitParked(names...)
	c.Resume()
	gone := map[string]string{"keeper": "1"}
	for _, name := range names {
		gone[name] = map[bool]string{true: "1"}[marks[name] == c.Namespace+".keeper"]
	}
	c.AwaitImages("resumed", gone)
	names = slices.DeleteFunc(names, func(name string) bool { return name == "edited" })
	c.AwaitNoDescription(names...)
	c.AwaitPhase("Success", "edited")

	// A wrong mark of an app that stays is repaired.
	setOwnerMark(c, "keeper", c.Namespace+".no-such")
	fleettest.Eventually(f, fleettest.Soon, func() bool {
		return c.AppObject("keeper").GetAnnotations()[ownerAnnotation] == c.Namespace+".keeper"
	}, func() string {
		return fmt.Sprintf("the annotations are %v; want the mark of its Description again", c.AppObject("keeper").GetAnnotations())
	})
}

const ownerAnnotation = "apps.clusternet.io/owned-by-description"

func setOwnerMark(c *fleettest.Child, app, mark string) {
	c.Helper()
	c.PatchApp(app, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, ownerAnnotation, mark))
}

// Annotations and labels with a value that is not a string are read as if there were none.
// The deployer's own must not replace them.
func testNonStringValues(_ *fleettest.Fleet, c *fleettest.Child) {
	c.Describe("values", fleettest.App("values", "1"))
	c.AwaitPhase("Success", "values")
	c.Quiet()
	check := unchanged(c)
	for _, field := range []string{"annotations", "labels"} {
		for _, value := range []string{"3", "true", `{"a":"b"}`, `["a"]`} {
			c.DescribeRaw("values", fmt.Sprintf(`{"apiVersion":"demo.example.com/v1","kind":"App",
				"metadata":{"namespace":"default","name":"values",%q:{"keep":"me","n":%s}},"spec":{"image":"2"}}`, field, value))
			c.AwaitFailure("values", "spec.raw[0]", c.Namespace+"/values", "the "+field+" of App default/values", `non-string value in the map under key "n"`)
			c.DescribeRaw("values", "{") // so that the next failure is a new one
			c.AwaitFailure("values", "unexpected")
		}
	}
	check("values that are not strings")
	c.Describe("values", fleettest.App("values", "3"))
	c.AwaitImages("corrected", map[string]string{"values": "3"})
}

// Somebody else writes an object again and again. The deployer repairs it once a second,
// not as fast as it can. A slow machine only makes the fight longer.
func testTwoWriters(f *fleettest.Fleet, c *fleettest.Child) {
	const rounds = 5
	c.Describe("fight", fleettest.App("fight", "1"))
	c.AwaitPhase("Success", "fight")
	c.Quiet()
	before, inParent := len(c.Writes()), len(f.Parent.Writes())
	began := time.Now()
	for range rounds {
		c.Drift("fight", "x")
		c.AwaitImages("repaired", map[string]string{"fight": "1"})
	}
	if took := time.Since(began); took < (rounds-2)*time.Second {
		c.Errorf("%d repairs took %v; want about a second for each", rounds, took)
	}
	if got := len(c.Writes()) - before; got != rounds {
		c.Errorf("the app was written %d times; want %d, once for each drift", got, rounds)
	}
	// Nor is there anything to report.
	got := slices.DeleteFunc(f.Parent.Writes()[inParent:], func(w fleettest.Request) bool { return !strings.Contains(w.Path, "/descriptions/") })
	if len(got) > 1 {
		c.Errorf("during the fight the Description was written: %v; want it left alone", got)
	}
}
