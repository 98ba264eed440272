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
// # Order
//
// Handlers get the events of a watch in the order of the server, also those of different
// objects. An informer of client-go 0.32 by itself reorders events that wait. The events
// of an initial read come in no order.
//
// # Upgrades of the CRD
//
// A changed CRD ends its watches about a second after the change. Until then the
// server sends objects without the fields that are new. So when a watch ends
// early, soon after a read, the informer lists the objects once more, and relists if
// what it has was read under the old schema. There is one such list at a time, at most
// one in ten seconds. A pause can be missed in two cases: the change comes between an
// initial list and its watch, or one of several API servers has not noticed the change
// yet. It is then found when the object changes or the informer relists.
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
	"k8s.io/apimachinery/pkg/util/wait"
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
		return nil, fmt.Errorf("informer: make an informer for a cluster: %w", err)
	}
	// An agent may read its own namespace only: a list over all would be refused.
	if errs := validation.IsDNS1123Label(namespace); len(errs) > 0 {
		return nil, fmt.Errorf("informer: make an informer for a cluster: namespace %q is not valid: %s; pass the dedicated namespace of the cluster in the parent cluster",
			namespace, strings.Join(errs, "; "))
	}
	if clusterID == "" {
		return nil, errors.New("informer: make an informer for a cluster: the cluster ID is empty; pass the spec.clusterId of the ManagedCluster")
	}
	if errs := validation.IsValidLabelValue(string(clusterID)); len(errs) > 0 {
		return nil, fmt.Errorf("informer: make an informer for a cluster: cluster ID %q is not valid: %s; pass the spec.clusterId of the ManagedCluster",
			clusterID, strings.Join(errs, "; "))
	}
	if opts.Selection < Auto || opts.Selection > ByLabel {
		return nil, fmt.Errorf("informer: make an informer for a cluster: unknown %v; use Auto, ByField or ByLabel", opts.Selection)
	}
	return newInformer(client, &source{
		resource:  client.Resource(Resource).Namespace(namespace),
		what:      fmt.Sprintf("ManagedClusters of cluster %s in namespace %s", clusterID, namespace),
		where:     "in namespace " + namespace,
		byField:   fields.OneTermEqualSelector(api.ClusterIDField, string(clusterID)).String(),
		byLabel:   labels.Set{api.ClusterIDLabel: string(clusterID)}.String(),
		requested: opts.Selection,
	}), nil
}

// ForHub returns an informer over the ManagedClusters of all namespaces. It does
// no I/O and starts nothing before Run.
//
// It returns an error for a nil client, and for a Selection, since a hub selects
// every cluster.
func ForHub(client dynamic.Interface, opts Options) (*Informer, error) {
	if err := checkClient(client); err != nil {
		return nil, fmt.Errorf("informer: make an informer for a hub: %w", err)
	}
	if opts.Selection != Auto {
		return nil, fmt.Errorf("informer: make an informer for a hub: Selection is %v, but a hub selects every cluster; leave it unset", opts.Selection)
	}
	return newInformer(client, &source{
		resource: client.Resource(Resource),
		what:     "ManagedClusters in all namespaces",
		where:    "in all namespaces",
	}), nil
}

func checkClient(client dynamic.Interface) error {
	if api.IsNil(client) {
		return errors.New("the client is nil; pass a dynamic client of the parent cluster")
	}
	return nil
}

func newInformer(client dynamic.Interface, src *source) *Informer {
	// A fake client has no WatchList. An informer of client-go 0.35 and later would
	// wait for its bookmark for ever.
	if c, ok := client.(interface{ IsWatchListSemanticsUnSupported() bool }); ok {
		src.noStreams = c.IsWatchListSemanticsUnSupported()
	}
	inf := cache.NewSharedIndexInformerWithOptions(src, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		Indexers:          cache.Indexers{},
		ObjectDescription: Resource.String(),
	})
	// The source logs a fault once; client-go's own handler logs even an ordinary
	// stop as an error.
	_ = inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}) // fails only after the start
	src.order.follow(inf)
	return &Informer{SharedIndexInformer: inf, source: src}
}

// Run runs the informer until stop is closed. It returns when all its requests have
// ended, but at most a second after stop was closed: client-go 0.32 waits for a
// Retry-After even after the end, so such a request may remain. A second call returns
// at once, also after the end.
func (i *Informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

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
	sel, _, _ := i.source.state()
	return sel
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

// Relists returns how often the informer has read everything: the first list and each
// relist. It counts a list when that is complete, before a handler gets any part of it.
// A handler that compares counts can tell events of a relist from those of a watch.
func (i *Informer) Relists() uint64 {
	i.source.mu.Lock()
	defer i.source.mu.Unlock()
	return i.source.relists
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
