// Command syncgate-hub deploys to many child clusters from their parent, see package
// hub. Try it with
//
//	go run -C examples ./hub/syncgate-hub -h
package main

import (
	"context"
	"flag"
	"net"

	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/internal/command"
)

func main() {
	command.Main("syncgate-hub", func(flags *flag.FlagSet) func(context.Context, net.Listener) error {
		var o hub.Options
		parent := flags.String("parent-kubeconfig", "", "`file` of the parent cluster; empty: the cluster of this pod")
		children := flags.String("children", ".", "`directory` of the children's kubeconfigs: NAMESPACE/CLUSTERID.kubeconfig for a ManagedCluster in NAMESPACE")
		flags.StringVar(&o.LeaseNamespace, "lease-namespace", "", "the `namespace` in the parent where hubs compete for a Lease; empty: there is only this one")
		flags.DurationVar(&o.LeaseDuration, "lease-duration", 0, "how long one that does not renew the Lease keeps it; 0: 15s")
		parties := command.PartiesFlag(flags)
		return func(ctx context.Context, listener net.Listener) (err error) {
			if o.Parent, err = command.ClientConfig(*parent, "pass a kubeconfig by -parent-kubeconfig"); err != nil {
				return err
			}
			if o.Recorder, err = command.Recorder(ctx, o.Parent, "syncgate-hub"); err != nil {
				return err
			}
			o.Child, o.Listener, o.Parties = hub.ChildrenIn(*children), listener, parties()
			return hub.Run(ctx, o)
		}
	})
}
