package syncgate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
)

// observation is what a gate reads of one ManagedCluster.
type observation struct {
	clusterID   types.UID
	uid         types.UID
	generation  int64
	labelled    bool // the cluster-id label names the cluster too
	syncMode    Mode
	appPusher   tristate
	flag        flag
	holds       []Hold // by annotations, sorted by owner
	flagProblem string // for people: what is wrong with the flag, and what to do
	holdProblem string // the same of a hold that can't be read; empty: there is none
	// nearMisses are annotations that look like holds and are none, sorted.
	nearMisses []string
}

// flag is the value of spec.syncPaused.
type flag int8

const (
	flagAbsent flag = iota
	flagFalse
	flagTrue
	flagMalformed  // it is not boolean
	flagNotVisible // the Go type or the CRD has no such field
)

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

// equal reports whether nothing has changed, as after a heartbeat.
func (o *observation) equal(p *observation) bool {
	return o.clusterID == p.clusterID && o.uid == p.uid && o.generation == p.generation && o.labelled == p.labelled &&
		o.syncMode == p.syncMode && o.appPusher == p.appPusher && o.flag == p.flag && slices.Equal(o.holds, p.holds) &&
		o.flagProblem == p.flagProblem && o.holdProblem == p.holdProblem && slices.Equal(o.nearMisses, p.nearMisses)
}

// problem returns why the pause can't be read, as a Reason and for people. Both are
// empty if it can.
func (o *observation) problem() (reason, message string) {
	switch {
	case o.flag == flagNotVisible:
		return ReasonFieldNotVisible, o.flagProblem
	case o.flag == flagMalformed:
		return ReasonMalformed, o.flagProblem
	case o.holdProblem != "":
		return ReasonMalformed, o.holdProblem
	}
	return "", ""
}

func (o *observation) pauses() bool { return o.flag == flagTrue || len(o.holds) > 0 }

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
	edited := o.uid != before.uid || o.generation != before.generation || o.generation == 0
	if edited || o.flag != flagAbsent || before.flag < flagTrue {
		return
	}
	o.flag = flagNotVisible
	o.flagProblem = SyncPausedField + " has vanished without an edit of the spec, so the CRD has lost the field; " +
		"add it to the CRD again, and set it to true or false"
}

// observe reads a ManagedCluster of any Go type. It returns false for what is no
// Kubernetes object.
func observe(obj any) (types.NamespacedName, observation, bool) {
	m, content, typed, ok := api.Read(obj)
	if !ok {
		return types.NamespacedName{}, observation{}, false
	}
	o := observation{
		clusterID:  types.UID(api.ClusterID(m, content, typed)),
		uid:        m.GetUID(),
		generation: m.GetGeneration(),
	}
	o.labelled = m.GetLabels()[api.ClusterIDLabel] == string(o.clusterID)
	o.readContent(content, typed != nil)
	if typed != nil && !api.HasField(typed, "spec", "syncPaused") {
		o.flag = flagNotVisible
		o.flagProblem = fmt.Sprintf("the Go type %s has no field for %s, so a pause can't be read; use an informer of unstructured objects, such as that of informer.ForHub",
			typed, SyncPausedField)
	}
	slices.Sort(o.nearMisses)
	slices.SortFunc(o.holds, func(a, b Hold) int { return strings.Compare(a.Owner, b.Owner) })
	return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}, o, true
}

// readContent reads each part by itself: the helpers of package unstructured refuse a
// whole map for one bad value, which would hide a hold beside it. In a typed object,
// null stands for a nil pointer, which is an absent flag.
func (o *observation) readContent(content map[string]any, typed bool) {
	metadata, _ := content["metadata"].(map[string]any)
	switch annotations := metadata["annotations"].(type) {
	case nil:
	case map[string]any:
		for name, value := range annotations {
			o.readHold(name, value)
		}
	default:
		o.setHoldProblem("metadata.annotations", annotations, "remove it")
	}
	spec, _ := content["spec"].(map[string]any)
	syncMode, _ := spec["syncMode"].(string)
	o.syncMode = Mode(syncMode)
	if value, ok := spec["syncPaused"]; ok && !(typed && value == nil) {
		o.readFlag(value)
	}
	status, _ := content["status"].(map[string]any)
	if appPusher, ok := status["appPusher"].(bool); ok {
		o.appPusher = tristateOf(appPusher)
	}
}

func (o *observation) readFlag(value any) {
	paused, ok := value.(bool)
	switch {
	case !ok:
		o.flag = flagMalformed
		o.flagProblem = fmt.Sprintf("%s is %s; set it to true or false, or remove it", SyncPausedField, describe(value))
	case paused:
		o.flag = flagTrue
	default:
		o.flag = flagFalse
	}
}

func (o *observation) readHold(name string, value any) {
	owner, ok := api.HoldOwner(name)
	if !ok {
		if api.IsNearMiss(name) {
			o.nearMisses = append(o.nearMisses, name)
		}
		return
	}
	reason, ok := value.(string)
	switch {
	case !ok:
		o.setHoldProblem("annotation "+name, value, "remove it, or give it a text as value")
	case !api.IsReleased(reason):
		o.holds = append(o.holds, Hold{Owner: owner, Reason: reason})
	}
}

// setHoldProblem notes a problem. Of several it keeps the same one, whatever the
// order of a map is.
func (o *observation) setHoldProblem(what string, value any, remedy string) {
	problem := fmt.Sprintf("%s is %s; %s", what, describe(value), remedy)
	if o.holdProblem == "" || problem < o.holdProblem {
		o.holdProblem = problem
	}
}

// keyOf returns the key of a deleted object. The informer may have nothing but the
// key.
func keyOf(obj any) types.NamespacedName {
	name, _ := cache.DeletionHandlingObjectToName(obj)
	return types.NamespacedName(name)
}
