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
// others stay as they are.
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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		deployers:    map[types.UID]map[string]*deploy.Deployer{},
		start:        func(d *deploy.Deployer) { all.Go(func() error { return d.Run(ctx) }) },
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

// byCluster is an index of ManagedClusters by their deploy.Cluster.
const byCluster = "cluster"

func clusterOf(object any) ([]string, error) {
	return []string{identify(object).String()}, nil
}

func identify(object any) deploy.Cluster {
	o := object.(*unstructured.Unstructured)
	id, _, _ := unstructured.NestedString(o.Object, "spec", "clusterId")
	return deploy.Cluster{Namespace: o.GetNamespace(), ID: types.UID(id)}
}

// fleet has a deployer for each cluster that the hub has deployed to.
type fleet struct {
	*process
	hub          *syncgate.Hub
	clusters     cache.Indexer // of the ManagedClusters
	descriptions cache.SharedIndexInformer
	start        func(*deploy.Deployer)

	mu        sync.Mutex                                // guards deployers
	deployers map[types.UID]map[string]*deploy.Deployer // by ID and namespace
}

// add queues a Description if the hub deploys to its cluster, or if it is deleted and
// its cluster may be lost. It is called again when this becomes true.
func (f *fleet) add(cluster deploy.Cluster, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	deployer := f.deployers[cluster.ID][cluster.Namespace]
	if deployer == nil {
		if !f.mine(cluster) && (len(f.find(cluster)) > 0 || !f.deleting(key)) {
			return
		}
		gate := f.hub.Gate(cluster.ID)
		deployer = deploy.New(deploy.Options{
			Parent: f.parent, Descriptions: f.descriptions, Namespace: cluster.Namespace, Gate: gate,
			Child: func() (*rest.Config, error) { return f.Child(cluster.Namespace, cluster.ID) },
			Mine:  func() bool { return f.mine(cluster) },
			Lost:  func(ctx context.Context) (bool, error) { return f.lost(ctx, cluster) },
		})
		if f.deployers[cluster.ID] == nil {
			f.deployers[cluster.ID] = map[string]*deploy.Deployer{}
		}
		f.deployers[cluster.ID][cluster.Namespace] = deployer
		f.start(deployer)
	}
	deployer.Add(key)
}

// addAll queues all Descriptions of a cluster.
func (f *fleet) addAll(cluster deploy.Cluster) {
	for _, key := range deploy.Keys(f.descriptions.GetIndexer(), cluster) {
		f.add(cluster, key)
	}
}

func (f *fleet) deleting(key string) bool {
	object, exists, err := f.descriptions.GetStore().GetByKey(key)
	return err == nil && exists && object.(*unstructured.Unstructured).GetDeletionTimestamp() != nil
}

// reconnect follows a cluster that may have moved.
func (f *fleet) reconnect(id types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, deployer := range f.deployers[id] {
		deployer.Reconnect()
	}
}

// find returns the ManagedClusters of a cluster from the informer.
func (f *fleet) find(cluster deploy.Cluster) []any {
	objects, err := f.clusters.ByIndex(byCluster, cluster.String())
	if err != nil {
		return nil // there is this index, see lead
	}
	return objects
}

// mine reports whether the hub deploys to a cluster.
func (f *fleet) mine(cluster deploy.Cluster) bool {
	return slices.ContainsFunc(f.find(cluster), func(object any) bool {
		mode, appPusher, known := modes(object)
		return known && syncgate.HubDeploys(mode, appPusher)
	})
}

// modes returns a handler that queues the Descriptions of a cluster when the hub may have
// become the one that deploys them.
func (f *fleet) modes() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { f.addAll(identify(object)) },
		UpdateFunc: func(old, now any) {
			wasMode, wasPusher, wasKnown := modes(old)
			mode, appPusher, known := modes(now)
			if mode != wasMode || appPusher != wasPusher || known != wasKnown || identify(old) != identify(now) {
				f.addAll(identify(now))
				f.addAll(identify(old)) // its deleted Descriptions can be released
			}
		},
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			f.addAll(identify(object))
		},
	}
}

// modes returns what decides who deploys to a ManagedCluster. It is known once the agent
// has reported.
func modes(object any) (mode syncgate.Mode, appPusher, known bool) {
	content := object.(*unstructured.Unstructured).Object
	text, _, _ := unstructured.NestedString(content, "spec", "syncMode")
	appPusher, known, _ = unstructured.NestedBool(content, "status", "appPusher")
	return syncgate.Mode(text), appPusher, known
}

// lost reports whether a cluster has no ManagedCluster. It asks the server, since a
// release can't be undone.
func (f *fleet) lost(ctx context.Context, cluster deploy.Cluster) (bool, error) {
	if len(f.find(cluster)) > 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lostTime)
	defer cancel()
	list, err := f.parent.Resource(informer.Resource).Namespace(cluster.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("looking for the ManagedCluster of cluster %s: %w", cluster, err)
	}
	return !slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return identify(&o) == cluster }), nil
}

// Name and Check make the hub a health check. A hub that does not lead is healthy.
func (p *process) Name() string { return component }

func (p *process) Check(r *http.Request) error {
	if hub := p.hub.Load(); hub != nil {
		return hub.Check(r)
	}
	return nil
}
