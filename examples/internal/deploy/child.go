package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// requestTime limits a request to either cluster, since a worker waits for it.
	requestTime = 30 * time.Second

	// writeTime limits a write to the child. An API server gives up after a minute. A
	// write that is given up earlier here could still be carried out there, and the
	// drain of a pause would not wait for it.
	writeTime = 75 * time.Second
)

// child is a connection to a child cluster.
type child struct {
	client    dynamic.Interface // for operations
	watching  dynamic.Interface // for watches
	discovery discovery.DiscoveryInterfaceWithContext

	start    func(run func(context.Context)) // a watch
	close    context.CancelFunc              // all watches
	observed func(owner string, id identity) // called for each object that is created, changed or deleted

	refused func()                            // called when a watch is unauthorized
	gone    func(gvk schema.GroupVersionKind) // called when a kind is not served any more

	mu      sync.Mutex // guards the fields below
	kinds   map[schema.GroupVersionKind]kind
	watched map[schema.GroupVersionResource]bool
}

// kind is how a kind is served.
type kind struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

// newChild returns a connection to the child of a deployer. It sends no request.
func newChild(ctx context.Context, config *rest.Config, d *Deployer) (*child, error) {
	c := &child{
		observed: d.observed, refused: d.refused, gone: d.kindGone,
		kinds:   map[schema.GroupVersionKind]kind{},
		watched: map[schema.GroupVersionResource]bool{},
	}
	operations, watches := rest.CopyConfig(config), rest.CopyConfig(config)
	operations.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return operationTransport{d.opts.Gate, func(ctx context.Context) bool { return d.current(ctx, c) }, next}
	})
	watches.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchTransport{d.opts.Gate, next} })
	var err error
	if c.client, err = dynamic.NewForConfig(operations); err != nil {
		return nil, err
	}
	if c.watching, err = dynamic.NewForConfig(watches); err != nil {
		return nil, err
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(operations); err != nil {
		return nil, err
	}
	ctx, c.close = context.WithCancel(ctx)
	c.start = func(run func(context.Context)) { d.watches.Go(func() { run(ctx) }) }
	return c, nil
}

// errNowhere means that there can't be such an object in the child.
var errNowhere = errors.New("there is no such thing")

var (
	errNoKind      = fmt.Errorf("%w: the cluster does not serve this kind; deploy its CustomResourceDefinition", errNowhere)
	errNoNamespace = fmt.Errorf("%w: it has no namespace; give it one", errNowhere)
	errNamespace   = fmt.Errorf("%w: its kind has no namespaces; leave it out", errNowhere)
)

// resource returns the resource of an object, and begins to watch it. The error wraps
// errNowhere when there can't be such an object.
func (c *child) resource(ctx context.Context, id identity) (dynamic.ResourceInterface, error) {
	k, err := c.kind(ctx, id.gvk())
	switch {
	case err != nil:
		return nil, fmt.Errorf("finding %s: %w", id, err)
	case k.namespaced && id.namespace == "":
		c.forget(id.gvk()) // its CustomResourceDefinition may be replaced
		return nil, fmt.Errorf("finding %s: %w", id, errNoNamespace)
	case !k.namespaced && id.namespace != "":
		c.forget(id.gvk())
		return nil, fmt.Errorf("finding %s: %w", id, errNamespace)
	}
	c.watch(k.resource)
	return c.client.Resource(k.resource).Namespace(id.namespace), nil
}

// kind reads the kinds of one group and version. A RESTMapper would not do: it ignores
// groups that it can't read, and an object to be deleted would be taken for gone.
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

// forget lets a kind be read again.
func (c *child) forget(gvk schema.GroupVersionKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kinds, gvk)
}

// served returns the identity with a version that the child serves. The object may have
// been written in another version.
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

// gone reports whether an answer means that there is no such object. A 404 that does not
// come from the API of the object does not mean that: perhaps the version is no longer
// served, or a proxy does not know the server.
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

// find returns an object in a version that the child serves, or a nil object.
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

// differs reports whether to apply an object would change it. Where an admission webhook
// does not take dry runs, it compares the object with the fields that were applied before.
func (c *child) differs(ctx context.Context, resource dynamic.ResourceInterface, object, live *unstructured.Unstructured) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	would, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
		FieldManager: FieldManager, Force: true, DryRun: []string{metav1.DryRunAll},
	})
	switch {
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "dry run"):
		return !isApplied(live, object), nil
	case err != nil:
		return false, fmt.Errorf("applying %s, as a dry run: %w", identityOf(object), err)
	}
	return changes(live, would) || withoutOtherClaims(live) != nil, nil
}

// apply returns the object as it is then.
func (c *child) apply(ctx context.Context, resource dynamic.ResourceInterface, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	live, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", identityOf(object), err)
	}
	return live, nil
}

// dropOtherClaims has nobody else claim the applied fields of an object. If the object
// has changed meanwhile, that is left to the next comparison.
func (c *child) dropOtherClaims(ctx context.Context, resource dynamic.ResourceInterface, live *unstructured.Unstructured) error {
	claims := withoutOtherClaims(live)
	if claims == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": live.GetResourceVersion(), "managedFields": claims}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	_, err = resource.Patch(ctx, live.GetName(), mergePatch, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil && !apierrors.IsConflict(err) && !gone(err) {
		return fmt.Errorf("claiming the fields of %s: %w", identityOf(live), err)
	}
	return nil
}

// delete deletes an object unless it was created anew since it was read. With unchanged,
// it must not have changed either: it may have another owner by now.
func (c *child) delete(ctx context.Context, resource dynamic.ResourceInterface, live *unstructured.Unstructured, unchanged bool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	uid, version, background := live.GetUID(), live.GetResourceVersion(), metav1.DeletePropagationBackground
	only := &metav1.Preconditions{UID: &uid}
	if unchanged {
		only.ResourceVersion = &version
	}
	err := resource.Delete(ctx, live.GetName(), metav1.DeleteOptions{Preconditions: only, PropagationPolicy: &background})
	if err != nil && !gone(err) {
		return fmt.Errorf("deleting %s: %w", identityOf(live), err)
	}
	return nil
}
