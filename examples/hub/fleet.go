package hub

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

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

// fleet has a deployer for each cluster that the hub deploys to.
type fleet struct {
	*process
	hub          *syncgate.Hub
	clusters     cache.Indexer // of the ManagedClusters
	descriptions cache.SharedIndexInformer
	start        func(run func(context.Context) error)

	mu        sync.Mutex // guards the fields below
	deployers map[deploy.Cluster]*deployer
	ending    map[deploy.Cluster]<-chan struct{} // closed when the last one that was ended has ended
}

// deployer is a deployer that runs until end is closed.
type deployer struct {
	*deploy.Deployer
	end, ended chan struct{}
}

// run begins when the deployer before it has ended, if any: each cluster has one at a time.
func (d *deployer) run(ctx context.Context, before <-chan struct{}) error {
	defer close(d.ended)
	if before != nil {
		<-before // it has been told to end
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.end:
			cancel()
		case <-ctx.Done():
		}
	}()
	return d.Run(ctx)
}

// add queues a Description if the hub deploys to its cluster, or if it is deleted and
// its cluster may be lost. It is called again when this becomes true.
func (f *fleet) add(cluster deploy.Cluster, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.needsDeployer(cluster) {
		f.endLocked(cluster)
		return
	}
	if f.deployers[cluster] == nil {
		f.deployLocked(cluster)
	}
	f.deployers[cluster].Add(key)
}

func (f *fleet) deployLocked(cluster deploy.Cluster) {
	d := &deployer{end: make(chan struct{}), ended: make(chan struct{})}
	d.Deployer = deploy.New(deploy.Options{
		Parent: f.parent, Descriptions: f.descriptions, Namespace: cluster.Namespace, Gate: f.hub.Gate(cluster.ID),
		Child: func() (*rest.Config, error) { return f.Child(cluster.Namespace, cluster.ID) },
		Mine:  func() bool { return f.mine(cluster) },
		Lost:  func(ctx context.Context) (bool, error) { return f.lost(ctx, cluster) },
	})
	before := f.ending[cluster]
	delete(f.ending, cluster)
	f.deployers[cluster] = d
	f.start(func(ctx context.Context) error { return d.run(ctx, before) })
}

// endLocked ends the deployer of a cluster, with its watches and requests.
func (f *fleet) endLocked(cluster deploy.Cluster) {
	if d := f.deployers[cluster]; d != nil {
		close(d.end)
		delete(f.deployers, cluster)
		f.ending[cluster] = d.ended
	}
}

// needsDeployer reports whether the hub deploys to a cluster, or has deleted Descriptions
// to release because the cluster may be lost.
func (f *fleet) needsDeployer(cluster deploy.Cluster) bool {
	return f.mine(cluster) || len(f.find(cluster)) == 0 &&
		slices.ContainsFunc(deploy.Keys(f.descriptions.GetIndexer(), cluster), f.deleting)
}

// addAll queues all Descriptions of a cluster, or ends its deployer.
func (f *fleet) addAll(cluster deploy.Cluster) {
	f.mu.Lock()
	if !f.needsDeployer(cluster) {
		f.endLocked(cluster)
	}
	f.mu.Unlock()
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
	for cluster, deployer := range f.deployers {
		if cluster.ID == id {
			deployer.Reconnect()
		}
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
