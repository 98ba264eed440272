// Package hold is for programs that pause a cluster while they work: backup tools,
// upgrade controllers, scripts. It sets a hold on a ManagedCluster, waits until the pause
// is in effect, and releases the hold.
//
//	backup, err := hold.New(client, types.NamespacedName{Namespace: "clusternet-abcde", Name: "child"}, "backup")
//	if err != nil {
//		return err
//	}
//	return backup.Do(ctx, "nightly", func(ctx context.Context) error {
//		return copyEverything(ctx) // nothing is deployed to the cluster meanwhile
//	})
//
// A hold is the annotation hold.clusters.clusternet.io/OWNER, with the reason as its
// value. It works with every CRD. Each owner has its own, so several programs can hold a
// cluster at the same time, and it is resumed when all of them have released it. The
// requests are patches of this annotation only: they have no conflicts with others, and
// touch nothing of theirs.
//
// Only a condition SyncPaused that is True says that a pause is in effect. Package report
// writes it, in the programs that deploy to the cluster. So Wait waits for ever where none
// of them does that: bound it by its context.
//
// Each program, and each run of it, needs an owner of its own: whoever releases the hold of
// an owner releases it for all that use this name.
//
// A program that ends without a release leaves the cluster paused. Anybody can release
// it: kubectl annotate mcls NAME hold.clusters.clusternet.io/OWNER-
package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// releaseTimeout bounds the release at the end of Do, whose ctx may have ended.
const releaseTimeout = 30 * time.Second

// Hold is the hold of one owner on one ManagedCluster. All methods may be called from any
// goroutine. Each of them blocks until the server has answered, or until its context ends.
type Hold struct {
	clusters dynamic.ResourceInterface
	cluster  types.NamespacedName
	owner    string
}

// New returns the hold of an owner on a ManagedCluster. It does no I/O. The owner is a part
// of the name of an annotation: up to 63 letters, digits, '-', '_' and '.'. The owner
// [syncgate.SyncPausedField] stands for the field spec.syncPaused: then Set and Release set
// and remove the field, which has no owner and no reason.
//
// The client needs get, list, watch and patch on managedclusters.
func New(client dynamic.Interface, cluster types.NamespacedName, owner string) (*Hold, error) {
	switch problems := validation.IsQualifiedName(syncgate.HoldPrefix + owner); {
	case api.IsNil(client):
		return nil, errors.New("hold: make a hold: the client is nil; pass a dynamic client of the parent cluster")
	case cluster.Namespace == "" || cluster.Name == "":
		return nil, fmt.Errorf("hold: make a hold: %q does not name a ManagedCluster; pass its namespace and name", cluster)
	case len(problems) > 0:
		return nil, fmt.Errorf("hold: make a hold: the owner %q can't be part of the name of an annotation: %s; use another name", owner, strings.Join(problems, "; "))
	}
	return &Hold{
		clusters: client.Resource(informer.Resource).Namespace(cluster.Namespace),
		cluster:  cluster,
		owner:    owner,
	}, nil
}

// Set sets the hold, or changes its reason. It returns when the server has it. The gates
// close when they have observed it, so use Wait before you rely on it. The reason is for
// people. It must not be "false", which would be a release.
func (h *Hold) Set(ctx context.Context, reason string) error {
	if api.IsReleased(reason) {
		return fmt.Errorf("hold: hold ManagedCluster %s for %s: the reason is %q, which is a release; give another one", h.cluster, h.owner, reason)
	}
	if h.owner == syncgate.SyncPausedField {
		object, err := h.patch(ctx, map[string]any{"spec": map[string]any{"syncPaused": true}})
		if err != nil {
			return fmt.Errorf("hold: set %s of ManagedCluster %s: %w", h.owner, h.cluster, err)
		}
		if set, _, _ := unstructured.NestedBool(object.Object, "spec", "syncPaused"); !set {
			return fmt.Errorf("hold: set %s of ManagedCluster %s: the CRD does not have the field, so the server has dropped it; add it to the CRD, or use an owner", h.owner, h.cluster)
		}
		return nil
	}
	if _, err := h.patch(ctx, annotation(h.owner, reason)); err != nil {
		return fmt.Errorf("hold: hold ManagedCluster %s for %s: %w", h.cluster, h.owner, err)
	}
	return nil
}

