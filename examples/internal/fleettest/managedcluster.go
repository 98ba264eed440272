package fleettest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// ManagedClusters is a client of the child's namespace in the parent.
func (c *Child) ManagedClusters() dynamic.ResourceInterface {
	return c.parent.Client.Resource(informer.Resource).Namespace(c.Namespace)
}

// Register creates the child's ManagedCluster.
func (c *Child) Register(mode syncgate.Mode) { c.Helper(); c.register(mode, false) }

// RegisterPaused does so with spec.syncPaused set.
func (c *Child) RegisterPaused(mode syncgate.Mode) { c.Helper(); c.register(mode, true) }

func (c *Child) register(mode syncgate.Mode, paused bool) {
	c.Helper()
	spec := map[string]any{"clusterId": string(c.ID), "syncMode": string(mode)}
	if paused {
		spec["syncPaused"] = true
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(informer.Resource.GroupVersion().WithKind("ManagedCluster"))
	object.SetName(c.Name)
	object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.ID)})
	if _, err := c.ManagedClusters().Create(context.Background(), object, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// Patch patches the child's ManagedCluster.
func (c *Child) Patch(patch string, subresources ...string) {
	c.Helper()
	_, err := c.ManagedClusters().Patch(context.Background(), c.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		c.Fatal(err)
	}
}

// Pause sets spec.syncPaused.
func (c *Child) Pause() { c.Helper(); c.Patch(`{"spec":{"syncPaused":true}}`) }

// Resume removes it.
func (c *Child) Resume() { c.Helper(); c.Patch(`{"spec":{"syncPaused":null}}`) }

// ReportAppPusher sets status.appPusher, which is what an agent does.
func (c *Child) ReportAppPusher(on bool) {
	c.Helper()
	c.Patch(fmt.Sprintf(`{"status":{"appPusher":%t}}`, on), "status")
}

// ManagedCluster returns the child's ManagedCluster.
func (c *Child) ManagedCluster() *unstructured.Unstructured {
	c.Helper()
	object, err := c.ManagedClusters().Get(context.Background(), c.Name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return object
}

// Condition returns the condition SyncPaused of a ManagedCluster: as "status reason:
// message", which is empty if there is none, and as its fields.
func Condition(managedCluster *unstructured.Unstructured) (summary string, fields map[string]any) {
	list, _, _ := unstructured.NestedSlice(managedCluster.Object, "status", "conditions")
	for _, each := range list {
		if each, ok := each.(map[string]any); ok && each["type"] == report.ConditionType {
			return fmt.Sprintf("%v %v: %v", each["status"], each["reason"], each["message"]), each
		}
	}
	return "", nil
}

// AwaitCondition waits for a condition that begins like this.
func (c *Child) AwaitCondition(want string) {
	c.Helper()
	var got string
	Eventually(c.TB, Soon, func() bool {
		got, _ = Condition(c.ManagedCluster())
		return strings.HasPrefix(got, want)
	}, func() string { return fmt.Sprintf("the condition SyncPaused of %s is %q; want %q", c.Name, got, want) })
}

// AwaitPaused waits until the current pause is acknowledged, not an earlier one.
func (c *Child) AwaitPaused() {
	c.Helper()
	Eventually(c.TB, Soon, func() bool { return report.Acknowledged(c.ManagedCluster()) }, func() string { return fmt.Sprintf("the pause is not acknowledged: %v", c.ManagedCluster().Object) })
}

// AwaitReport waits until a party has reported that it has drained.
func (c *Child) AwaitReport(party string) {
	c.Helper()
	var conditions []any
	Eventually(c.TB, Soon, func() bool {
		conditions, _, _ = unstructured.NestedSlice(c.ManagedCluster().Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(each any) bool {
			condition, _ := each.(map[string]any)
			return condition["type"] == report.PartyConditionPrefix+party && condition["status"] == "True"
		})
	}, func() string { return fmt.Sprintf("the %s has not reported: %v", party, conditions) })
}

// Unregister deletes the child's ManagedCluster.
func (c *Child) Unregister() {
	c.Helper()
	if err := c.ManagedClusters().Delete(context.Background(), c.Name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}
