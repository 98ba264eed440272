package syncgate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/clusternet/syncgate/syncgate"
)

// FuzzDecision decides objects of any shape. None may panic, and a gate may open only
// if nothing in the object can mean a pause.
func FuzzDecision(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"spec":null}`, `{"spec":[]}`, `{"metadata":7}`,
		`{"spec":{"clusterId":"` + id + `"}}`,
		`{"spec":{"clusterId":"` + id + `","syncPaused":true,"syncMode":7}}`,
		`{"spec":{"clusterId":"` + id + `","syncPaused":"false"}}`,
		`{"spec":{"clusterId":"` + id + `","syncPaused":null}}`,
		`{"spec":{"clusterId":"` + id + `","syncPaused":{"a":[]}},"status":"none"}`,
		`{"spec":{"clusterId":["` + id + `"],"syncPaused":false}}`,
		`{"metadata":{"name":"a","namespace":"b","annotations":{"hold.clusters.clusternet.io/x":"false"}},"spec":{"clusterId":"` + id + `"}}`,
		`{"metadata":{"annotations":{"hold.clusters.clusternet.io/x":false}},"spec":{"clusterId":"` + id + `","syncPaused":false}}`,
		`{"metadata":{"annotations":{"hold.clusters.clusternet.io/x":"y","other":1}},"spec":{"clusterId":"` + id + `"}}`,
		`{"metadata":{"annotations":[1],"generation":"x","uid":4},"spec":{"clusterId":"` + id + `"},"status":{"appPusher":"yes","conditions":4}}`,
	} {
		f.Add([]byte(seed))
	}
	hub, source := running(f)
	gate := hub.Gate(id)
	f.Fuzz(func(t *testing.T, data []byte) {
		var content map[string]any
		if err := kjson.Unmarshal(data, &content); err != nil || content == nil {
			return
		}
		obj := &unstructured.Unstructured{Object: content}
		source.Add(obj)
		defer source.Delete(obj)
		s := gate.State()
		if s.Phase == syncgate.Open && !mayOpen(content) {
			t.Errorf("%s opened the gate: %+v", data, s)
		}
		// Gone is the state that the object before has left.
		if s.Paused != gate.Paused() || s.Phase != syncgate.Gone && s.Paused == (s.Phase == syncgate.Open) {
			t.Errorf("%s: Paused() = %v, State() = %+v", data, gate.Paused(), s)
		}
	})
}

// mayOpen writes the rule of the decision the other way round: every part of the
// object must be known to be harmless.
func mayOpen(content map[string]any) bool {
	var object struct {
		Metadata struct {
			Annotations map[string]json.RawMessage `json:"annotations"`
		} `json:"metadata"`
		Spec map[string]json.RawMessage `json:"spec"`
	}
	data, err := json.Marshal(content)
	if err != nil || json.Unmarshal(data, &object) != nil {
		return false
	}
	if string(object.Spec["clusterId"]) != `"`+id+`"` {
		return false
	}
	if paused, ok := object.Spec["syncPaused"]; ok && string(paused) != "false" {
		return false
	}
	for name, value := range object.Metadata.Annotations {
		if strings.HasPrefix(name, syncgate.HoldPrefix) && string(value) != `"false"` {
			return false
		}
	}
	return true
}
