package e2e

import (
	"testing"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// When a ManagedCluster is deleted, the last decision holds for an agent. A hub removes the
// finalizers of deleted Descriptions without a request to the child.
func TestManagedClusterGone(t *testing.T) {
	t.Parallel()
	each(t, fleettest.New(t, 1, syncgate.Pull), 300, []clusterTest{
		{"HubPaused", testHubPaused},
		{"HubOpen", testHubOpen},
		{"HubRestart", testHubRestart},
		{"AgentPaused", testAgentPaused},
		{"AgentOpen", testAgentOpen},
	})
}

func testHubPaused(f *fleettest.Fleet, c *cluster) {
	c.Register(syncgate.Push)
	c.ReportAppPusher(true)
	c.describeEach("1", "before", "after", "stays")
	push(f, c)
	c.awaitEach("at first", "1", "before", "after", "stays")
	c.Pause()
	c.AwaitPaused()
	check := unchanged(c.Child)
	c.DeleteDescription("before")
	c.describeEach("2", "stays")
	c.AwaitPhase("Pending", "before", "stays")

	c.Unregister()
	c.AwaitNoDescription("before")
	c.DeleteDescription("after")
	c.AwaitNoDescription("after")
	check("with the Descriptions released")
	c.describeEach("3", "stays")
	idle()
	check("without a ManagedCluster")

	c.RegisterPaused(syncgate.Push)
	c.ReportAppPusher(true)
	idle()
	check("with a new ManagedCluster, paused")
	c.Resume()
	c.awaitEach("resumed", "3", "stays")
	c.awaitApps("resumed", "1", "before", "after") // their Descriptions were released
}

func testHubOpen(f *fleettest.Fleet, c *cluster) {
	c.Register(syncgate.Push)
	c.ReportAppPusher(true)
	c.describeEach("1", "waiting", "later", "stays")
	push(f, c)
	c.awaitEach("at first", "1", "waiting", "later", "stays")
	// One is deleted while the child is away: once the hub releases it, it has observed
	// the deletion of the ManagedCluster.
	c.byHub.setCut(true)
	c.DeleteDescription("waiting")
	c.AwaitPhase("Failure", "waiting")
	check := unchanged(c.Child)
	c.Unregister()
	c.AwaitNoDescription("waiting")
	c.byHub.setCut(false)
	c.DeleteDescription("later")
	c.AwaitNoDescription("later")
	c.describeEach("2", "stays")
	idle()
	check("without a ManagedCluster")

	c.Register(syncgate.Push)
	idle()
	check("with a new ManagedCluster whose agent has not reported")
	c.ReportAppPusher(true)
	c.awaitEach("with a new ManagedCluster", "2", "stays")
	c.awaitApps("with a new ManagedCluster", "1", "waiting", "later")
	uid := c.AppObject(c.appOf("later")).GetUID()
	c.describeEach("2", "later")
	c.awaitEach("described again", "2", "later")
	if got := c.AppObject(c.appOf("later")).GetUID(); got != uid {
		c.Errorf("an app that was released and is described again has UID %s; want %s as before", got, uid)
	}
	c.Drift(c.appOf("later"), "drift")
	c.awaitEach("drifted", "2", "later")
}

func testHubRestart(f *fleettest.Fleet, c *cluster) {
	c.Register(syncgate.Push)
	c.ReportAppPusher(true)
	c.describeEach("1", "before", "after", "stays")
	stop := push(f, c)
	c.awaitEach("at first", "1", "before", "after", "stays")
	c.Pause()
	c.AwaitPaused()
	check := unchanged(c.Child)
	c.DeleteDescription("before")
	c.AwaitPhase("Pending", "before")
	stop()
	c.Unregister()
	c.describeEach("2", "stays")
	push(f, c)
	c.AwaitNoDescription("before")
	c.DeleteDescription("after")
	c.AwaitNoDescription("after")
	idle()
	check("with a hub that started without the ManagedCluster")
	c.Register(syncgate.Push)
	c.ReportAppPusher(true)
	c.awaitEach("with a new ManagedCluster", "2", "stays")
}

func testAgentPaused(f *fleettest.Fleet, c *cluster) {
	c.Register(syncgate.Pull)
	c.describeEach("1", "before", "after", "stays")
	stop := c.pull(f)
	c.awaitEach("at first", "1", "before", "after", "stays")
	c.Pause()
	c.AwaitPaused()
	check := unchanged(c.Child)
	c.DeleteDescription("before")
	c.AwaitPhase("Pending", "before")
	c.Unregister()
	idle() // the agent observes it, which must not open the gate
	c.DeleteDescription("after")
	c.describeEach("2", "stays")
	c.AwaitPhase("Pending", "after", "stays")
	idle()
	check("without a ManagedCluster")
	stop()
	stop = c.pull(f)
	idle()
	check("restarted without a ManagedCluster")
	c.RegisterPaused(syncgate.Pull)
	c.AwaitPaused()
	idle()
	check("with a new ManagedCluster, paused")
	for _, name := range []string{"before", "after"} {
		if c.Description(name) == nil {
			c.Errorf("Description %s is gone, and its app was not deleted", name)
		}
	}
	c.Resume()
	c.awaitEach("resumed", "2", "stays")
	c.awaitApps("resumed", "", "before", "after")
	c.AwaitNoDescription("before", "after")
	stop()
}

func testAgentOpen(f *fleettest.Fleet, c *cluster) {
	c.Register(syncgate.Pull)
	c.describeEach("1", "before", "stays")
	c.pull(f)
	c.awaitEach("at first", "1", "before", "stays")
	c.Unregister()
	idle() // the agent observes it, which must not close the gate
	c.describeEach("2", "stays")
	c.awaitEach("without a ManagedCluster", "2", "stays")
	c.DeleteDescription("before")
	c.awaitApps("without a ManagedCluster", "", "before")
	c.AwaitNoDescription("before")

	c.RegisterPaused(syncgate.Pull)
	c.AwaitPaused()
	check := unchanged(c.Child)
	c.describeEach("3", "stays")
	c.AwaitPhase("Pending", "stays")
	idle()
	check("with a new ManagedCluster, paused")
	c.Unregister()
	idle()
	check("and that deleted")
	c.Register(syncgate.Pull)
	c.awaitEach("with a third, open", "3", "stays")
}
