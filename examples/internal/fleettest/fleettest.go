// Package fleettest has clusters for tests of deployers: a parent and its children, API
// servers all, in this process. What is written to a child is known from two sources
// that no deployer can talk out of it: the log of its server's requests, and a watch of
// its objects.
package fleettest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// Soon is how long a test waits for what should come at once, on a machine that does
// other things too.
const Soon = 30 * time.Second

// Apps are what is deployed to children.
var Apps = schema.GroupVersionResource{Group: "demo.example.com", Version: "v1", Resource: "apps"}

// AppNamespace is where they are.
const AppNamespace = "default"

// Fleet is a parent cluster with its children.
type Fleet struct {
	testing.TB
	Parent   *Parent
	Children []*Child
}

// Parent is the parent cluster.
type Parent struct {
	*localcluster.Cluster
	Client dynamic.Interface
	log    *requestLog
}

// Child is a child cluster, which the parent knows as a ManagedCluster.
type Child struct {
	*localcluster.Cluster
	testing.TB
	Client          dynamic.Interface
	Namespace, Name string // of its ManagedCluster
	ID              types.UID
	parent          *Parent
	log             *requestLog
}

// New starts a parent and n children, which are registered with a sync mode.
func New(tb testing.TB, n int, mode syncgate.Mode) *Fleet {
	tb.Helper()
	if err := localcluster.Build(context.Background()); err != nil { // the first time it takes longer than Soon
		tb.Fatal(err)
	}
	f := &Fleet{TB: tb, Parent: &Parent{log: &requestLog{}}, Children: make([]*Child, n)}
	var starting sync.WaitGroup
	starting.Go(func() {
		f.Parent.Cluster, f.Parent.Client = start(tb, f.Parent.log,
			localcluster.ManagedClusterCRD(), localcluster.DescriptionCRD(), leaseCRD())
	})
	for i := range f.Children {
		c := &Child{
			TB: tb, parent: f.Parent, log: &requestLog{},
			Namespace: fmt.Sprintf("clusternet-%05d", i+1), Name: fmt.Sprintf("child-%d", i+1),
			ID: types.UID(fmt.Sprintf("0b1c2d3e-1111-4a6b-8c7d-%012d", i+1)),
		}
		f.Children[i] = c
		starting.Go(func() { c.Cluster, c.Client = start(tb, c.log, appCRD(), leaseCRD()) })
	}
	starting.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	for _, c := range f.Children {
		c.Register(mode)
	}
	return f
}

// start may be called on a goroutine of its own, so it fails by tb.Error.
func start(tb testing.TB, log *requestLog, crds ...*apiextensionsv1.CustomResourceDefinition) (*localcluster.Cluster, dynamic.Interface) {
	ctx, cancel := context.WithTimeout(context.Background(), Soon)
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{Handler: log.wrap})
	if err != nil {
		tb.Error(err)
		return nil, nil
	}
	tb.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			tb.Error(err)
		}
	})
	for _, crd := range crds {
		if err := cluster.Apply(ctx, crd); err != nil {
			tb.Error(err)
		}
	}
	config := cluster.Config()
	config.UserAgent = userAgent
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Error(err)
	}
	return cluster, client
}

// In returns the fleet, or some of its children, for a part of the test: what fails then
// fails tb, and what ends with a test ends with tb.
func (f *Fleet) In(tb testing.TB, children ...*Child) *Fleet {
	if len(children) == 0 {
		children = f.Children
	}
	part := &Fleet{TB: tb, Parent: f.Parent}
	for _, c := range children {
		c := *c
		c.TB = tb
		part.Children = append(part.Children, &c)
	}
	return part
}

// Register creates the child's ManagedCluster.
func (c *Child) Register(mode syncgate.Mode) {
	c.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"clusterId": string(c.ID), "syncMode": string(mode)},
	}}
	object.SetGroupVersionKind(informer.Resource.GroupVersion().WithKind("ManagedCluster"))
	object.SetName(c.Name)
	object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.ID)})
	if _, err := c.managedClusters().Create(context.Background(), object, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *Child) managedClusters() dynamic.ResourceInterface {
	return c.parent.Client.Resource(informer.Resource).Namespace(c.Namespace)
}

func (c *Child) descriptions() dynamic.ResourceInterface {
	return c.parent.Client.Resource(deploy.Resource).Namespace(c.Namespace)
}

