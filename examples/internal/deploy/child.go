package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/syncgate"
)

const (
	// requestTime bounds a request to either cluster: a worker waits for it.
	requestTime = 30 * time.Second

	// writeTime bounds a write to the child. An API server gives up after a minute: a
	// write that is given up earlier here may still be carried out there, and nobody
	// would wait for it any more.
	writeTime = 75 * time.Second
)

// child is a connection to a child cluster.
type child struct {
	client    dynamic.Interface
	discovery discovery.DiscoveryInterfaceWithContext

	start func(run func(context.Context)) // a watch
	close context.CancelFunc              // all watches
	seen  func(owner string)              // called for each object that comes, changes or goes

	refused func() // called when a watch is unauthorized

	mu      sync.Mutex // guards the fields below
	kinds   map[schema.GroupVersionKind]kind
	watched map[schema.GroupVersionResource]bool
}

// kind is how a kind is served.
type kind struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

func newChild(ctx context.Context, config *rest.Config, gate *syncgate.Gate, running *sync.WaitGroup, seen func(owner string), refused func()) (*child, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return gatedTransport{gate, next} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &child{
		client: client, discovery: kinds, seen: seen, refused: refused,
		kinds:   map[schema.GroupVersionKind]kind{},
		watched: map[schema.GroupVersionResource]bool{},
	}
	ctx, c.close = context.WithCancel(ctx)
	c.start = func(run func(context.Context)) { running.Go(func() { run(ctx) }) }
	return c, nil
}

// errNowhere is that there can't be such an object in the child.
var errNowhere = errors.New("there is no such thing")

var (
	errNoKind      = fmt.Errorf("%w: the cluster does not serve this kind; deploy its CustomResourceDefinition", errNowhere)
	errNoNamespace = fmt.Errorf("%w: it has no namespace; give it one", errNowhere)
	errNamespace   = fmt.Errorf("%w: its kind has no namespaces; leave it out", errNowhere)
)

// resource returns where an object is, and has objects like it watched. The error
// wraps errNowhere when it can't be anywhere.
func (c *child) resource(ctx context.Context, id identity) (dynamic.ResourceInterface, error) {
	k, err := c.kind(ctx, id.gvk())
	switch {
	case err != nil:
		return nil, fmt.Errorf("looking up %s: %w", id, err)
	case k.namespaced && id.namespace == "":
		c.forget(id.gvk()) // its CustomResourceDefinition may be replaced
		return nil, fmt.Errorf("looking up %s: %w", id, errNoNamespace)
	case !k.namespaced && id.namespace != "":
		c.forget(id.gvk())
		return nil, fmt.Errorf("looking up %s: %w", id, errNamespace)
	}
	c.watch(k.resource)
	return c.client.Resource(k.resource).Namespace(id.namespace), nil
}

// kind asks for one group and version: a RESTMapper takes what it could not read for
// what there is not, and what is to be deleted would be taken for gone.
func (c *child) kind(ctx context.Context, gvk schema.GroupVersionKind) (kind, error) {
	c.mu.Lock()
	k, ok := c.kinds[gvk]
	c.mu.Unlock()
	if ok {
		return k, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	list, err := c.discovery.ServerResourcesForGroupVersionWithContext(ctx, gvk.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return kind{}, errNoKind
	}
	if err != nil {
		return kind{}, err
	}
	for _, r := range list.APIResources {
		if r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") { // no subresource
			k := kind{gvk.GroupVersion().WithResource(r.Name), r.Namespaced}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.kinds[gvk] = k
			return k, nil
		}
	}
	return kind{}, errNoKind
}

// forget has a kind asked for again.
func (c *child) forget(gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kinds, gvk)
}

