// Package informer builds the informer that a syncgate follows. The informer of an
// agent reads only the agent's own ManagedCluster; the informer of a hub reads all
// of them. Objects are trimmed to what a gate reads.
//
// # Selection
//
// [ForCluster] selects with the field selector spec.clusterId=ID. Where the CRD does
// not declare that field selectable, the server answers 400 and the informer
// selects by the label clusters.clusternet.io/cluster-id instead. It probes for the
// field at each relist, and when a watch by label starts again. So the informer
// follows a CRD that is upgraded or downgraded while it runs. The label is the weaker
// of the two: Clusternet sets it at registration, but nothing keeps it equal to the
// spec.
//
// Selectable fields of custom resources are on by default from Kubernetes 1.31
// (https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#crd-selectable-fields).
//
// # Consistency
//
// Each initial read, the first one and that of each relist, is consistent: it is
// never answered from an old watch cache of an API server. Both ways of client-go are
// supported: LIST then WATCH, and the streamed WatchList (the default of client-go
// 0.35 and later). If a server accepts a WatchList but does not send the bookmark
// that ends the initial events, the informer gives up after ten silent seconds and
// continues with LIST and WATCH.
//
// # Upgrades of the CRD
//
// A changed CRD ends its watches about a second after the change. Until then the
// server sends objects under the old schema, without the fields that are new. When a
// watch ends before its time and something was read in the last five seconds, the
// informer therefore lists the objects once more. If one of them has changed its
// content but not its resourceVersion, the informer relists. There is at most one
// such list at a time, and at most one in ten seconds.
//
// Two cases remain, until the object changes or the informer relists. An initial
// list is answered under the old schema and the watch after it is opened under the
// new one. Or there are several API servers, and the extra list is answered by one
// that has not noticed the change yet.
package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
)

// Resource is the ManagedCluster resource that every informer here reads.
var Resource schema.GroupVersionResource = api.Resource

// Options configures an informer. The zero value is ready for use.
type Options struct {
	// Selection is for ForCluster only. Zero is Auto. With ByField a CRD that
	// does not declare spec.clusterId selectable keeps the informer from
	// syncing, and Err says so.
	Selection Selection
}

// Informer is a cache.SharedIndexInformer that also knows which selection is in
// force and when the last contact with the server was. Its methods may be called from
// any goroutine.
type Informer struct {
	cache.SharedIndexInformer

	source  *source
	started atomic.Bool
}

// ForCluster returns an informer over the ManagedClusters of one cluster in one
// namespace of the parent cluster. It does no I/O and starts nothing before Run.
//
// It returns an error for a nil client, for an empty or malformed namespace, for
// an empty cluster ID or one that no label value can hold, and for an unknown
// Selection.
func ForCluster(client dynamic.Interface, namespace string, clusterID types.UID, opts Options) (*Informer, error) {
	if err := checkClient(client); err != nil {
		return nil, fmt.Errorf("informer: for a cluster: %w", err)
	}
	// An agent may read its own namespace only: a list over all would be refused.
	if errs := validation.IsDNS1123Label(namespace); len(errs) > 0 {
		return nil, fmt.Errorf("informer: for a cluster: namespace %q is none: %s; pass the dedicated namespace of the cluster in the parent cluster",
			namespace, strings.Join(errs, "; "))
	}
	if clusterID == "" {
		return nil, errors.New("informer: for a cluster: the cluster ID is empty; pass the spec.clusterId of the ManagedCluster")
	}
	if errs := validation.IsValidLabelValue(string(clusterID)); len(errs) > 0 {
		return nil, fmt.Errorf("informer: for a cluster: cluster ID %q is impossible: %s; pass the spec.clusterId of the ManagedCluster",
			clusterID, strings.Join(errs, "; "))
	}
	if opts.Selection < Auto || opts.Selection > ByLabel {
		return nil, fmt.Errorf("informer: for a cluster: unknown %v; use Auto, ByField or ByLabel", opts.Selection)
	}
	return newInformer(&source{
		resource:  client.Resource(Resource).Namespace(namespace),
		what:      fmt.Sprintf("ManagedClusters of cluster %s in namespace %s", clusterID, namespace),
		where:     "in namespace " + namespace,
		byField:   fields.OneTermEqualSelector(api.ClusterIDField, string(clusterID)).String(),
		byLabel:   labels.Set{api.ClusterIDLabel: string(clusterID)}.String(),
		requested: opts.Selection,
		noStreams: noStreams(client),
	})
}

