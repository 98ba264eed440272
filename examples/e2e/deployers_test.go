package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// deployer is a way to deploy to the children of a fleet.
type deployer struct {
	name   string
	mode   syncgate.Mode // spec.syncMode, and that of the agents
	pushes bool          // the hub does it
	agents bool          // agents run, as they always should
}

// parties are the programs that run.
func (d deployer) parties() []string {
	var names []string
	if d.agents {
		names = append(names, report.PartyAgent)
	}
	if d.pushes {
		names = append(names, report.PartyHub)
	}
	return names
}

var (
	pulls  = deployer{"agent, Pull", syncgate.Pull, false, true}
	pushes = deployer{"hub, Push", syncgate.Push, true, false} // the test reports for the agents
	dual   = deployer{"hub, Dual", syncgate.Dual, true, true}
)

// eachDeployer runs a test with each of these, on a fleet of n children.
func eachDeployer(t *testing.T, some []deployer, n int, test func(*testing.T, *fleettest.Fleet, deployer)) {
	for _, d := range some {
		t.Run(d.name, func(t *testing.T) {
			f := fleettest.New(t, n, d.mode)
			if d.pushes {
				for _, c := range f.Children {
					c.ReportAppPusher(true)
				}
			}
			if d.pushes && d.agents {
				d.runAgents(f, "agent", "")
			}
			test(t, f, d)
		})
	}
}

// run runs what deploys, the hub or the agents of the children, until stop is called or
// the test ends. The request log shows its name. Of several that compete for leases, one
// deploys.
func (d deployer) run(f *fleettest.Fleet, name, leases string) (stop func()) {
	f.Helper()
	if d.pushes {
		return runHub(f, name, leases, childOf(f, name), d.parties()...)
	}
	return d.runAgents(f, name, leases)
}

func runHub(f *fleettest.Fleet, name, leases string, child func(string, types.UID) (*rest.Config, error), parties ...string) (stop func()) {
	f.Helper()
	return fleettest.Run(f, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{
			Parent: fleettest.As(name, f.Parent.Config()), Child: child,
			LeaseNamespace: leases, LeaseDuration: fleettest.Lease, Parties: parties,
		})
	})
}

// childOf finds a child by its ID alone.
func childOf(f *fleettest.Fleet, name string) func(string, types.UID) (*rest.Config, error) {
	return func(_ string, id types.UID) (*rest.Config, error) {
		for _, c := range f.Children {
			if c.ID == id {
				return fleettest.As(name, c.Config()), nil
			}
		}
		return nil, fmt.Errorf("%s is no child", id)
	}
}

func (d deployer) runAgents(f *fleettest.Fleet, name, leases string) (stop func()) {
	f.Helper()
	var stops []func()
	for _, c := range f.Children {
		stops = append(stops, fleettest.Run(f, func(ctx context.Context) error {
			return agent.Run(ctx, agent.Options{
				Parent: fleettest.As(name, f.Parent.Config()), Child: fleettest.As(name, c.Config()),
				Namespace: c.Namespace, ClusterID: c.ID, SyncMode: d.mode, AppPusher: d.pushes,
				LeaseNamespace: leases, LeaseDuration: fleettest.Lease,
				Heartbeat: 200 * time.Millisecond, Parties: d.parties(),
			})
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