// served returns the identity with a version that the child serves, which need not be
// the one that the object was written in.
func (c *child) served(ctx context.Context, id identity) (identity, error) {
	_, err := c.kind(ctx, id.gvk())
	if !errors.Is(err, errNoKind) {
		return id, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	groups, err := c.discovery.ServerGroupsWithContext(ctx)
	if err != nil {
		return id, err
	}
	for _, group := range groups.Groups {
		if group.Name != id.gvk().Group {
			continue
		}
		for _, version := range group.Versions {
			other := id
			other.apiVersion = version.GroupVersion
			if _, err := c.kind(ctx, other.gvk()); !errors.Is(err, errNoKind) {
				return other, err
			}
		}
	}
	return id, errNoKind
}

// watch lets changes of what was deployed be known, but for those of its status. What
// changed before the watch began is found by whoever asks for it.
func (c *child) watch(resource schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched[resource] {
		return
	}
	c.watched[resource] = true
	inf := dynamicinformer.NewFilteredDynamicInformer(c.client, resource, metav1.NamespaceAll, 0, nil, func(o *metav1.ListOptions) {
		o.LabelSelector = deployedLabel
	}).Informer()
	// It can fail for an informer that runs only. What is kept is compared, no more.
	_ = inf.SetTransform(func(obj any) (any, error) {
		if object, ok := obj.(*unstructured.Unstructured); ok {
			object.SetManagedFields(nil)
			delete(object.Object, "status")
		}
		return obj, nil
	})
	_ = inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsUnauthorized(err) && ctx.Err() == nil {
			c.refused()
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	tell := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, ok := obj.(metav1.Object); ok && ownerOf(object) != "" {
			c.seen(ownerOf(object))
		}
	}
	// It can fail for an informer that has stopped only.
	_, _ = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell,
		UpdateFunc: func(old, now any) {
			if alike(old.(*unstructured.Unstructured), now.(*unstructured.Unstructured)) {
				return
			}
			tell(old) // the mark of the owner may be what has changed
			tell(now)
		},
		DeleteFunc: tell,
	})
	c.start(inf.RunWithContext)
}

// gone tells whether an answer says that there is no such object. A 404 that does not
// come from the API of the object says nothing of it: the version is no longer served,
// or something in between does not know the server.
func gone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// get returns an object of the child, or nil.
func (c *child) get(ctx context.Context, resource dynamic.ResourceInterface, id identity) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	object, err := resource.Get(ctx, id.name, metav1.GetOptions{})
	switch {
	case gone(err):
		return nil, nil
	case err != nil:
		c.forget(id.gvk())
		return nil, fmt.Errorf("reading %s: %w", id, err)
	}
	return object, nil
}

// find returns an object in whichever version the child serves it, or a nil object.
func (c *child) find(ctx context.Context, id identity) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	id, err := c.served(ctx, id)
	if err != nil && !errors.Is(err, errNowhere) {
		return nil, nil, fmt.Errorf("deleting %s: %w", id, err)
	}
	var resource dynamic.ResourceInterface
	if err == nil {
		resource, err = c.resource(ctx, id)
	}
	if errors.Is(err, errNowhere) {
		return nil, nil, nil // its kind is gone, and so is it
	}
	if err != nil {
		return nil, nil, err
	}
	live, err := c.get(ctx, resource, id)
	return resource, live, err
}

// differs tells whether to apply an object would change it.
func (c *child) differs(ctx context.Context, resource dynamic.ResourceInterface, object, live *unstructured.Unstructured) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	would, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
		FieldManager: FieldManager, Force: true, DryRun: []string{metav1.DryRunAll},
	})
	if err != nil {
		return false, fmt.Errorf("applying %s, as a dry run: %w", identityOf(object), err)
	}
	return !alike(live, would), nil
}

// alike tells whether two states of an object differ in nothing that a deployer
// decides about.
func alike(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(decided(a), decided(b))
}

func decided(object *unstructured.Unstructured) map[string]any {
	content := maps.Clone(object.Object)
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(metadata, field)
		}
		content["metadata"] = metadata
	}
	return content
}

func (c *child) apply(ctx context.Context, resource dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("applying %s: %w", identityOf(object), err)
	}
	return nil
}

// delete deletes an object as it was read: one that has changed since may have
// another owner.
func (c *child) delete(ctx context.Context, resource dynamic.ResourceInterface, live *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	uid, version, background := live.GetUID(), live.GetResourceVersion(), metav1.DeletePropagationBackground
	err := resource.Delete(ctx, live.GetName(), metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &background,
	})
	if err != nil && !gone(err) {
		return fmt.Errorf("deleting %s: %w", identityOf(live), err)
	}
	return nil
}
