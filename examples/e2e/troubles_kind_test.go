package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

const thingGroup = "things.example.com"

// thingCRD returns a CRD with these versions, of which the first is stored; one with a
// minus sign is not served.
func thingCRD(kind string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	keep, plural := true, strings.ToLower(kind)+"s"
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + thingGroup}}
	crd.Spec.Group, crd.Spec.Scope = thingGroup, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)}
	for i, version := range versions {
		name := strings.TrimPrefix(version, "-")
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: name == version, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
			},
		})
	}
	return crd
}

func applyCRD(c *fleettest.Child, crd *apiextensionsv1.CustomResourceDefinition) {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fleettest.Soon)
	defer cancel()
	if err := c.Apply(ctx, crd); err != nil {
		c.Fatal(err)
	}
}

func crdsOf(c *fleettest.Child) dynamic.ResourceInterface { return c.Client.Resource(crds) }

// deleteCRD returns once it is gone.
func deleteCRD(c *fleettest.Child, name string) {
	c.Helper()
	if err := crdsOf(c).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool {
		_, err := crdsOf(c).Get(context.Background(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, func() string { return "the CRD " + name + " is still there" })
}

// thing is an object of such a CRD.
func thing(kind, version, name, size string) map[string]any {
	return map[string]any{
		"apiVersion": thingGroup + "/" + version, "kind": kind,
		"metadata": map[string]any{"namespace": fleettest.AppNamespace, "name": name},
		"spec":     map[string]any{"size": size},
	}
}

// thing returns one that the child has, or nil.
func (c *cluster) thing(kind, version, name string) *unstructured.Unstructured {
	c.Helper()
	resource := schema.GroupVersionResource{Group: thingGroup, Version: version, Resource: strings.ToLower(kind) + "s"}
	object, err := c.Client.Resource(resource).Namespace(fleettest.AppNamespace).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return object
}

// awaitThing waits until it has a size; empty: until it is gone.
func (c *cluster) awaitThing(when, kind, version, name, size string) *unstructured.Unstructured {
	c.Helper()
	var object *unstructured.Unstructured
	got := ""
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool {
		got = ""
		if object = c.thing(kind, version, name); object != nil {
			got, _, _ = unstructured.NestedString(object.Object, "spec", "size")
		}
		return got == size
	}, func() string { return fmt.Sprintf("%s: %s %s has size %q, want %q", when, kind, name, got, size) })
	return object
}

func testKindComesLate(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	c.describeEach("1", "web")
	c.awaitEach("at first", "1", "web")
	c.Describe("web", thing("Late", "v1", "one", "1"), fleettest.App(c.app(), "1"))
	c.AwaitFailure("web", "Late default/one", "does not serve this kind", "CustomResourceDefinition")
	c.AwaitImages("beside a kind that is not served", map[string]string{c.app(): "1"})
	c.describeEach("1", "other")
	c.awaitEach("beside a kind that is not served", "1", "other")
	const missing = 3 * time.Second
	sleep(missing)
	c.awaitApps("which is not there to replace it", "1", "web")
	applyCRD(c.Child, thingCRD("Late", "v1"))
	began := time.Now()
	c.awaitThing("with its CRD", "Late", "v1", "one", "1")
	c.Logf("a kind that was missing for %v is applied %v after its CRD came", missing, time.Since(began))
	c.AwaitPhase("Success", "web")
	c.awaitApps("replaced", "", "web")
}

func testKindGoes(f *fleettest.Fleet, c *cluster) {
	applyCRD(c.Child, thingCRD("Brief", "v1"))
	c.pull(f)
	c.Describe("web", thing("Brief", "v1", "one", "1"))
	c.Describe("goes", thing("Brief", "v1", "two", "1"))
	c.awaitThing("at first", "Brief", "v1", "one", "1")
	c.awaitThing("at first", "Brief", "v1", "two", "1")
	deleteCRD(c.Child, thingCRD("Brief").Name)
	c.AwaitFailure("web")
	c.DeleteDescription("goes")
	c.AwaitNoDescription("goes")

	applyCRD(c.Child, thingCRD("Brief", "v1"))
	c.awaitThing("with a new CRD", "Brief", "v1", "one", "1")
	c.AwaitPhase("Success", "web")
	c.DeleteDescription("web")
	c.AwaitNoDescription("web")
	c.awaitThing("deleted", "Brief", "v1", "one", "")
}

func testOtherVersion(f *fleettest.Fleet, c *cluster) {
	applyCRD(c.Child, thingCRD("Grown", "v1", "v1beta1"))
	c.pull(f)
	c.Describe("web", thing("Grown", "v1beta1", "one", "1"))
	uid := c.awaitThing("at first", "Grown", "v1", "one", "1").GetUID()
	for size, version := range map[string]string{"2": "v1", "3": "v1beta1"} {
		c.Describe("web", thing("Grown", version, "one", size))
		if got := c.awaitThing("in "+version, "Grown", "v1", "one", size).GetUID(); got != uid {
			c.Errorf("in %s it has UID %s, want %s as before: it was deleted on the way", version, got, uid)
		}
		c.AwaitPhase("Success", "web")
		manifests, _, _ := unstructured.NestedSlice(c.Description("web").Object, "status", "manifestStatuses")
		if len(manifests) != 1 || manifests[0].(map[string]any)["apiVersion"] != thingGroup+"/"+version {
			c.Errorf("in %s status.manifestStatuses = %v; want the one object in that version", version, manifests)
		}
	}
	for _, w := range c.Writes() {
		if w.Method == http.MethodDelete && strings.HasSuffix(w.Path, "/growns/one") {
			c.Errorf("it was deleted: %v", w)
		}
	}
	c.Describe("web")
	c.awaitThing("removed", "Grown", "v1", "one", "")
}

// What was written in a version that the child does not serve any more is deleted in
// another one.
func testWithdrawnVersion(f *fleettest.Fleet, c *cluster) {
	for name, restart := range map[string]bool{"Stale": false, "Fresh": true} {
		applyCRD(c.Child, thingCRD(name, "v1", "v1beta1"))
		stop := c.pull(f)
		c.Describe("removed", thing(name, "v1beta1", "one", "1"), fleettest.App(c.appOf("removed"), "1"))
		c.Describe("deleted", thing(name, "v1beta1", "two", "1"))
		c.awaitThing("at first", name, "v1", "one", "1")
		c.awaitThing("at first", name, "v1", "two", "1")
		c.AwaitPhase("Success", "removed")
		c.AwaitPhase("Success", "deleted")
		applyCRD(c.Child, thingCRD(name, "v1", "-v1beta1"))
		fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return c.thing(name, "v1beta1", "one") == nil },
			func() string { return "v1beta1 is still served" })
		if restart {
			stop()
			stop = c.pull(f)
		}
		c.Describe("removed", fleettest.App(c.appOf("removed"), "2"))
		c.awaitEach("removed", "2", "removed")
		c.DeleteDescription("deleted")
		c.AwaitNoDescription("deleted")
		for _, object := range []string{"one", "two"} {
			fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return c.thing(name, "v1", object) == nil }, func() string {
				return fmt.Sprintf("%s %s is left in the child, and no Description knows of it; the deployer was restarted: %t", name, object, restart)
			})
		}
		stop()
	}
}
