package localcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/examples/localcluster"
)

const (
	clusterID = "11111111-2222-3333-4444-555555555555"
	otherID   = "99999999-2222-3333-4444-555555555555"
)

var resource = schema.GroupVersionResource{Group: "clusters.clusternet.io", Version: "v1beta1", Resource: "managedclusters"}

// soon is how long a test waits for what should come at once, on a machine that does much else.
const soon = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" { // it is ended by the test that started it
		os.Exit(m.Run())
	}
	leaks.Main(m)
}

func start(t *testing.T, opts localcluster.Options) *localcluster.Cluster {
	t.Helper()
	c, err := localcluster.Start(t.Context(), opts)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func apply(t *testing.T, c *localcluster.Cluster, full bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	crd := localcluster.StockManagedClusterCRD()
	if full {
		crd = localcluster.ManagedClusterCRD()
	}
	if err := c.Apply(ctx, crd); err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, c *localcluster.Cluster) dynamic.NamespaceableResourceInterface {
	t.Helper()
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{} // about the unknown fields that some tests send
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(resource)
}

func object(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// create creates a paused ManagedCluster with a field that no CRD has.
func create(t *testing.T, mcls dynamic.NamespaceableResourceInterface, namespace, name, id string) *unstructured.Unstructured {
	t.Helper()
	created, err := mcls.Namespace(namespace).Create(t.Context(), object(name, map[string]any{
		"clusterId": id, "syncMode": "Dual", "syncPaused": true, "unknown": "x",
	}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func list(t *testing.T, mcls dynamic.NamespaceableResourceInterface, opts metav1.ListOptions) []unstructured.Unstructured {
	t.Helper()
	got, err := mcls.List(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return got.Items
}

func names(items []unstructured.Unstructured) []string {
	var names []string
	for _, item := range items {
		names = append(names, item.GetName())
	}
	return names
}

// drainWatch reads until the watch ends and returns the last event, "" for none.
func drainWatch(t *testing.T, w watch.Interface) string {
	t.Helper()
	defer w.Stop()
	timeout := time.After(soon)
	last := ""
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return last
			}
			last = string(event.Type)
			if u, ok := event.Object.(*unstructured.Unstructured); ok {
				last += fmt.Sprint(" ", u.Object["spec"])
			}
			if event.Type == watch.Error {
				last += ": " + apierrors.FromObject(event.Object).Error()
			}
		case <-timeout:
			t.Errorf("the watch has not ended in %v", soon)
			return last
		}
	}
}

var errNoEvent = errors.New("no event")

// watchFrom returns the error that a watch from the version starts with, nil when events come, errNoEvent when none come.
func watchFrom(t *testing.T, mcls dynamic.NamespaceableResourceInterface, version string, limit time.Duration) error {
	t.Helper()
	w, err := mcls.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case event := <-w.ResultChan():
		if event.Type == watch.Error {
			return fmt.Errorf("ERROR event: %w", apierrors.FromObject(event.Object))
		}
		return nil
	case <-time.After(limit):
		return errNoEvent
	}
}

// passOn is a Handler that does nothing.
func passOn(next http.Handler) http.Handler { return next }

// eachWay runs a test on a server by itself, and behind a Handler.
func eachWay(t *testing.T, test func(*testing.T, localcluster.Options)) {
	t.Run("direct", func(t *testing.T) { test(t, localcluster.Options{}) })
	t.Run("handler", func(t *testing.T) { test(t, localcluster.Options{Handler: passOn}) })
}

// eventually tries until there is no error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (at last: %v)", what, err, last)
	}
}
