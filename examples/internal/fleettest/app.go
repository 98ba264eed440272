package fleettest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// AppResource is the resource of what is deployed to children.
var AppResource = schema.GroupVersionResource{Group: "demo.example.com", Version: "v1", Resource: "apps"}

// AppNamespace is where apps are.
const AppNamespace = "default"

// Apps is a client of the apps in the child.
func (c *Child) Apps() dynamic.ResourceInterface {
	return c.Client.Resource(AppResource).Namespace(AppNamespace)
}

// App is something to deploy, in [AppNamespace].
func App(name, image string) map[string]any {
	return map[string]any{
		"apiVersion": AppResource.GroupVersion().String(), "kind": "App",
		"metadata": map[string]any{"namespace": AppNamespace, "name": name},
		"spec":     map[string]any{"image": image},
	}
}

// Drift changes an app of the child, as somebody else than its deployer.
func (c *Child) Drift(name, image string) {
	c.Helper()
	c.PatchApp(name, fmt.Sprintf(`{"spec":{"image":%q}}`, image))
}

// PatchApp does so with a merge patch.
func (c *Child) PatchApp(name, patch string) {
	c.Helper()
	_, err := c.Apps().Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.Fatal(err)
	}
}

// Remove deletes an app of the child, as somebody else than its deployer.
func (c *Child) Remove(name string) {
	c.Helper()
	if err := c.Apps().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// AppObject returns an app of the child, or nil.
func (c *Child) AppObject(name string) *unstructured.Unstructured {
	c.Helper()
	object, err := c.Apps().Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return object
}

// AppObjects returns all apps of the child.
func (c *Child) AppObjects() []unstructured.Unstructured {
	c.Helper()
	list, err := c.Apps().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return list.Items
}

// Images returns the image of each app of the child.
func (c *Child) Images() map[string]string {
	c.Helper()
	images := map[string]string{}
	for _, object := range c.AppObjects() {
		images[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "image")
	}
	return images
}

// AwaitImages waits until these apps have these images; an empty one means that the app
// is gone. Other apps do not matter.
func (c *Child) AwaitImages(when string, want map[string]string) {
	c.Helper()
	got := map[string]string{}
	Eventually(c.TB, Soon, func() bool {
		images := c.Images()
		for name := range want {
			got[name] = images[name]
		}
		return maps.Equal(got, want)
	}, func() string { return fmt.Sprintf("%s: the images of %s are %v; want %v", when, c.Name, got, want) })
}

// AwaitAllImages waits until the child has these apps and no other.
func (c *Child) AwaitAllImages(when string, want map[string]string) {
	c.Helper()
	var got map[string]string
	Eventually(c.TB, Soon, func() bool { got = c.Images(); return maps.Equal(got, want) }, func() string {
		return fmt.Sprintf("%s: the images of %s are %v; want %v and no other", when, c.Name, got, want)
	})
}

// WatchApps records what happens to the apps of the child, from now on until the test
// ends, as "ADDED name", "MODIFIED name" and "DELETED name".
func (c *Child) WatchApps() (events func() []string) {
	c.Helper()
	list, err := c.Apps().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	watch, err := c.Apps().Watch(context.Background(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		c.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	var ended sync.WaitGroup
	ended.Go(func() {
		for event := range watch.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok {
				mu.Lock()
				all = append(all, string(event.Type)+" "+object.GetName())
				mu.Unlock()
			}
		}
	})
	c.Cleanup(func() { watch.Stop(); ended.Wait() })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}