// Release removes the hold. It is no error when there is none. The cluster is resumed when
// nobody else holds it.
func (h *Hold) Release(ctx context.Context) error {
	patch := annotation(h.owner, nil)
	if h.owner == syncgate.SyncPausedField {
		patch = map[string]any{"spec": map[string]any{"syncPaused": nil}}
	}
	if _, err := h.patch(ctx, patch); err != nil {
		return fmt.Errorf("hold: release %s of ManagedCluster %s: %w; it stays paused until this is done", h.owner, h.cluster, err)
	}
	return nil
}

func annotation(owner string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{syncgate.HoldPrefix + owner: value}}}
}

func (h *Hold) patch(ctx context.Context, patch map[string]any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return h.clusters.Patch(ctx, h.cluster.Name, types.MergePatchType, data, metav1.PatchOptions{})
}

// Wait waits until the pause is in effect: until the condition SyncPaused is True for
// exactly the generation and the holds that the ManagedCluster has, see
// [report.Acknowledged]. It follows the ManagedCluster by a watch, and outlasts an API
// server that is away.
//
// It returns an error when ctx ends, with what the condition says by then. It returns an
// error at once when the hold is not set, or somebody has released it, and when the
// ManagedCluster does not exist.
func (h *Hold) Wait(ctx context.Context) error {
	last := "nobody has reported yet; check that the programs that deploy to the cluster run, and know pauses"
	_, err := watchtools.UntilWithSync(ctx, h.listWatch(ctx), &unstructured.Unstructured{}, h.exists, func(event watch.Event) (bool, error) {
		object, ok := event.Object.(*unstructured.Unstructured)
		switch {
		case !ok:
			return false, fmt.Errorf("the watch has the event %v", event)
		case event.Type == watch.Deleted:
			return false, errors.New("the ManagedCluster was deleted")
		case !h.isSet(object):
			return false, errors.New("the hold is not set; somebody has released it, or Set was not called")
		}
		if text := report.Summary(object); text != "" {
			last = text
		}
		return report.Acknowledged(object), nil
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w; the condition says: %s", context.Cause(ctx), last)
	}
	if err != nil {
		return fmt.Errorf("hold: wait until the pause of ManagedCluster %s by %s is in effect: %w", h.cluster, h.owner, err)
	}
	return nil
}

func (h *Hold) exists(store cache.Store) (bool, error) {
	if _, exists, err := store.GetByKey(h.cluster.String()); err != nil || !exists {
		return false, errors.Join(errors.New("there is no such ManagedCluster"), err)
	}
	return false, nil
}

func (h *Hold) isSet(object *unstructured.Unstructured) bool {
	if h.owner == syncgate.SyncPausedField {
		set, _, _ := unstructured.NestedBool(object.Object, "spec", "syncPaused")
		return set
	}
	reason, ok := object.GetAnnotations()[syncgate.HoldPrefix+h.owner]
	return ok && !api.IsReleased(reason)
}

func (h *Hold) listWatch(ctx context.Context) *cache.ListWatch {
	byName := fields.OneTermEqualSelector("metadata.name", h.cluster.Name).String()
	return &cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = byName
			return h.clusters.List(ctx, options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = byName
			return h.clusters.Watch(ctx, options)
		},
	}
}

// Do sets the hold, waits until the pause is in effect, calls fn, and releases the hold. It
// returns the errors of all of this. The hold is released whatever happens: when Wait
// fails, when fn fails, panics or calls runtime.Goexit, and when ctx ends. Only if the
// server can't be reached for 30 seconds, the hold stays, and the error says so.
//
// The ctx of fn ends with ctx, not with the hold: somebody may release it, or remove it
// together with the ManagedCluster.
func (h *Hold) Do(ctx context.Context, reason string, fn func(context.Context) error) (err error) {
	err = h.Set(ctx, reason)
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err // the server has refused it
	}
	// Without an answer of the server the hold may be set.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		err = errors.Join(err, h.Release(ctx))
	}()
	if err != nil {
		return err
	}
	if err := h.Wait(ctx); err != nil {
		return err
	}
	return fn(ctx)
}
