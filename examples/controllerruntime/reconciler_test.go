package controllerruntime

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	leaks.Main(m)
}

const (
	namespace = "clusternet-abcde"
	clusterID = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
)

var notes = schema.GroupVersionResource{Group: "example.clusternet.io", Version: "v1", Resource: "notes"}

// noteCRD is what is deployed: something that changes.
func noteCRD() *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: notes.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: notes.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Note", ListKind: "NoteList", Plural: "notes", Singular: "note"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: notes.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
}

func object(gvk schema.GroupVersionKind, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetName(name)
	return u
}

// startParent returns a client of a cluster that has a paused ManagedCluster, and the cluster.
func startParent(t *testing.T) (dynamic.Interface, *localcluster.Cluster) {
	t.Helper()
	cluster, err := localcluster.Start(t.Context(), localcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{localcluster.ManagedClusterCRD(), noteCRD()} {
		if err := cluster.Apply(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	child := object(informer.Resource.GroupVersion().WithKind("ManagedCluster"), "child", map[string]any{
		"spec": map[string]any{"clusterId": clusterID, "syncMode": "Pull", "syncPaused": true},
	})
	if _, err := parent.Resource(informer.Resource).Namespace(namespace).Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return parent, cluster
}

func writeNote(t *testing.T, client dynamic.Interface, name string, text int) {
	t.Helper()
	data := fmt.Appendf(nil, `{"apiVersion":"example.clusternet.io/v1","kind":"Note","metadata":{"name":%q},"text":"%d"}`, name, text)
	_, err := client.Resource(notes).Namespace(namespace).
		Patch(t.Context(), name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until done returns true.
func await(ctx context.Context, done func() bool) error {
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return done(), nil
	})
}

func TestParkedRequestsAreReconciledOnResume(t *testing.T) {
	parent, cluster := startParent(t)
	gate, err := syncgate.New(parent, namespace, clusterID, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(cluster.Config(), manager.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	deployed := map[string]int{}
	kind := notes.GroupVersion().WithKind("Note")
	err = Add(mgr, object(kind, "", map[string]any{}), gate, func(_ context.Context, request reconcile.Request) error {
		mu.Lock()
		defer mu.Unlock()
		deployed[request.Name]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})

	for i := range 3 { // changed three times, to be deployed once
		writeNote(t, parent, "a", i)
		writeNote(t, parent, "b", i)
		if err := await(ctx, func() bool { return gate.Stats().Refused >= uint64(2*(i+1)) }); err != nil {
			t.Fatalf("Stats() = %+v; want the changes refused", gate.Stats())
		}
	}
	mu.Lock()
	if len(deployed) != 0 || gate.Stats().Parked != 2 {
		t.Errorf("during the pause deployed = %v, Stats() = %+v; want none and 2 parked", deployed, gate.Stats())
	}
	mu.Unlock()
	if _, err := parent.Resource(informer.Resource).Namespace(namespace).Patch(ctx, "child", types.MergePatchType,
		[]byte(`{"spec":{"syncPaused":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := await(ctx, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return deployed["a"] == 1 && deployed["b"] == 1
	}); err != nil {
		t.Errorf("after the resume deployed = %v; want each once", deployed)
	}
}
