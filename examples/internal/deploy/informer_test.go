package deploy

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A new status is no change. Otherwise each status that a deployer writes would lead to another reconciliation.
func TestOnChange(t *testing.T) {
	type call struct {
		cluster Cluster
		key     string
	}
	var got []call
	handler := OnChange(func(cluster Cluster, key string) { got = append(got, call{cluster, key}) })
	same := of(t, "", encoded(web), `"phase":"Pending"`)
	with := func(change func(o *unstructured.Unstructured)) *unstructured.Unstructured {
		o := same.DeepCopy()
		o.SetResourceVersion("8")
		change(o)
		return o
	}
	deleted := of(t, `"deletionTimestamp":"2026-01-01T00:00:00Z"`, encoded(web), `"phase":"Pending"`)
	own := call{Cluster{"clusternet-abcde", "c1"}, "clusternet-abcde/web"}
	for _, test := range []struct {
		name string
		do   func()
		want []call
	}{
		{"new", func() { handler.OnAdd(same, false) }, []call{own}},
		{"there at first", func() { handler.OnAdd(same, true) }, []call{own}},
		{"resync", func() { handler.OnUpdate(same, same) }, nil},
		{"status", func() {
			handler.OnUpdate(same, with(func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"phase": "Success"} }))
		}, nil},
		{"annotation", func() {
			handler.OnUpdate(same, with(func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"a": "b"}) }))
		}, nil},
		{"finalizer", func() {
			handler.OnUpdate(same, with(func(o *unstructured.Unstructured) { o.SetFinalizers([]string{Finalizer}) }))
		}, nil},
		{"spec", func() {
			handler.OnUpdate(same, with(func(o *unstructured.Unstructured) { o.SetGeneration(4) }))
		}, []call{own}},
		{"label", func() {
			handler.OnUpdate(same, with(func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{ClusterIDLabel: "c2"}) }))
		}, []call{{Cluster{"clusternet-abcde", "c2"}, own.key}}},
		{"deletion", func() { handler.OnUpdate(same, deleted) }, []call{own}},
		{"still being deleted", func() { handler.OnUpdate(deleted, deleted) }, nil},
		{"created again", func() {
			handler.OnUpdate(same, with(func(o *unstructured.Unstructured) { o.SetUID("u2") }))
		}, []call{own}},
		{"gone", func() { handler.OnDelete(deleted) }, []call{own}},
		{"gone unseen", func() { handler.OnDelete(cache.DeletedFinalStateUnknown{Key: own.key, Obj: same}) }, []call{own}},
		{"gone unknown", func() { handler.OnDelete(cache.DeletedFinalStateUnknown{Key: own.key}) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got = nil
			test.do()
			if !slices.Equal(got, test.want) {
				t.Errorf("add was called with %v, want %v", got, test.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	inf := NewInformer(nil, "", "")
	other := of(t, "", "", "")
	other.SetName("other")
	other.SetLabels(map[string]string{ClusterIDLabel: "c2"})
	none := of(t, "", "", "")
	none.SetName("none")
	none.SetLabels(nil)
	for _, object := range []*unstructured.Unstructured{of(t, "", "", ""), other, none} {
		if err := inf.GetStore().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[types.UID][]string{"c1": {"clusternet-abcde/web"}, "c2": {"clusternet-abcde/other"}, "c3": nil} {
		if got := Keys(inf.GetIndexer(), Cluster{"clusternet-abcde", id}); !slices.Equal(got, want) {
			t.Errorf("Keys(%s) = %v, want %v", id, got, want)
		}
	}
}
