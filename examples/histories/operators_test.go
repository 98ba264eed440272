package histories

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// commit changes a ManagedCluster, and tries again until the server has answered. What
// the server refuses is not recorded. An attempt without an answer may have changed the
// object too, so the event begins with the first one.
func (c *cluster) commit(ctx context.Context, name string, change func() (*unstructured.Unstructured, error)) {
	e := Event{Kind: Commit, Object: name, Start: c.now()}
	for unanswered := false; ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		object, err := change()
		switch {
		case err == nil && object != nil:
			c.describe(&e, object)
			c.add(e)
			return
		case err == nil:
			e.Deleted = true
			c.addLater(ctx, e)
			return
		case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			if unanswered { // taken for done, and for a release
				c.addLater(ctx, e)
			}
			return
		}
		unanswered = true
	}
}

// addLater adds an event with a version that is not older than that of the object.
func (c *cluster) addLater(ctx context.Context, e Event) {
	for ctx.Err() == nil {
		list, err := c.shard.managedClusters(c.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			e.Version, _ = strconv.ParseUint(list.GetResourceVersion(), 10, 64)
			c.add(e)
			return
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

func (c *cluster) patch(ctx context.Context, name string, patch map[string]any) {
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err)
	}
	c.commit(ctx, name, func() (*unstructured.Unstructured, error) {
		return c.shard.managedClusters(c.namespace).Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
	})
}

func (c *cluster) create(ctx context.Context, name string, paused bool) {
	spec := map[string]any{"clusterId": string(c.id), "syncMode": string(syncgate.Dual)}
	if paused {
		spec["syncPaused"] = true
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(informer.Resource.GroupVersion().WithKind("ManagedCluster"))
	object.SetName(name)
	object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.id)})
	c.commit(ctx, name, func() (*unstructured.Unstructured, error) {
		return c.shard.managedClusters(c.namespace).Create(ctx, object, metav1.CreateOptions{})
	})
}

func (c *cluster) remove(ctx context.Context, name string) {
	c.commit(ctx, name, func() (*unstructured.Unstructured, error) {
		return nil, c.shard.managedClusters(c.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// edit changes what the parent wants for a Description. Only one goroutine edits.
func (c *cluster) edit(ctx context.Context, key string) {
	c.edits++
	value := c.edits
	e := Event{Kind: Edit, Value: value, Start: c.now()}
	client := c.shard.client.Resource(deploy.Resource).Namespace(c.namespace)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, valueAnnotation, value)
	for ctx.Err() == nil {
		_, err := client.Patch(ctx, key, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"deployer": "Generic"}}}
			object.SetGroupVersionKind(deploy.Resource.GroupVersion().WithKind("Description"))
			object.SetName(key)
			object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(c.id)})
			object.SetAnnotations(map[string]string{valueAnnotation: strconv.Itoa(value)})
			_, err = client.Create(ctx, object, metav1.CreateOptions{})
		}
		if err == nil {
			for part := range parts {
				e.Key = partOf(key, part)
				c.add(e)
			}
			return
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// operator is a tool that pauses the cluster again and again, each time with a hold of
// its own. The field belongs to all of them, as it does in life.
type operator struct {
	*cluster
	name   string
	random *rand.Rand
}

// work pauses so many times.
func (o *operator) work(ctx context.Context, pauses int) {
	for n := range pauses {
		sleep(ctx, time.Duration(o.random.IntN(250))*time.Millisecond)
		object := o.object(o.random.IntN(o.objects))
		byField := o.random.IntN(2) == 0
		waits, length := o.random.IntN(4) > 0, time.Duration(o.random.IntN(150))*time.Millisecond
		swapsHold, deletes, recreated := o.random.IntN(6) == 0, o.name == "a" && o.random.IntN(12) == 0, o.random.IntN(3) == 0
		o.pause(ctx, object, byField, n)
		if waits {
			o.awaitAcknowledged(ctx, object)
		}
		sleep(ctx, length)
		if swapsHold { // never released in between
			o.pause(ctx, object, !byField, n)
			o.resume(ctx, object, byField)
			byField = !byField
			sleep(ctx, length)
		}
		if deletes {
			o.remove(ctx, object)
			sleep(ctx, 2*length)
			o.create(ctx, object, recreated)
		}
		o.resume(ctx, object, byField)
	}
}

func (o *operator) pause(ctx context.Context, object string, byField bool, n int) {
	if byField {
		o.patch(ctx, object, map[string]any{"spec": map[string]any{"syncPaused": true}})
		return
	}
	// The reason is another one each time, see report.Acknowledged.
	o.annotate(ctx, object, fmt.Sprintf("run %d at %v", n, o.now()))
}

func (o *operator) resume(ctx context.Context, object string, byField bool) {
	if byField {
		o.patch(ctx, object, map[string]any{"spec": map[string]any{"syncPaused": nil}})
		return
	}
	o.annotate(ctx, object, nil)
}

func (o *operator) annotate(ctx context.Context, object string, reason any) {
	o.patch(ctx, object, map[string]any{"metadata": map[string]any{"annotations": map[string]any{syncgate.HoldPrefix + o.name: reason}}})
}

// awaitAcknowledged waits for a while: a party may be away, or somebody else resumes.
func (o *operator) awaitAcknowledged(ctx context.Context, object string) {
	const most = 5 * time.Second
	for began := o.now(); o.now()-began < most && sleep(ctx, 3*time.Millisecond); {
		if o.latest(object).Acknowledged {
			o.acknowledged.Add(1)
			return
		}
	}
}

// workOthers edits, and sends heartbeats, until ctx ends.
func (c *cluster) workOthers(ctx context.Context, random *rand.Rand) {
	for sleep(ctx, time.Duration(random.IntN(600))*time.Millisecond) {
		if random.IntN(2) == 0 {
			c.edit(ctx, c.keys[random.IntN(len(c.keys))])
			continue
		}
		c.beat(ctx, c.object(random.IntN(c.objects)))
	}
}

// keepBeating sends heartbeats often enough for a gate with StaleAfter, if there is one.
func (c *cluster) keepBeating(ctx context.Context) {
	for sleep(ctx, staleAfter/3) {
		if c.stale.Load() {
			c.beat(ctx, c.object(0))
		}
	}
}

func (c *cluster) beat(ctx context.Context, object string) {
	heartbeat := fmt.Appendf(nil, `{"status":{"lastObservedTime":%q}}`, time.Now().UTC().Format(time.RFC3339Nano))
	_, _ = c.shard.managedClusters(c.namespace).Patch(ctx, object, types.MergePatchType, heartbeat, metav1.PatchOptions{}, "status")
}
