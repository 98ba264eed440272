package syncgate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
)

// observation is what a gate reads of one ManagedCluster.
type observation struct {
	clusterID  types.UID
	uid        types.UID
	generation int64
	syncMode   Mode
	appPusher  tristate
	hasFlag    bool   // spec.syncPaused is there
	flag       bool   // spec.syncPaused is true
	holds      []Hold // by annotations, sorted by owner
	fault      string // ReasonMalformed, ReasonFieldNotVisible or empty
	problem    string // for people: what the fault is, and what to do
}

type tristate int8 // 0: not known

const (
	no  tristate = -1
	yes tristate = 1
)

func tristateOf(b bool) tristate {
	if b {
		return yes
	}
	return no
}

// equal tells a heartbeat from a change. hasFlag does not matter: a flag that is
// false and one that is absent decide alike.
func (o *observation) equal(p *observation) bool {
	return o.clusterID == p.clusterID && o.uid == p.uid && o.generation == p.generation &&
		o.syncMode == p.syncMode && o.appPusher == p.appPusher &&
		o.flag == p.flag && o.fault == p.fault && o.problem == p.problem && slices.Equal(o.holds, p.holds)
}

const (
	flagRemedy = "set it to true or false, or remove it"
	holdRemedy = "remove it, or give it a text as value"
)

// setMalformed notes a problem. Of several problems it keeps the same one, whatever
// the order of a map is.
func (o *observation) setMalformed(what string, value any, remedy string) {
	problem := fmt.Sprintf("%s is %s; %s", what, describe(value), remedy)
	if o.fault == "" || problem < o.problem {
		o.fault, o.problem = ReasonMalformed, problem
	}
}

func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the string %.40q", v)
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	default:
		return fmt.Sprintf("%.40s of type %T", fmt.Sprint(v), v)
	}
}

// keepLostFlag keeps a pause whose flag has vanished although nobody has edited the
// spec: the CRD has lost the field, and the server drops it from what it shows. An
// edit of the spec under such a CRD removes the flag for good, and counts.
func (o *observation) keepLostFlag(before *observation) {
	if o.uid != before.uid || o.generation != before.generation || o.generation == 0 || o.hasFlag || o.fault != "" {
		return
	}
	if before.flag || before.fault == ReasonFieldNotVisible {
		o.fault = ReasonFieldNotVisible
		o.problem = SyncPausedField + " was true and has vanished without an edit of the spec, so the CRD has lost the field; " +
			"add it to the CRD again, and set it to true or false"
	}
}

// observer reads ManagedClusters of any Go type. It remembers where a type has its
// fields.
type observer map[reflect.Type]*fieldIndex

// observe returns false for what is no Kubernetes object.
func (ob observer) observe(obj any) (types.NamespacedName, observation, bool) {
	m, err := meta.Accessor(obj)
	if err != nil || api.IsNil(obj) {
		return types.NamespacedName{}, observation{}, false
	}
	key := types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
	o := observation{uid: m.GetUID(), generation: m.GetGeneration()}
	if u, ok := obj.(runtime.Unstructured); ok {
		o.readContent(u.UnstructuredContent())
	} else {
		o.readTyped(ob.indexOf(reflect.TypeOf(obj)), reflect.ValueOf(obj), m.GetLabels())
		for name, value := range m.GetAnnotations() {
			o.readHold(name, value)
		}
	}
	slices.SortFunc(o.holds, func(a, b Hold) int { return strings.Compare(a.Owner, b.Owner) })
	return key, o, true
}

// readContent reads an unstructured object, each part by itself: the helpers of
// package unstructured refuse a whole map for one bad value, which would hide a
// hold beside it.
func (o *observation) readContent(content map[string]any) {
	metadata, _ := content["metadata"].(map[string]any)
	switch annotations := metadata["annotations"].(type) {
	case nil:
	case map[string]any:
		for name, value := range annotations {
			o.readHold(name, value)
		}
	default:
		o.setMalformed("metadata.annotations", annotations, "remove it")
	}
	spec, _ := content["spec"].(map[string]any)
	clusterID, _ := spec["clusterId"].(string)
	o.clusterID = types.UID(clusterID)
	syncMode, _ := spec["syncMode"].(string)
	o.syncMode = Mode(syncMode)
	if value, ok := spec["syncPaused"]; ok {
		o.readFlag(value)
	}
	status, _ := content["status"].(map[string]any)
	if appPusher, ok := status["appPusher"].(bool); ok {
		o.appPusher = tristateOf(appPusher)
	}
}

func (o *observation) readFlag(value any) {
	paused, ok := value.(bool)
	if !ok {
		o.setMalformed(SyncPausedField, value, flagRemedy)
	}
	o.hasFlag, o.flag = true, paused
}

func (o *observation) readHold(name string, value any) {
	owner, ok := api.HoldOwner(name)
	if !ok {
		return
	}
	reason, ok := value.(string)
	switch {
	case !ok:
		o.setMalformed("annotation "+name, value, holdRemedy)
	case reason != "false":
		o.holds = append(o.holds, Hold{Owner: owner, Reason: reason})
	}
}

// keyOf returns the key of a deleted object. The informer may have nothing but the
// key.
func keyOf(obj any) types.NamespacedName {
	name, _ := cache.DeletionHandlingObjectToName(obj)
	return types.NamespacedName(name)
}
