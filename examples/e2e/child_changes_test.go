package e2e

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// pushWith runs a hub that reaches the children with these configurations.
func pushWith(f *fleettest.Fleet, config func(*fleettest.Child) *rest.Config) {
	for _, c := range f.Children {
		c.ReportAppPusher(true)
	}
	runHub(f, "hub", "", func(_ string, id types.UID) (*rest.Config, error) {
		i := slices.IndexFunc(f.Children, func(c *fleettest.Child) bool { return c.ID == id })
		return config(f.Children[i]), nil
	}, report.PartyHub)
}

// What changes around a hub while nobody edits a Description.
func TestChanges(t *testing.T) {
	f := fleettest.New(t, 3, syncgate.Push)
	var credentials atomic.Value // the user agent of the hub
	credentials.Store("old")
	pushWith(f, func(c *fleettest.Child) *rest.Config { return fleettest.As(credentials.Load().(string), c.Config()) })
	t.Run("SameIDElsewhere", func(t *testing.T) { testSameIDElsewhere(t, f.Children[0].In(t)) })
	t.Run("Scope", func(t *testing.T) { testScopeChanges(f.Children[1].In(t)) })
	t.Run("Credentials", func(t *testing.T) { testCredentialsExpire(t, f.Children[2].In(t), &credentials) })
}

// Another namespace has a ManagedCluster of the same ID, so the gate is not Gone.
func testSameIDElsewhere(t *testing.T, c *fleettest.Child) {
	other := clusterOn(t, c, 950).Child
	other.ID = c.ID
	other.Register(syncgate.Push)
	c.Describe("one", fleettest.App("one", "1"))
	c.AwaitPhase("Success", "one")
	c.AwaitRecheck()
	c.Pause()
	other.Pause() // nor does it open, which would requeue what is parked
	c.AwaitPaused()
	c.DeleteDescription("one")
	c.AwaitPhase("Pending", "one")
	c.Unregister()
	c.AwaitNoDescription("one")
	if got := c.Images()["one"]; got != "1" {
		t.Errorf("the image is %q; want 1: the child is not to be touched", got)
	}
}

// The CustomResourceDefinition of a kind is replaced by one of another scope.
func testScopeChanges(c *fleettest.Child) {
	crd := thingCRD("Scoped", "v1")
	applyCRD(c, crd)
	scoped := thing("Scoped", "v1", "x", "1")
	delete(scoped["metadata"].(map[string]any), "namespace")
	c.Describe("scoped", scoped)
	c.AwaitPhase("Failure", "scoped")
	deleteCRD(c, crd.Name)
	crd = thingCRD("Scoped", "v1")
	crd.Spec.Scope = apiextensionsv1.ClusterScoped
	applyCRD(c, crd)
	c.AwaitPhase("Success", "scoped")
}

// The credentials expire while nothing is to be written: the watches are refused first.
func testCredentialsExpire(t *testing.T, c *fleettest.Child, credentials *atomic.Value) {
	c.Describe("two", fleettest.App("two", "1"))
	c.AwaitPhase("Success", "two")
	c.AwaitRecheck()
	credentials.Store("new")
	var refused atomic.Bool
	c.Intercept(func(r *http.Request) int {
		if r.UserAgent() == "old" {
			refused.Store(true)
			return http.StatusUnauthorized
		}
		return 0
	})
	// A change of the CustomResourceDefinition ends its watches.
	_, err := crdsOf(c).Patch(t.Context(), fleettest.AppResource.GroupResource().String(), types.MergePatchType,
		[]byte(`{"spec":{"names":{"shortNames":["ap"]}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fleettest.Eventually(t, fleettest.Soon, refused.Load, func() string { return "the watches go on" })
	c.Drift("two", "x")
	c.AwaitImages("drifted, which needs new credentials", map[string]string{"two": "1"})
}

// Functions can't be compared. A child must not count as moved each time its configuration
// is read: it would be read without end.
func TestConfigWithFunctions(t *testing.T) {
	f := fleettest.New(t, 1, syncgate.Push)
	pushWith(f, func(c *fleettest.Child) *rest.Config {
		config := fleettest.As("hub", c.Config())
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return next })
		return config
	})
	c := f.Children[0]
	names := strings.Fields("a b c d e f g h")
	for _, name := range names {
		c.Describe(name, fleettest.App(name, "1"))
	}
	c.AwaitPhase("Success", names...)
	c.AwaitRecheck()
	before := len(c.AllRequests())
	c.Pause()
	c.AwaitPaused()
	c.Resume()
	c.AwaitCondition("False")
	idle()
	if requests := c.AllRequests()[before:]; len(requests) > 0 {
		t.Errorf("a resume with nothing parked has made the requests %v; want none", requests)
	}

	c.Intercept(func(*http.Request) int { return http.StatusUnauthorized })
	before = len(c.AllRequests())
	c.Describe("a", fleettest.App("a", "2"))
	sleep(3 * time.Second) // for retries; a slow machine makes fewer
	if n := len(c.AllRequests()) - before; n > 40 {
		t.Errorf("%d requests in 3 s to a child that refuses them; want a few", n)
	}
}
