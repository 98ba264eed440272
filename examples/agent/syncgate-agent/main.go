// Command syncgate-agent deploys to the child cluster that it runs for, see package
// agent. Try it with
//
//	go run -C examples ./agent/syncgate-agent -h
package main

import (
	"context"
	"flag"
	"net"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/internal/command"
	"github.com/clusternet/syncgate/syncgate"
)

func main() {
	command.Main("syncgate-agent", func(flags *flag.FlagSet) func(context.Context, net.Listener) error {
		var o agent.Options
		parent := flags.String("parent-kubeconfig", "", "`file` of the parent cluster; empty: the cluster of this pod")
		child := flags.String("child-kubeconfig", "", "`file` of the child cluster; empty: the cluster of this pod")
		flags.StringVar(&o.Namespace, "namespace", "", "the dedicated `namespace` of the cluster in the parent")
		flags.StringVar((*string)(&o.ClusterID), "cluster-id", "", "the spec.clusterId of its ManagedCluster")
		flags.StringVar((*string)(&o.SyncMode), "cluster-sync-mode", string(syncgate.Pull), "Push, Pull or Dual")
		flags.BoolVar(&o.AppPusher, "app-pusher", false, "whether the hub may deploy")
		flags.StringVar(&o.LeaseNamespace, "lease-namespace", "", "the `namespace` in the child where agents compete for a Lease; empty: there is only this one")
		flags.DurationVar(&o.LeaseDuration, "lease-duration", 0, "how long one that does not renew the Lease keeps it; 0: 15s")
		flags.DurationVar(&o.Heartbeat, "heartbeat", 0, "how often to report to the parent; 0: 3m")
		parties := command.PartiesFlag(flags)
		return func(ctx context.Context, listener net.Listener) (err error) {
			if o.Parent, err = command.ClientConfig(*parent, "pass a kubeconfig by -parent-kubeconfig"); err != nil {
				return err
			}
			if o.Child, err = command.ClientConfig(*child, "pass a kubeconfig by -child-kubeconfig"); err != nil {
				return err
			}
			if o.Recorder, err = command.Recorder(ctx, o.Parent, "syncgate-agent"); err != nil {
				return err
			}
			o.Listener, o.Parties = listener, parties()
			return agent.Run(ctx, o)
		}
	})
}
