package fleettest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// LeaseNamespace is where deployers compete for Leases.
const LeaseNamespace = "default"

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