// ForHub returns an informer over the ManagedClusters of all namespaces. It does
// no I/O and starts nothing before Run.
//
// It returns an error for a nil client, and for a Selection, since a hub selects
// every cluster.
func ForHub(client dynamic.Interface, opts Options) (*Informer, error) {
	if err := checkClient(client); err != nil {
		return nil, fmt.Errorf("informer: for a hub: %w", err)
	}
	if opts.Selection != Auto {
		return nil, fmt.Errorf("informer: for a hub: Selection is %v, but a hub selects every cluster; leave it unset", opts.Selection)
	}
	return newInformer(&source{
		resource:  client.Resource(Resource),
		what:      "ManagedClusters in all namespaces",
		where:     "in all namespaces",
		noStreams: noStreams(client),
	})
}

func checkClient(client dynamic.Interface) error {
	if api.IsNil(client) {
		return errors.New("the client is nil; pass a dynamic client of the parent cluster")
	}
	return nil
}

// noStreams reports whether client is a fake that has no WatchList. An informer of
// client-go 0.35 and later would wait for its bookmark for ever.
func noStreams(client dynamic.Interface) bool {
	c, ok := client.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && c.IsWatchListSemanticsUnSupported()
}

func newInformer(src *source) (*Informer, error) {
	inf := cache.NewSharedIndexInformerWithOptions(src, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		Indexers:          cache.Indexers{},
		ObjectDescription: Resource.String(),
	})
	// The source logs a fault once; client-go's own handler logs even an ordinary
	// stop as an error.
	if err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		src.logger().V(4).Info("Reading ManagedClusters again", "why", err)
	}); err != nil {
		return nil, fmt.Errorf("informer: set the watch error handler: %w", err)
	}
	return &Informer{SharedIndexInformer: inf, source: src}, nil
}

// Run runs the informer until stop is closed. It returns when all its requests have
// ended, but at most a second after stop was closed: client-go 0.32 sleeps for the
// Retry-After of a server before it ends a request. A second call returns at once,
// also after the end.
func (i *Informer) Run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ended:
		}
	}()
	i.RunWithContext(ctx)
}

// RunWithContext is Run with a context, which also carries the logger.
func (i *Informer) RunWithContext(ctx context.Context) {
	if !i.started.CompareAndSwap(false, true) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	i.source.start(ctx)
	defer i.source.wait()
	defer cancel()
	// client-go has the method from 0.33 on and hands the logger along.
	if inf, ok := i.SharedIndexInformer.(interface{ RunWithContext(context.Context) }); ok {
		inf.RunWithContext(ctx)
		return
	}
	i.SharedIndexInformer.Run(ctx.Done())
}

// Selection returns the selection in force: ByField or ByLabel, and Auto while
// the server has not decided it. For a hub it is always Auto.
func (i *Informer) Selection() Selection {
	i.source.mu.Lock()
	defer i.source.mu.Unlock()
	return i.source.inForce
}

// LastContact returns the time of the last contact with the server: a complete list,
// an event or a bookmark. It is zero before the first. An API server sends a bookmark
// about once a minute on a watch without other events
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks).
func (i *Informer) LastContact() time.Time {
	i.source.mu.Lock()
	defer i.source.mu.Unlock()
	return i.source.contact
}

// Err returns why the informer does not follow the server right now: it has not
// been run, it waits for the first answer or for the end of the initial events, or
// its last request failed. It is nil while a list or a watch works. The informer
// recovers by itself.
func (i *Informer) Err() error {
	i.source.mu.Lock()
	defer i.source.mu.Unlock()
	return i.source.errLocked()
}

// SetTransform returns an error: the informer trims objects by itself, and a
// transform could hide a hold.
func (i *Informer) SetTransform(cache.TransformFunc) error {
	return errors.New("informer: set a transform: this informer trims objects by itself; make an informer of client-go instead")
}

var _ cache.SharedIndexInformer = (*Informer)(nil)
