package e2e

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// changeHub runs a hub that reaches its children as child says.
func changeHub(f *fleettest.Fleet, child func(*fleettest.Child) *rest.Config) {
	for _, c := range f.Children {
		c.Patch(goneReported, "status")
	}
	fleettest.Run(f.TB, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{
			Parent: fleettest.As("hub", f.Parent.Config()),
			Child: func(_ string, id types.UID) (*rest.Config, error) {
				i := slices.IndexFunc(f.Children, func(c *fleettest.Child) bool { return c.ID == id })
				return child(f.Children[i]), nil
			},
		})
	})
}

// settled waits until a hub has also looked once more at what it has written itself.
func settled(c *fleettest.Child) {
	c.Helper()
	<-time.After(1200 * time.Millisecond) // it does so after a second
	c.Quiet()
}

// What changes around a hub while nobody edits a Description.
func TestChanges(t *testing.T) {
	f := fleettest.New(t, 3, syncgate.Push)
	var agent atomic.Value // as which the hub comes
	agent.Store("old")
	changeHub(f, func(c *fleettest.Child) *rest.Config { return fleettest.As(agent.Load().(string), c.Config()) })
	in := func(name string, i int, test func(t *testing.T, c *fleettest.Child)) {
		t.Run(name, func(t *testing.T) { test(t, f.In(t, f.Children[i]).Children[0]) })
	}

	// Another namespace has a ManagedCluster of the same ID, so the gate is not Gone.
	in("SameIDElsewhere", 0, func(t *testing.T, c *fleettest.Child) {
		other := modesClusterOf(c, 950).Child
		other.TB, other.ID = t, c.ID
		other.Register(syncgate.Push)
		c.Describe("one", fleettest.App("one", "1"))
		goneAwaitPhase(c, "one", "Success")
		settled(c)
		c.Pause()
		other.Pause() // nor does it open, which would bring back what is parked
		modesAwaitPaused(c)
		c.DeleteDescription("one")
		goneAwaitPhase(c, "one", "Pending")
		c.Unregister()
		goneAwaitNone(c, "one")
		if got := c.Images()["one"]; got != "1" {
			t.Errorf("the image is %q; want 1: the child is not to be touched", got)
		}
	})

	// The CustomResourceDefinition of a kind is replaced by one of another scope.
	in("Scope", 1, func(t *testing.T, c *fleettest.Child) {
		mc := &modesCluster{Child: c}
		crd := goneCRD("Scoped", "v1")
		goneApply(mc, crd)
		thing := goneThing("Scoped", "v1", "x", "1")
		delete(thing["metadata"].(map[string]any), "namespace")
		c.Describe("scoped", thing)
		goneAwaitPhase(c, "scoped", "Failure")
		crds := c.Client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		if err := crds.Delete(t.Context(), crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		fleettest.Eventually(t, fleettest.Soon, func() bool {
			_, err := crds.Get(t.Context(), crd.Name, metav1.GetOptions{})
			return err != nil
		}, func() string { return "the CustomResourceDefinition is still there" })
		crd = goneCRD("Scoped", "v1")
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
		goneApply(mc, crd)
		goneAwaitPhase(c, "scoped", "Success")
	})

	// The credentials expire while nothing is to be written: the watches are the
	// first to be refused.
	in("Credentials", 2, func(t *testing.T, c *fleettest.Child) {
		c.Describe("two", fleettest.App("two", "1"))
		goneAwaitPhase(c, "two", "Success")
		settled(c)
		agent.Store("new")
		var refused atomic.Bool
		c.Intercept(func(r *http.Request) int {
			if r.UserAgent() == "old" {
				refused.Store(true)
				return http.StatusUnauthorized
			}
			return 0
		})
		// A change of the CustomResourceDefinition ends its watches.
		crds := c.Client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		_, err := crds.Patch(t.Context(), fleettest.Apps.GroupResource().String(), types.MergePatchType,
			[]byte(`{"spec":{"names":{"shortNames":["ap"]}}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fleettest.Eventually(t, fleettest.Soon, refused.Load, func() string { return "the watches go on" })
		c.Drift("two", "x")
		fleettest.Eventually(t, fleettest.Soon, func() bool { return c.Images()["two"] == "1" }, func() string {
			return "the drift is not repaired: nobody has asked for new credentials"
		})
	})
}

// Functions can't be compared, and a child that was taken for moved at each question
// would be asked without end.
func TestConfigWithFunctions(t *testing.T) {
	f := fleettest.New(t, 1, syncgate.Push)
	changeHub(f, func(c *fleettest.Child) *rest.Config {
		config := fleettest.As("hub", c.Config())
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return next })
		return config
	})
	c := f.Children[0]
	names := strings.Fields("a b c d e f g h")
	for _, name := range names {
		c.Describe(name, fleettest.App(name, "1"))
	}
	for _, name := range names {
		goneAwaitPhase(c, name, "Success")
	}
	settled(c)
	before := len(c.Asked())
	c.Pause()
	modesAwaitPaused(c)
	c.Resume()
	fleettest.Eventually(t, fleettest.Soon, func() bool { return strings.HasPrefix(c.Condition(), "False") }, func() string { return "it is still paused" })
	settled(c)
	if asked := c.Asked()[before:]; len(asked) > 0 {
		t.Errorf("a resume with nothing parked has asked the child for %v; want nothing", asked)
	}

	c.Intercept(func(*http.Request) int { return http.StatusUnauthorized })
	before = len(c.Asked())
	c.Describe("a", fleettest.App("a", "2"))
	<-time.After(3 * time.Second) // of nothing but retries
	if n := len(c.Asked()) - before; n > 40 {
		t.Errorf("%d requests in 3 s to a child that refuses them; want a few", n)
	}
}
