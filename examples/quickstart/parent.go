package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// child is a child cluster as the parent cluster knows it: one ManagedCluster in a dedicated namespace.
type child struct {
	namespace, name string
	id              types.UID
	mode            syncgate.Mode
	annotations     map[string]string
}

func (c child) String() string { return c.namespace + "/" + c.name }

// own is the cluster whose agent runs here.
var own = child{namespace: "clusternet-a1b2c", name: "child-1", id: "0b1c2d3e-1111-4a6b-8c7d-000000000001", mode: syncgate.Dual}

var children = []child{
	own,
	{namespace: "clusternet-d3e4f", name: "child-2", id: "0b1c2d3e-2222-4a6b-8c7d-000000000002", mode: syncgate.Dual},
	{
		namespace: "clusternet-g5h6i", name: "child-3", id: "0b1c2d3e-3333-4a6b-8c7d-000000000003", mode: syncgate.Dual,
		annotations: map[string]string{syncgate.HoldPrefix + "audit": "until Friday"},
	},
}

// managedCluster is what Clusternet creates when a child cluster registers.
func (c child) managedCluster() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"clusterId": string(c.id), "syncMode": string(c.mode)},
	}}
	obj.SetGroupVersionKind(informer.Resource.GroupVersion().WithKind("ManagedCluster"))
	obj.SetNamespace(c.namespace)
	obj.SetName(c.name)
	obj.SetLabels(map[string]string{"clusters.clusternet.io/cluster-id": string(c.id)})
	obj.SetAnnotations(maps.Clone(c.annotations))
	return obj
}

func register(ctx context.Context, client dynamic.Interface, c child) error {
	_, err := client.Resource(informer.Resource).Namespace(c.namespace).
		Create(ctx, c.managedCluster(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("registering %s: %w", c, causeOf(ctx, err))
	}
	return nil
}

// operator is whoever pauses and holds clusters in the parent cluster, with kubectl or otherwise.
type operator struct{ client dynamic.Interface }

func (o operator) setPaused(ctx context.Context, c child, paused bool) error {
	return o.patch(ctx, c, map[string]any{"spec": map[string]any{"syncPaused": paused}})
}

// backup is another owner, which holds beside the operator's flag.
const backup = "backup"

// hold holds a cluster in the name of backup; reason nil releases it.
func (o operator) hold(ctx context.Context, c child, reason any) error {
	return o.patch(ctx, c, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{syncgate.HoldPrefix + backup: reason}},
	})
}

// awaitCondition waits until the condition SyncPaused of c has this status and reason, and returns its
// message: what kubectl wait does.
func (o operator) awaitCondition(ctx context.Context, c child, status, reason string) (message string, err error) {
	err = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		obj, err := o.client.Resource(informer.Resource).Namespace(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, item := range conditions {
			condition, _ := item.(map[string]any)
			if condition["type"] == report.ConditionType {
				message, _ = condition["message"].(string)
				return condition["status"] == status && condition["reason"] == reason, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the condition %s=%s of %s: %w", report.ConditionType, status, c, causeOf(ctx, err))
	}
	return message, nil
}

func (o operator) patch(ctx context.Context, c child, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("patching %s: %w", c, err)
	}
	_, err = o.client.Resource(informer.Resource).Namespace(c.namespace).
		Patch(ctx, c.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patching %s with %s: %w", c, patch, causeOf(ctx, err))
	}
	return nil
}

// causeOf returns why ctx has ended, if it has: of a request's error, client-go tells no more than that.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
