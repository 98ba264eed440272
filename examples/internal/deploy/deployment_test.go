package deploy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// deployment is a deployer at work between a parent and a child, both in memory.
type deployment struct {
	*testing.T
	ctx    context.Context //nolint:containedctx // of all waits of one test
	parent *fake.FakeDynamicClient
	child  *childStub
	gate   *syncgate.Gate

	deployer *Deployer

	limit     atomic.Int64 // of the bytes of a write to the parent, without a finalizer; 0: none
	conflicts atomic.Int64 // how many writes of the deployer to the parent meet one

	beforePatch atomic.Value // func(), called before the deployer writes to the parent
}

// hookedParent is the parent as the deployer has it.
type hookedParent struct {
	dynamic.Interface
	deployment *deployment
}

func (p hookedParent) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return hookedNamespaces{p.Interface.Resource(r), p.deployment}
}

type hookedNamespaces struct {
	dynamic.NamespaceableResourceInterface
	deployment *deployment
}

func (n hookedNamespaces) Namespace(namespace string) dynamic.ResourceInterface {
	return hookedDescriptions{n.NamespaceableResourceInterface.Namespace(namespace), n.deployment}
}

type hookedDescriptions struct {
	dynamic.ResourceInterface
	deployment *deployment
}

func (r hookedDescriptions) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	if hook, ok := r.deployment.beforePatch.Load().(func()); ok {
		hook()
	}
	if limit := r.deployment.limit.Load(); limit > 0 && len(sub) > 0 && len(data) > int(limit) {
		return nil, apierrors.NewRequestEntityTooLargeError("etcdserver: request is too large")
	}
	if r.deployment.conflicts.Add(-1) >= 0 {
		return nil, apierrors.NewConflict(Resource.GroupResource(), name, nil)
	}
	return r.ResourceInterface.Patch(ctx, name, pt, data, o, sub...)
}

// deployTo deploys Descriptions to a child until the test ends.
func deployTo(t *testing.T, child *childStub, initial ...runtime.Object) *deployment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	managedCluster := fromJSON(t, `{"apiVersion":"clusters.clusternet.io/v1beta1","kind":"ManagedCluster",
		"metadata":{"namespace":"clusternet-abcde","name":"child","uid":"u9"},"spec":{"clusterId":"c1","syncMode":"Pull"}}`)
	parent := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		informer.Resource: "ManagedClusterList", Resource: "DescriptionList",
	}, append(initial, managedCluster)...)
	gate, err := syncgate.New(parent, "clusternet-abcde", "c1", syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &deployment{T: t, ctx: ctx, parent: parent, child: child, gate: gate}
	descriptions := NewInformer(parent, "clusternet-abcde", "c1")
	deployer := New(Options{
		Parent: hookedParent{parent, d}, Descriptions: descriptions, Namespace: "clusternet-abcde", Gate: gate,
		Child: func() (*rest.Config, error) {
			return &rest.Config{Host: "http://child", Transport: child, QPS: -1}, nil
		},
	})
	d.deployer = deployer
	if _, err := descriptions.AddEventHandler(OnChange(func(_ Cluster, key string) { deployer.Add(key) })); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{
		gate.Run, deployer.Run, func(ctx context.Context) error { descriptions.RunWithContext(ctx); return nil },
	} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("it ended early: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		child.endWatches()
		running.Wait()
	})
	return d
}

func (d *deployment) await(what string, done func() bool) {
	d.Helper()
	err := wait.PollUntilContextCancel(d.ctx, time.Millisecond, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		d.Errorf("waiting for %s: %v; the child was sent %q", what, err, d.child.since(0))
	}
}

func (d *deployment) setPaused(paused bool) {
	d.Helper()
	_, err := d.parent.Resource(informer.Resource).Namespace("clusternet-abcde").Patch(d.ctx, "child", types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"syncPaused":%t}}`, paused), metav1.PatchOptions{})
	if err != nil {
		d.Errorf("setting spec.syncPaused=%t: %v", paused, err)
	}
	d.await("the gate", func() bool { return d.gate.Paused() == paused })
}

// awaitDrained returns how many requests the child had been sent when the gate was drained.
func (d *deployment) awaitDrained() int {
	d.Helper()
	if err := d.gate.WaitDrained(d.ctx); err != nil {
		d.Errorf("WaitDrained() = %v", err)
	}
	return len(d.child.since(0))
}

// description returns a Description, or nil.
func (d *deployment) description(name string) *unstructured.Unstructured {
	object, err := d.parent.Resource(Resource).Namespace("clusternet-abcde").Get(d.ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return object
}

func (d *deployment) phase() string { return d.phaseOf("web") }

func (d *deployment) phaseOf(name string) string {
	object := d.description(name)
	switch {
	case object == nil:
		return "none"
	case object.GetDeletionTimestamp() != nil && !slices.Contains(object.GetFinalizers(), Finalizer):
		return "released"
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	return phase
}

func (d *deployment) reason() string {
	reason, _, _ := unstructured.NestedString(d.description("web").Object, "status", "reason")
	return reason
}

// create creates a Description.
func (d *deployment) create(name string, raw ...string) {
	d.Helper()
	object := of(d.T, "", `"deployer":"Generic",`+encoded(raw...), "")
	object.SetName(name)
	if _, err := d.parent.Resource(Resource).Namespace("clusternet-abcde").Create(d.ctx, object, metav1.CreateOptions{}); err != nil {
		d.Error(err)
	}
}

// edit edits a Description.
func (d *deployment) edit(name string, raw ...string) {
	d.Helper()
	patch := fmt.Sprintf(`{"metadata":{"generation":%d},"spec":{%s}}`, d.description(name).GetGeneration()+1, encoded(raw...))
	if _, err := d.parent.Resource(Resource).Namespace("clusternet-abcde").Patch(d.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		d.Error(err)
	}
}

// delete deletes a Description, which its finalizer keeps.
func (d *deployment) delete(name string) {
	d.Helper()
	patch := `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`
	if _, err := d.parent.Resource(Resource).Namespace("clusternet-abcde").Patch(d.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		d.Error(err)
	}
}

// owns reports whether the status of a Description lists these objects, as "version name".
func (d *deployment) owns(name string, want ...string) bool {
	var got []string
	for _, id := range newDescription(d.description(name)).owned() {
		got = append(got, id.apiVersion+" "+id.name)
	}
	return slices.Equal(got, want)
}
