// Package hub is a Push deployer with gates: it runs in the parent cluster and deploys
// applications to many child clusters. The command is syncgate-hub.
//
// It follows all Descriptions. Package deploy has what it does with them; here is how
// a Hub is wired into a deployer of many clusters. Each cluster has a deployer of its
// own, so one that is paused, slow or away delays no other.
//
// # Who deploys
//
// As Clusternet's hub it deploys to clusters whose spec.syncMode is not Pull and whose
// agent has reported appPusher. It follows both, and reconciles the Descriptions of a
// cluster when it becomes the one that deploys there. A Description is for the cluster
// whose ID its label has and whose ManagedCluster is in its own namespace: a label does
// not let anybody deploy to the cluster of another namespace.
//
// # When a ManagedCluster is gone
//
// Its deleted Descriptions are released without touching the child, paused or not. The
// others stay as they are. The deployer of the cluster ends, with its watches and
// requests. So it does when somebody else is to deploy there.
//
// # Rights
//
// In the parent, in all namespaces: get, list and watch ManagedClusters and
// Descriptions, patch Descriptions and their status, update the status of
// ManagedClusters, create and patch Events; and get, create and update Leases in its own. In the
// children: get, list, watch, create, patch and delete what it deploys.
package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/clusternet/syncgate/examples/internal/command"
	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/leader"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	component = "syncgate-hub"

	lostTime = 30 * time.Second // for the request whether a cluster is lost
)

// Options of a hub.
type Options struct {
	Parent *rest.Config

	// Child returns how to reach the cluster with an ID whose ManagedCluster is in a
	// namespace. The ID alone is not enough: whoever may write in a namespace can claim
	// any ID there. It is called by several goroutines: when the cluster is needed for
	// the first time, after each pause, when another ManagedCluster stands for the
	// cluster, and when the cluster does not accept the credentials.
	Child func(namespace string, clusterID types.UID) (*rest.Config, error)

	// LeaseNamespace is where in the parent hubs compete for a Lease; of several hubs
	// one deploys. Empty: there is only this one.
	LeaseNamespace string
	LeaseDuration  time.Duration // 0: 15 seconds; at least 3

	Listener net.Listener         // for health and metrics; nil: none
	Recorder record.EventRecorder // of Events in the parent; nil: none

	// Parties are the programs that must have drained before a pause is acknowledged, see
	// report.Options. It has to be the same for all of them. Nil: the agent and the hub.
	Parties []string
}

// ChildrenIn returns an Options.Child that reads DIR/NAMESPACE/CLUSTERID.kubeconfig. The
// CRD takes any text in a cluster ID, a slash too, so the ID is escaped as in a URL: else
// it could lead to the file of another cluster.
func ChildrenIn(dir string) func(string, types.UID) (*rest.Config, error) {
	return func(namespace string, clusterID types.UID) (*rest.Config, error) {
		file := filepath.Join(dir, namespace, url.PathEscape(string(clusterID))+".kubeconfig")
		return command.ClientConfig(file, "put its kubeconfig there")
	}
}

type process struct {
	Options
	parent   dynamic.Interface
	registry *prometheus.Registry
	hub      atomic.Pointer[syncgate.Hub] // of this term of leading
}

// Run runs a hub until ctx ends. It returns nil then, and an error for invalid
// options and when a part of it ends early.
func Run(ctx context.Context, opts Options) error {
	p := &process{Options: opts, registry: prometheus.NewRegistry()}
	switch {
	case p.Parent == nil || p.Child == nil:
		return errors.New("running the hub: the parent or the children are nil; pass the configuration of a client for each")
	case p.LeaseDuration < 0:
		return errors.New("running the hub: the duration of the lease is negative; 0 is the default")
	}
	var err error
	if p.parent, err = dynamic.NewForConfig(p.Parent); err != nil {
		return fmt.Errorf("making a client of the parent cluster: %w", err)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return command.Serve(ctx, p.Listener, p.registry, p) })
	all.Go(func() error {
		lease := leader.Lease{Namespace: p.LeaseNamespace, Name: component, Duration: p.LeaseDuration}
		return leader.Lead(ctx, p.Parent, lease, p.lead)
	})
	return all.Wait()
}

// lead is one term of leading. Each has gates and deployers of its own.
func (p *process) lead(ctx context.Context) error {
	clusters, err := informer.ForHub(p.parent, informer.Options{})
	if err != nil {
		return err
	}
	hub, err := syncgate.NewHub(clusters, syncgate.Options{})
	if err != nil {
		return err
	}
	reporter, err := p.reporter(hub)
	if err != nil {
		return err
	}
	collector := metrics.NewCollector(hub)
	p.registry.MustRegister(collector)
	defer p.registry.Unregister(collector)
	p.hub.Store(hub)
	defer p.hub.Store(nil)

	if err := clusters.AddIndexers(cache.Indexers{byCluster: clusterOf}); err != nil {
		return fmt.Errorf("following the ManagedClusters: %w", err)
	}

	all, ctx := errgroup.WithContext(ctx)
	f := &fleet{
		process: p, hub: hub, clusters: clusters.GetIndexer(),
		descriptions: deploy.NewInformer(p.parent, "", ""),
		deployers:    map[deploy.Cluster]*deployer{},
		ending:       map[deploy.Cluster]<-chan struct{}{},
		start:        func(run func(context.Context) error) { all.Go(func() error { return run(ctx) }) },
	}
	if _, err := f.descriptions.AddEventHandler(deploy.OnChange(f.add)); err != nil {
		return fmt.Errorf("following the Descriptions: %w", err)
	}
	if _, err := clusters.AddEventHandler(f.modes()); err != nil {
		return fmt.Errorf("following the ManagedClusters: %w", err)
	}
	defer hub.OnChange(func(c syncgate.Change) {
		if c.Resumed() || c.Old.UID != c.New.UID { // it may have moved
			f.reconnect(c.ClusterID)
		}
	})()
	for _, part := range []func(context.Context) error{
		hub.Run,
		reporter.Run,
		func(ctx context.Context) error { f.descriptions.RunWithContext(ctx); return nil },
	} {
		all.Go(func() error { return part(ctx) })
	}
	return all.Wait()
}

func (p *process) reporter(hub *syncgate.Hub) (*report.Reporter, error) {
	// A client of its own: the requests of deployers to the parent must not delay it.
	client, err := dynamic.NewForConfig(p.Parent)
	if err != nil {
		return nil, fmt.Errorf("making a client of the parent cluster: %w", err)
	}
	return report.New(client, hub, report.Options{
		Recorder: p.Recorder, Party: report.PartyHub, Parties: command.Parties(p.Parties),
	})
}

// Name and Check make the hub a health check. A hub that does not lead is healthy.
func (p *process) Name() string { return component }

func (p *process) Check(r *http.Request) error {
	if hub := p.hub.Load(); hub != nil {
		return hub.Check(r)
	}
	return nil
}
