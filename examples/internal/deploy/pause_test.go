package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	parent dynamic.Interface
	child  *childStub
	gate   *syncgate.Gate
}

// deployTo deploys a Description to a child until the test ends.
func deployTo(t *testing.T, child *childStub, description *unstructured.Unstructured) *deployment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	managedCluster := fromJSON(t, `{"apiVersion":"clusters.clusternet.io/v1beta1","kind":"ManagedCluster",
		"metadata":{"namespace":"clusternet-abcde","name":"child","uid":"u9"},"spec":{"clusterId":"c1","syncMode":"Pull"}}`)
	parent := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		informer.Resource: "ManagedClusterList", Resource: "DescriptionList",
	}, managedCluster, description)
	gate, err := syncgate.New(parent, "clusternet-abcde", "c1", syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	descriptions := NewInformer(parent, "clusternet-abcde", "c1")
	deployer := New(Options{
		Parent: parent, Descriptions: descriptions, Namespace: "clusternet-abcde", Gate: gate,
		Child: func() (*rest.Config, error) { return &rest.Config{Host: "http://child", Transport: child}, nil },
	})
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
	return &deployment{t, ctx, parent, child, gate}
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

func (d *deployment) phase() string {
	object, err := d.parent.Resource(Resource).Namespace("clusternet-abcde").Get(d.ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	if !slices.Contains(object.GetFinalizers(), Finalizer) && object.GetDeletionTimestamp() != nil {
		return "released"
	}
	return phase
}

const owned = `"manifestStatuses":[
	{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"edited"},
	{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"removed"}]`

// A pause can come within any request. The gate is drained only when that request has ended, and
// none follows.
func TestPauseWithinAnyRequest(t *testing.T) {
	for _, test := range []struct {
		name, metadata, phase string
		want                  map[string]string // in the child at the end
		requests              []string
	}{
		{"edited", "", phaseSuccess, map[string]string{"edited": "2", "new": "2"}, []string{
			"GET kinds", "GET edited", "DRYRUN edited", "GET new", "PATCH edited", "PATCH new", "GET removed", "DELETE removed", "LIST", "WATCH",
		}},
		{"deleted", `"deletionTimestamp":"2026-01-01T00:00:00Z",`, "released", map[string]string{}, []string{
			"GET kinds", "GET edited", "DELETE edited", "GET removed", "DELETE removed", "LIST", "WATCH",
		}},
	} {
		for _, request := range test.requests {
			t.Run(test.name+"/"+strings.ReplaceAll(request, " ", "-"), func(t *testing.T) {
				child := newChildStub(t)
				child.put("edited", "1")
				child.put("removed", "1")
				ready, paused := make(chan *deployment, 1), make(chan struct{})
				var once sync.Once
				child.during = func(got string) {
					if got != request {
						return
					}
					once.Do(func() {
						d := <-ready
						d.setPaused(true)
						if d.gate.InFlight() == 0 {
							t.Errorf("the gate is drained within %s", request)
						}
						close(paused)
					})
				}
				d := deployTo(t, child, of(t, test.metadata+`"finalizers":["`+Finalizer+`"]`,
					`"deployer":"Generic",`+encoded(configMap("edited", "2"), configMap("new", "2")), owned))
				ready <- d
				select {
				case <-paused:
				case <-d.ctx.Done():
					t.Fatalf("%s was not sent, but %q", request, child.since(0))
				}
				n := d.awaitDrained()
				d.await("the Description", func() bool { return slices.Contains([]string{phasePending, test.phase}, d.phase()) })
				if got := child.since(n); len(got) > 0 {
					t.Errorf("paused within %s: the child was sent %q after the gate was drained; want nothing", request, got)
				}
				d.setPaused(false)
				d.await("the Description after the resume", func() bool { return d.phase() == test.phase })
				if got := child.values(); !maps.Equal(got, test.want) {
					t.Errorf("at the end the child has %v; want %v", got, test.want)
				}
			})
		}
	}
}

// A watch stays open in a pause. One that ends in it begins again on resume.
func TestWatchEndsInPause(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child, of(t, "", `"deployer":"Generic",`+encoded(configMap("edited", "1")), ""))
	d.await("the Description", func() bool { return d.phase() == phaseSuccess })
	d.await("an open watch", func() bool {
		child.mu.Lock()
		defer child.mu.Unlock()
		return len(child.watches) > 0
	})
	d.setPaused(true)
	n := d.awaitDrained()
	refused := d.gate.Stats().Refused
	child.endWatches()
	d.await("the end of the watch", func() bool { return d.gate.Stats().Refused > refused || len(child.since(n)) > 0 })
	if got := child.since(n); len(got) > 0 {
		t.Errorf("the watch has ended in the pause: the child was sent %q; want nothing until the resume", got)
	}
	child.put("edited", "by somebody")
	d.setPaused(false)
	d.await("the repair of what has changed in the pause", func() bool { return child.values()["edited"] == "1" })
}
