package localcluster_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusternet/syncgate/examples/localcluster"
)

func TestCompact(t *testing.T) {
	opts := localcluster.Options{DataDir: t.TempDir()}
	c := start(t, opts)
	apply(t, c, true)
	mcls := client(t, c)
	old := create(t, mcls, "team-a", "first", clusterID).GetResourceVersion()
	create(t, mcls, "team-a", "second", otherID)
	create(t, mcls, "team-a", "third", otherID)
	if err := c.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Compact(t.Context()); err != nil {
		t.Errorf("second Compact() = %v; want none: nothing was written", err)
	}
	exact := metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	_, err := mcls.List(t.Context(), exact)
	t.Logf("exact list from the warm cache: %v", err)
	_, err = mcls.List(t.Context(), metav1.ListOptions{ResourceVersion: old})
	t.Logf("list not older than: %v", err)
	if err := watchFrom(t, mcls, old, soon); err != nil {
		t.Errorf("watch from an old resourceVersion, the cache being warm = %v; want events", err)
	}

	apply(t, c, false)
	if err := watchFrom(t, mcls, old, soon); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old resourceVersion after compaction and a change of the CRD = %v; want 410", err)
	}
	if _, err = mcls.List(t.Context(), exact); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("exact list at an old resourceVersion after compaction and a change of the CRD = %v; want 410", err)
	}

	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	opts.Port = c.Port()
	again := start(t, opts)
	if err := watchFrom(t, mcls, old, soon); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old resourceVersion after compaction and restart = %v; want 410", err)
	}
	if _, err = mcls.List(t.Context(), exact); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("exact list at an old resourceVersion after compaction and restart = %v; want 410", err)
	}

	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more time"))
	if err := again.Compact(ended); err == nil || err.Error() != "compacting etcd: no more time" {
		t.Errorf("Compact(ended ctx) = %v; want its cause", err)
	}
}
