package fleettest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/examples/internal/deploy"
)

// Descriptions is a client of the child's namespace in the parent.
func (c *Child) Descriptions() dynamic.ResourceInterface {
	return c.parent.Client.Resource(deploy.Resource).Namespace(c.Namespace)
}

// Describe creates a Description of these objects, or edits it.
func (c *Child) Describe(name string, objects ...map[string]any) {
	c.Helper()
	raw := make([]string, 0, len(objects))
	for _, object := range objects {
		data, err := json.Marshal(object)
		if err != nil {
			c.Fatal(err)
		}
		raw = append(raw, string(data))
	}
	c.DescribeRaw(name, raw...)
}

// DescribeRaw does so with texts, which need not be objects.
func (c *Child) DescribeRaw(name string, raw ...string) {
	c.Helper()
	encoded := make([]any, 0, len(raw))
	for _, each := range raw {
		encoded = append(encoded, base64.StdEncoding.EncodeToString([]byte(each)))
	}
	spec := map[string]any{"deployer": "Generic", "raw": encoded}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		c.Fatal(err)
	}
	_, err = c.Descriptions().Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetGroupVersionKind(deploy.Resource.GroupVersion().WithKind("Description"))
		object.SetName(name)
		object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.ID)})
		object.SetFinalizers([]string{deploy.Finalizer})
		_, err = c.Descriptions().Create(context.Background(), object, metav1.CreateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

// Description returns a Description, or nil.
func (c *Child) Description(name string) *unstructured.Unstructured {
	c.Helper()
	object, err := c.Descriptions().Get(context.Background(), name, metav1.GetOptions{})
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

// AwaitPhase waits until these Descriptions have a phase.
func (c *Child) AwaitPhase(want string, names ...string) {
	c.Helper()
	for _, name := range names {
		c.awaitReason(want, name)
	}
}

// AwaitFailure waits for the phase Failure, with a reason that contains all of these texts.
func (c *Child) AwaitFailure(name string, texts ...string) {
	c.Helper()
	c.awaitReason("Failure", name, texts...)
}

// AwaitParked waits until these Descriptions are Pending, with a reason that names the
// holder.
func (c *Child) AwaitParked(names ...string) {
	c.Helper()
	for _, name := range names {
		c.awaitReason("Pending", name, "held by spec.syncPaused")
	}
}

func (c *Child) awaitReason(want, name string, texts ...string) {
	c.Helper()
	var phase, reason string
	Eventually(c.TB, Soon, func() bool {
		phase, reason = c.Phase(name)
		return phase == want && containsAll(reason, texts)
	}, func() string {
		return fmt.Sprintf("Description %s of %s is %q, reason %q; want %s, and a reason with %q", name, c.Name, phase, reason, want, texts)
	})
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// DeleteDescription deletes a Description; its finalizer may keep it.
func (c *Child) DeleteDescription(name string) {
	c.Helper()
	if err := c.Descriptions().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// AwaitNoDescription waits until these Descriptions are gone.
func (c *Child) AwaitNoDescription(names ...string) {
	c.Helper()
	for _, name := range names {
		Eventually(c.TB, Soon, func() bool { return c.Description(name) == nil }, func() string {
			phase, reason := c.Phase(name)
			return fmt.Sprintf("Description %s of %s is still there, %q, reason %q; want it gone", name, c.Name, phase, reason)
		})
	}
}
