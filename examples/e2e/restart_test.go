package e2e

import (
	"testing"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

func TestRestartWritesWhatHasChanged(t *testing.T) {
	eachDeployer(t, []deployer{pulls, pushes}, 2, func(t *testing.T, f *fleettest.Fleet, d deployer) {
		app := fleettest.App
		stop := d.run(f, "one", "")
		for _, c := range f.Children {
			c.Describe("web", app("front", "1"), app("back", "1"))
			c.Describe("gone", app("gone", "1"))
			c.Describe("shrunk", app("shrunk-1", "1"), app("shrunk-2", "1"))
			c.Describe("drifted", app("drifted-1", "1"), app("drifted-2", "1"))
		}
		for _, c := range f.Children {
			c.AwaitPhase("Success", "web", "gone", "shrunk", "drifted")
			c.Quiet()
		}
		restart := func(meanwhile, afterwards func(*fleettest.Child), when string, want ...string) {
			t.Helper()
			before := map[*fleettest.Child]int{}
			stop()
			for _, c := range f.Children {
				before[c] = len(c.Writes())
				meanwhile(c)
			}
			stop = d.run(f, "one", "")
			for _, c := range f.Children {
				c.Describe(when, app(when, "1"))
				c.AwaitPhase("Success", when)
				afterwards(c)
				c.Quiet()
				checkWritten(t, c, before[c], when, append(want, "PATCH "+when)...)
			}
		}
		restart(func(*fleettest.Child) {}, func(*fleettest.Child) {}, "nothing-changed")
		restart(func(c *fleettest.Child) {
			c.Describe("web", app("front", "2"), app("back", "1"))
			c.DeleteDescription("gone")
			c.Describe("shrunk", app("shrunk-1", "1"))
			c.Drift("drifted-1", "x")
			c.Remove("drifted-2")
		}, func(c *fleettest.Child) {
			c.AwaitAllImages("restarted", map[string]string{
				"front": "2", "back": "1", "shrunk-1": "1", "drifted-1": "1", "drifted-2": "1",
				"nothing-changed": "1", "all-changed": "1",
			})
		}, "all-changed", "PATCH front", "DELETE gone", "DELETE shrunk-2", "PATCH drifted-1", "PATCH drifted-2")
	})
}
