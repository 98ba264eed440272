package informer

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// parse returns the object that s is, with the number types of a decoder.
func parse(tb testing.TB, s string) *unstructured.Unstructured {
	tb.Helper()
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON([]byte(s)); err != nil {
		tb.Fatal(err)
	}
	return obj
}

func TestTrim(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"everything": {
			in: `{"apiVersion":"clusters.clusternet.io/v1beta1","kind":"ManagedCluster",
				"metadata":{"name":"child","namespace":"ns","uid":"u","resourceVersion":"7","generation":3,
					"creationTimestamp":"2024-01-01T00:00:00Z","deletionTimestamp":"2024-01-02T00:00:00Z","deletionGracePeriodSeconds":0,
					"finalizers":["f"],"ownerReferences":[{"name":"o"}],"managedFields":[{"manager":"m"}],
					"labels":{"clusters.clusternet.io/cluster-id":"id","clusters.clusternet.io/cluster-name":"child"},
					"annotations":{"hold.clusters.clusternet.io/team-a":"upgrade","hold.clusters.clusternet.io/":"nobody","other":"x","HOLD.clusters.clusternet.io/b":"no"}},
				"spec":{"clusterId":"id","clusterType":"EdgeCluster","syncMode":"Dual","syncPaused":true,"taints":[{}]},
				"status":{"appPusher":true,"k8sVersion":"v1.32.4","healthz":true,"conditions":[
					{"type":"Ready","status":"True"},{"type":"SyncPaused","status":"False","reason":"Draining","observedGeneration":3},{"type":"Synced","status":"True"}]},
				"extra":1}`,
			want: `{"apiVersion":"clusters.clusternet.io/v1beta1","kind":"ManagedCluster",
				"metadata":{"name":"child","namespace":"ns","uid":"u","resourceVersion":"7","generation":3,"deletionTimestamp":"2024-01-02T00:00:00Z",
					"labels":{"clusters.clusternet.io/cluster-id":"id"},
					"annotations":{"hold.clusters.clusternet.io/team-a":"upgrade","hold.clusters.clusternet.io/":"nobody","HOLD.clusters.clusternet.io/b":"no"}},
				"spec":{"clusterId":"id","syncMode":"Dual","syncPaused":true},
				"status":{"appPusher":true,"conditions":[{"type":"SyncPaused","status":"False","reason":"Draining","observedGeneration":3}]}}`,
		},
		"nothing of interest": {
			in:   `{"kind":"ManagedCluster","metadata":{"name":"c","labels":{"a":"b"},"annotations":{"a":"b"}},"spec":{"taints":[]},"status":{"conditions":[]}}`,
			want: `{"kind":"ManagedCluster","metadata":{"name":"c"}}`,
		},
		"false and empty values": {
			in:   `{"kind":"ManagedCluster","metadata":{"annotations":{"hold.clusters.clusternet.io/a":"false","hold.clusters.clusternet.io/b":""}},"spec":{"clusterId":"","syncPaused":false},"status":{"appPusher":false}}`,
			want: `{"kind":"ManagedCluster","metadata":{"annotations":{"hold.clusters.clusternet.io/a":"false","hold.clusters.clusternet.io/b":""}},"spec":{"clusterId":"","syncPaused":false},"status":{"appPusher":false}}`,
		},
		"malformed values": {
			in:   `{"kind":"ManagedCluster","metadata":{"annotations":{"hold.clusters.clusternet.io/a":1}},"spec":{"clusterId":7,"syncPaused":"true","syncMode":null},"status":{"appPusher":"yes"}}`,
			want: `{"kind":"ManagedCluster","metadata":{"annotations":{"hold.clusters.clusternet.io/a":1}},"spec":{"clusterId":7,"syncPaused":"true","syncMode":null},"status":{"appPusher":"yes"}}`,
		},
		"malformed parts": {
			in:   `{"kind":"ManagedCluster","metadata":{"name":"c","labels":"x","annotations":[1]},"spec":"paused","status":["x"]}`,
			want: `{"kind":"ManagedCluster","metadata":{"name":"c","labels":"x","annotations":[1]},"spec":"paused","status":["x"]}`,
		},
		"null parts": {
			in:   `{"kind":"ManagedCluster","metadata":null,"spec":null,"status":null}`,
			want: `{"kind":"ManagedCluster","metadata":null,"spec":null,"status":null}`,
		},
		"odd conditions": {
			in:   `{"kind":"ManagedCluster","status":{"conditions":["SyncPaused",{"type":["SyncPaused"]},null,{"type":"SyncPaused","status":true}]}}`,
			want: `{"kind":"ManagedCluster","status":{"conditions":[{"type":"SyncPaused","status":true}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, want := parse(t, tt.in), parse(t, tt.want)
			checkTrim(t, in, func(got *unstructured.Unstructured) {
				if diff := cmp.Diff(want.Object, got.Object); diff != "" {
					t.Errorf("trim(%s) (-want +got):\n%s", tt.in, diff)
				}
			})
		})
	}
}

// checkTrim checks what holds of every object, and what check does.
func checkTrim(tb testing.TB, in *unstructured.Unstructured, check func(got *unstructured.Unstructured)) {
	tb.Helper()
	before := in.DeepCopy()
	got := trim(in)
	if diff := cmp.Diff(before.Object, in.Object); diff != "" {
		tb.Errorf("trim changed its argument (-before +after):\n%s", diff)
	}
	if got == in {
		tb.Fatal("trim(...) = its argument; want another object")
	}
	check(got)
	if diff := cmp.Diff(got.Object, trim(got).Object); diff != "" {
		tb.Errorf("trim is not idempotent (-once +twice):\n%s", diff)
	}
}

func FuzzTrim(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"ManagedCluster","metadata":{"name":"c","labels":{"clusters.clusternet.io/cluster-id":"id"},"annotations":{"hold.clusters.clusternet.io/a":"b"}},"spec":{"syncPaused":true},"status":{"conditions":[{"type":"SyncPaused"}]}}`,
		`{"metadata":[],"spec":{"syncPaused":{}},"status":{"conditions":{"type":"SyncPaused"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		object := map[string]any{}
		if json.Unmarshal(raw, &object) != nil || object == nil {
			t.Skip()
		}
		checkTrim(t, &unstructured.Unstructured{Object: object}, func(got *unstructured.Unstructured) {
			spec, _ := object["spec"].(map[string]any)
			kept, _ := got.Object["spec"].(map[string]any)
			if diff := cmp.Diff(spec["syncPaused"], kept["syncPaused"]); diff != "" {
				t.Errorf("syncPaused (-want +got):\n%s", diff)
			}
		})
	})
}