func (c *Child) apps() dynamic.ResourceInterface {
	return c.Client.Resource(Apps).Namespace(AppNamespace)
}

// Patch patches the child's ManagedCluster.
func (c *Child) Patch(patch string, subresources ...string) {
	c.Helper()
	_, err := c.managedClusters().Patch(context.Background(), c.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		c.Fatal(err)
	}
}

// Pause sets spec.syncPaused.
func (c *Child) Pause() { c.Helper(); c.Patch(`{"spec":{"syncPaused":true}}`) }

// Resume removes it.
func (c *Child) Resume() { c.Helper(); c.Patch(`{"spec":{"syncPaused":null}}`) }

// ManagedCluster returns the child's ManagedCluster.
func (c *Child) ManagedCluster() *unstructured.Unstructured {
	c.Helper()
	object, err := c.managedClusters().Get(context.Background(), c.Name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return object
}

// Condition returns the condition SyncPaused of the child's ManagedCluster as "status
// reason: message", empty if it has none.
func (c *Child) Condition() string {
	c.Helper()
	list, _, _ := unstructured.NestedSlice(c.ManagedCluster().Object, "status", "conditions")
	for _, each := range list {
		if each, ok := each.(map[string]any); ok && each["type"] == report.ConditionType {
			return fmt.Sprintf("%v %v: %v", each["status"], each["reason"], each["message"])
		}
	}
	return ""
}

// Becomes waits for a condition that begins so.
func (c *Child) Becomes(want string) {
	c.Helper()
	Eventually(c.TB, Soon, func() bool { return strings.HasPrefix(c.Condition(), want) }, func() string {
		return fmt.Sprintf("the condition SyncPaused of %s is %q; want %q", c.Name, c.Condition(), want)
	})
}

// Unregister deletes it.
func (c *Child) Unregister() {
	c.Helper()
	if err := c.managedClusters().Delete(context.Background(), c.Name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// App is something to deploy, in [AppNamespace].
func App(name, image string) map[string]any {
	return map[string]any{
		"apiVersion": Apps.GroupVersion().String(), "kind": "App",
		"metadata": map[string]any{"namespace": AppNamespace, "name": name},
		"spec":     map[string]any{"image": image},
	}
}

// Describe creates a Description of these objects, or edits it.
func (c *Child) Describe(name string, objects ...map[string]any) {
	c.Helper()
	raw := make([]any, 0, len(objects))
	for _, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			c.Fatal(err)
		}
		raw = append(raw, base64.StdEncoding.EncodeToString(data))
	}
	spec := map[string]any{"deployer": "Generic", "raw": raw}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		c.Fatal(err)
	}
	_, err = c.descriptions().Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetGroupVersionKind(deploy.Resource.GroupVersion().WithKind("Description"))
		object.SetName(name)
		object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.ID)})
		object.SetFinalizers([]string{deploy.Finalizer})
		_, err = c.descriptions().Create(context.Background(), object, metav1.CreateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

// Description returns a Description, or nil.
func (c *Child) Description(name string) *unstructured.Unstructured {
	c.Helper()
	object, err := c.descriptions().Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return object
}

// Phase returns the phase of a Description and its reason, empty when there is none.
func (c *Child) Phase(name string) (phase, reason string) {
	c.Helper()
	if object := c.Description(name); object != nil {
		phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
		reason, _, _ = unstructured.NestedString(object.Object, "status", "reason")
	}
	return phase, reason
}

// DeleteDescription deletes a Description; its finalizer may keep it.
func (c *Child) DeleteDescription(name string) {
	c.Helper()
	if err := c.descriptions().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// Drift changes an app of the child behind its deployer's back.
func (c *Child) Drift(name, image string) {
	c.Helper()
	patch := fmt.Sprintf(`{"spec":{"image":%q}}`, image)
	_, err := c.apps().Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

// Remove deletes an app of the child behind its deployer's back.
func (c *Child) Remove(name string) {
	c.Helper()
	if err := c.apps().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// Images returns the image of each app of the child.
func (c *Child) Images() map[string]string {
	c.Helper()
	list, err := c.apps().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	images := map[string]string{}
	for _, object := range list.Items {
		images[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "image")
	}
	return images
}

// Eventually waits until is returns true, and fails the test by what says if that takes
// too long.
func Eventually(tb testing.TB, within time.Duration, is func() bool, what func() string) {
	tb.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, within, true, func(context.Context) (bool, error) {
		return is(), nil
	})
	if err != nil {
		tb.Errorf("after %v: %s", within, what())
	}
}

// userAgent is that of the tests' own requests.
const userAgent = "fleettest"

// Write is a request that changes something.
type Write struct {
	At                  time.Time // when it came
	Method, Path, Agent string
}

func (w Write) String() string { return w.Method + " " + w.Path + " (" + w.Agent + ")" }

// requestLog records what a server is asked for.
type requestLog struct {
	hook atomic.Pointer[func(*http.Request) int]

	mu       sync.Mutex
	requests int // of all kinds, but for those of the tests
	writes   []Write
	asked    []string // all requests, but for Leases
	last     time.Time
}

func (l *requestLog) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.add(r)
		if hook := l.hook.Load(); hook != nil && r.UserAgent() != userAgent {
			if code := (*hook)(r); code != 0 {
				http.Error(w, "refused by a test", code)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// intercept calls hook for each request of others than the test, until the test ends.
func (l *requestLog) intercept(tb testing.TB, hook func(*http.Request) int) {
	l.hook.Store(&hook)
	tb.Cleanup(func() { l.hook.Store(nil) })
}

func (l *requestLog) add(r *http.Request) {
	if r.UserAgent() == userAgent {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if !isLease(r.URL.Path) {
		l.asked = append(l.asked, r.Method+" "+r.URL.RequestURI())
		l.last = time.Now()
	}
	switch {
	case r.Method == http.MethodGet, r.Method == http.MethodHead, r.Method == http.MethodOptions:
	case r.URL.Query().Has("dryRun"):
	default:
		agent, _, _ := strings.Cut(r.UserAgent(), "/")
		l.writes = append(l.writes, Write{time.Now(), r.Method, r.URL.Path, agent})
	}
}

func (l *requestLog) copy() []Write {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.writes)
}

// Writes returns what others than the test have written to the child so far, but for
// the Leases that agents compete for.
func (c *Child) Writes() []Write {
	return slices.DeleteFunc(c.log.copy(), func(w Write) bool { return isLease(w.Path) })
}

func isLease(path string) bool { return strings.Contains(path, "/leases") }

// Asked returns what others than the test have asked of the child so far, reads, dry
// runs and the beginnings of watches too, but for Leases.
func (c *Child) Asked() []string {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return slices.Clone(c.log.asked)
}

// Quiet waits until nothing has been asked of the child for a while: what its own
// changes bring about has been done then.
func (c *Child) Quiet() {
	c.Helper()
	const quiet = 250 * time.Millisecond
	began := time.Now()
	Eventually(c.TB, Soon, func() bool {
		c.log.mu.Lock()
		defer c.log.mu.Unlock()
		return time.Since(began) > quiet && time.Since(c.log.last) > quiet
	}, func() string { return fmt.Sprintf("%s is asked all the time: %s", c.Name, c.Asked()[len(c.Asked())-1]) })
}

// Intercept has each request of others than the test held up for as long as hook runs,
// and refused with the status that it returns unless that is 0, until the test ends.
func (c *Child) Intercept(hook func(*http.Request) int) { c.log.intercept(c.TB, hook) }

// Intercept is as for a child.
func (p *Parent) Intercept(tb testing.TB, hook func(*http.Request) int) { p.log.intercept(tb, hook) }

// LeaseNamespace is where deployers compete for Leases.
const LeaseNamespace = "default"

// Leases of a cluster.
func leases(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(leaseResource).Namespace(LeaseNamespace)
}

// Holder returns who holds a Lease of the child, empty if nobody does.
func (c *Child) Holder(lease string) string { c.Helper(); return holder(c.TB, c.Client, lease) }

// Holder is as for a child.
func (p *Parent) Holder(tb testing.TB, lease string) string {
	tb.Helper()
	return holder(tb, p.Client, lease)
}

func holder(tb testing.TB, client dynamic.Interface, lease string) string {
	tb.Helper()
	object, err := leases(client).Get(context.Background(), lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		tb.Fatal(err)
	}
	who, _, _ := unstructured.NestedString(object.Object, "spec", "holderIdentity")
	return who
}

// TakeLease makes somebody else the holder of a Lease of the child, for a time.
func (c *Child) TakeLease(lease string, seconds int) {
	c.Helper()
	takeLease(c.TB, c.Client, lease, seconds)
}

// TakeLease is as for a child.
func (p *Parent) TakeLease(tb testing.TB, lease string, seconds int) {
	tb.Helper()
	takeLease(tb, p.Client, lease, seconds)
}

func takeLease(tb testing.TB, client dynamic.Interface, lease string, seconds int) {
	tb.Helper()
	now := time.Now().UTC().Format(metav1.RFC3339Micro)
	spec := map[string]any{
		"holderIdentity": "somebody", "leaseDurationSeconds": int64(seconds), "acquireTime": now, "renewTime": now,
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		tb.Fatal(err)
	}
	_, err = leases(client).Patch(context.Background(), lease, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetGroupVersionKind(leaseResource.GroupVersion().WithKind("Lease"))
		object.SetName(lease)
		_, err = leases(client).Create(context.Background(), object, metav1.CreateOptions{})
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// DropLease deletes a Lease of the child.
func (c *Child) DropLease(lease string) { c.Helper(); dropLease(c.TB, c.Client, lease) }

// DropLease is as for a child.
func (p *Parent) DropLease(tb testing.TB, lease string) { tb.Helper(); dropLease(tb, p.Client, lease) }

func dropLease(tb testing.TB, client dynamic.Interface, lease string) {
	tb.Helper()
	if err := leases(client).Delete(context.Background(), lease, metav1.DeleteOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// Requests returns the number of requests of any kind.
func (c *Child) Requests() int {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return c.log.requests
}

// Writes returns what others than the test have written to the parent so far.
func (p *Parent) Writes() []Write { return p.log.copy() }

// Watch counts what happens to the apps of the child, from now on until the test ends,
// as "ADDED name", "MODIFIED name" and "DELETED name".
func (c *Child) Watch() (seen func() []string) {
	c.Helper()
	list, err := c.apps().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	watch, err := c.apps().Watch(context.Background(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		c.Fatal(err)
	}
	var mu sync.Mutex
	var events []string
	var ended sync.WaitGroup
	ended.Go(func() {
		for event := range watch.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok {
				mu.Lock()
				events = append(events, string(event.Type)+" "+object.GetName())
				mu.Unlock()
			}
		}
	})
	c.Cleanup(func() { watch.Stop(); ended.Wait() })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(events)
	}
}

// As returns config for a deployer of that name: its requests are told by it.
func As(name string, config *rest.Config) *rest.Config {
	config.UserAgent = name
	config.ContentType = runtime.ContentTypeJSON // custom resources, which the Leases are here, have no other
	return config
}

// Run runs an agent or a hub until stop is called, or the test ends.
func Run(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := run(ctx); err != nil {
			tb.Errorf("Run = %v", err)
		}
	})
	stop = func() { cancel(); ended.Wait() }
	tb.Cleanup(stop)
	return stop
}

// Listen gives a deployer a listener, and returns what waits until it is served a page
// with a status and some words.
func Listen(tb testing.TB, listener *net.Listener) (served func(path string, status int, words ...string)) {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() }) // what serves has closed it already
	*listener = l
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: Soon}
	get := func(path string) (int, string, error) {
		answer, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), err
	}
	return func(path string, status int, words ...string) {
		tb.Helper()
		Eventually(tb, Soon, func() bool {
			got, body, err := get(path)
			return err == nil && got == status && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(body, w) })
		}, func() string {
			got, body, err := get(path)
			return fmt.Sprintf("%s = %d %q, %v; want %d and the words %q", path, got, body, err, status, words)
		})
	}
}

// appCRD has a default, which a server adds to what is applied.
func appCRD() *apiextensionsv1.CustomResourceDefinition {
	crd := definition(Apps, "App")
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"image":    {Type: "string"},
			"replicas": {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("1")}},
		}},
	}
	return crd
}

var leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// leaseCRD stands for the Leases that a localcluster does not have.
func leaseCRD() *apiextensionsv1.CustomResourceDefinition {
	crd := definition(leaseResource, "Lease")
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for tests"}
	keep := true
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XPreserveUnknownFields = &keep
	return crd
}

func definition(resource schema.GroupVersionResource, kind string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: resource.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: resource.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: kind, ListKind: kind + "List", Plural: resource.Resource, Singular: strings.ToLower(kind),
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: resource.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				},
			}},
		},
	}
}
