package e2e

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// What only a real server shows: who manages which fields, and what keeps an object.
func TestServerSide(t *testing.T) {
	f := fleettest.New(t, 1, syncgate.Pull)
	pulls.run(f, "agent", "")
	c := f.Children[0]
	t.Run("Adopted", func(t *testing.T) { testAdopted(t, c.In(t)) })
	t.Run("Terminating", func(t *testing.T) { testTerminating(t, c.In(t)) })
	t.Run("ForeignAnnotation", func(t *testing.T) { testForeignAnnotation(t, c.In(t)) })
}

func withReplicas(app map[string]any, replicas int64) map[string]any {
	app["spec"].(map[string]any)["replicas"] = replicas
	return app
}

// An app was there before its Description. A field that leaves the Description leaves the
// app: it gets its default again.
func testAdopted(t *testing.T, c *fleettest.Child) {
	app := &unstructured.Unstructured{Object: withReplicas(fleettest.App("adopted", "1"), 3)}
	if _, err := c.Apps().Create(t.Context(), app, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Describe("adopts", withReplicas(fleettest.App("adopted", "1"), 3))
	c.AwaitPhase("Success", "adopts")
	c.Describe("adopts", fleettest.App("adopted", "2"))
	c.AwaitImages("edited", map[string]string{"adopted": "2"})
	c.AwaitPhase("Success", "adopts")
	if got, _, _ := unstructured.NestedInt64(c.AppObject("adopted").Object, "spec", "replicas"); got != 1 {
		t.Errorf("the app has %d replicas; want 1, the default, since they left the Description", got)
	}
	c.DeleteDescription("adopts")
	c.AwaitNoDescription("adopts")
}

func testTerminating(t *testing.T, c *fleettest.Child) {
	keep := func(finalizers string) {
		c.PatchApp("slow", fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, finalizers))
	}
	c.Describe("waits", fleettest.App("slow", "1"))
	c.AwaitPhase("Success", "waits")
	keep(`["example.com/keep"]`)
	c.DeleteDescription("waits")
	var phase, reason string
	fleettest.Eventually(t, fleettest.Soon, func() bool {
		phase, reason = c.Phase("waits")
		return phase == "Pending" && reason == "waiting until App default/slow is deleted: it has the finalizers example.com/keep"
	}, func() string { return fmt.Sprintf("it is %q (%s); want it to wait", phase, reason) })
	keep("null")
	c.AwaitNoDescription("waits")
	if c.AppObject("slow") != nil {
		t.Error("it is released before the app is gone")
	}
}

// What somebody else writes of an app all the time costs nothing.
func testForeignAnnotation(t *testing.T, c *fleettest.Child) {
	c.Describe("noisy", fleettest.App("noisy", "1"), fleettest.App("other", "1"))
	c.AwaitPhase("Success", "noisy")
	fleettest.Eventually(t, fleettest.Soon, func() bool {
		idle()
		before := len(c.AllRequests())
		idle()
		return len(c.AllRequests()) == before
	}, func() string { return "the comparisons after the writes do not end" })
	before := len(c.AllRequests())
	for i := range 20 {
		c.PatchApp("noisy", fmt.Sprintf(`{"metadata":{"annotations":{"example.com/renewed":"%d"}}}`, i))
	}
	idle()
	idle()
	if got := c.AllRequests()[before:]; len(got) > 0 {
		t.Errorf("the child has had %v; want nothing", got)
	}
	c.Drift("noisy", "x")
	c.AwaitImages("drifted", map[string]string{"noisy": "1"})
	if got := c.AllRequests()[before:]; len(got) != 3 {
		t.Errorf("the child has had %v; want the app read, compared and written", got)
	}
}
