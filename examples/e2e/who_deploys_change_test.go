package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// flips are clusters that the hub comes to deploy to: by spec.syncMode, and by a report.
type flips struct {
	pulled, unreported, deleted, paused *cluster
}

// A cluster that becomes the hub's is deployed to at once, without an edit or a resync.
func testFlips(t *testing.T, f *fleettest.Fleet) {
	clusters := make([]*cluster, 4)
	for i := range clusters {
		clusters[i] = clusterOn(t, f.Children[0], 100+i)
	}
	c := flips{clusters[0], clusters[1], clusters[2], clusters[3]}
	for _, c := range []*cluster{c.pulled, c.deleted, c.paused} {
		c.Register(syncgate.Pull)
		c.ReportAppPusher(true)
		c.edit("1")
	}
	c.unreported.Register(syncgate.Dual)
	c.unreported.edit("1")
	push(f, clusters...)
	checkAlone := func(when string) {
		t.Helper()
		awaitHubObserved(f)
		idle()
		for _, c := range clusters {
			got := c.Description("web")
			if n := len(c.written()); n > 0 || got == nil || got.Object["status"] != nil {
				t.Errorf("%s, %s: %d writes, and the Description is %v; want it left alone", c.Name, when, n, got)
			}
		}
	}
	c.deleted.DeleteDescription("web")
	c.paused.Pause()
	checkAlone("at first")
	c.unreported.ReportAppPusher(false)
	c.paused.edit("2")
	checkAlone("with appPusher false")
	c.toHub(t)
	c.backAndForth(t, f)
}

func (c flips) toHub(t *testing.T) {
	for _, c := range []*cluster{c.pulled, c.deleted, c.paused} {
		c.Patch(`{"spec":{"syncMode":"Dual"}}`)
	}
	c.unreported.ReportAppPusher(true)
	for _, c := range []*cluster{c.pulled, c.unreported} {
		c.await("after the flip", "1")
		if got := c.Description("web").GetGeneration(); got != 1 {
			t.Errorf("%s: the Description has generation %d; want 1: nobody has edited it", c.Name, got)
		}
	}
	c.deleted.AwaitNoDescription("web")
	c.paused.AwaitPhase("Pending", "web")
	if got := c.paused.written(); len(got) > 0 {
		t.Errorf("paused before the flip: written %v; want nothing", got)
	}
	c.paused.Resume()
	c.paused.await("resumed", "2")
}

func (c flips) backAndForth(t *testing.T, f *fleettest.Fleet) {
	clusters := []*cluster{c.pulled, c.unreported}
	c.pulled.Patch(`{"spec":{"syncMode":"Pull"}}`)
	c.unreported.ReportAppPusher(false)
	awaitHubObserved(f)
	for _, c := range clusters {
		c.edit("3")
	}
	idle()
	for _, c := range clusters {
		if got := c.Images()[c.app()]; got != "1" {
			t.Errorf("%s: after the flip back the image is %q; want 1 as before", c.Name, got)
		}
	}
	c.pulled.Patch(`{"spec":{"syncMode":"Push"}}`)
	c.unreported.ReportAppPusher(true)
	for _, c := range clusters {
		c.await("after another flip", "3")
	}
}

// A Dual agent is restarted with AppPusher, and then without: the other side takes over
// what is there, and writes none of it again.
func testTakeOver(t *testing.T, f *fleettest.Fleet) {
	c := clusterOn(t, f.Children[0], 200)
	c.Register(syncgate.Dual)
	push(f, c)
	second := "second-" + c.app()
	image := "0"
	both := func() { c.Describe("web", fleettest.App(c.app(), image), fleettest.App(second, image)) }
	both()
	for i, appPusher := range []bool{false, true, false} {
		by := map[bool]string{true: "hub", false: "agent"}[appPusher]
		before := len(c.written())
		stop := fleettest.Run(t, func(ctx context.Context) error { return c.runAgent(ctx, f, syncgate.Dual, appPusher) })
		fleettest.Eventually(t, fleettest.Soon, func() bool {
			reported, known, _ := unstructured.NestedBool(c.ManagedCluster().Object, "status", "appPusher")
			return known && reported == appPusher
		}, func() string { return fmt.Sprintf("status.appPusher is not %t", appPusher) })
		awaitHubObserved(f)
		if i > 0 {
			idle()
			if got := c.written()[before:]; len(got) > 0 {
				t.Errorf("taken over by the %s: written %v; want nothing, since nothing has changed", by, got)
			}
		}
		for edit := range 2 {
			image = fmt.Sprint(1 + 2*i + edit)
			both()
			c.await("by the "+by, image)
		}
		// The new deployer knows what the old one has deployed.
		c.Describe("web", fleettest.App(c.app(), image))
		c.AwaitImages("shrunk by the "+by, map[string]string{c.app(): image, second: ""})
		both()
		c.AwaitImages("grown by the "+by, map[string]string{c.app(): image, second: image})
		c.AwaitPhase("Success", "web")
		c.Drift(c.app(), "drift")
		c.await("after a drift, by the "+by, image)
		if got, want := c.writers(before), []string{by}; !slices.Equal(got, want) {
			t.Errorf("with AppPusher %t written by %q; want by %q", appPusher, got, want)
		}
		stop()
	}
}
