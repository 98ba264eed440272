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

// observation is what one ManagedCluster says, as far as gates care.
type observation struct {
	clusterID  types.UID
	uid        types.UID
	generation int64
	syncMode   Mode
	appPusher  tristate
	stated     bool   // spec.syncPaused is there
	field      bool   // spec.syncPaused is true
	holds      []Hold // by annotations, in the order of their owners
	fault      string // ReasonMalformed or ReasonFieldNotVisible, where either is
	problem    string // what is at fault, and what to do
}

type tristate int8 // 0: not known

const (
	no  tristate = -1
	yes tristate = 1
)

func (o *observation) equal(p *observation) bool {
	return o.clusterID == p.clusterID && o.uid == p.uid && o.generation == p.generation &&
		o.syncMode == p.syncMode && o.appPusher == p.appPusher &&
		o.stated == p.stated && o.field == p.field && o.fault == p.fault && o.problem == p.problem && slices.Equal(o.holds, p.holds)
}

// malformed notes a problem. Of several always the same one is told, whatever
// the order of a map.
func (o *observation) malformed(what string, value any, remedy string) {
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

const (
	flagRemedy = "set it to true or false, or remove it"
	holdRemedy = "remove it, or give it a text as value"
)

// missField keeps a pause whose flag has vanished although nobody has written the
// spec since: the CRD has lost the field, and the server trims it from what it
// shows. An edit of the spec under such a CRD drops the flag for good, and counts.
func (o *observation) missField(before *observation) {
	if o.uid != before.uid || o.generation != before.generation || o.generation == 0 || o.stated || o.fault != "" {
		return
	}
	if before.field || before.fault == ReasonFieldNotVisible {
		o.fault = ReasonFieldNotVisible
		o.problem = SyncPausedField + " was true and has vanished without an edit of the spec, so the CRD has lost the field; " +
			"add it to the CRD again, and set it to true or false"
	}
}

// merge returns what the ManagedClusters of one cluster say together: any that
// is paused pauses. There is at least one; their order is that of their keys.
func merge(records []*record) State {
	s := State{Phase: Paused, Paused: true}
	decides := first(records, func(o *observation) bool { return o.fault == ReasonFieldNotVisible })
	if decides == nil {
		decides = first(records, func(o *observation) bool { return o.fault == ReasonMalformed })
	}
	field := first(records, func(o *observation) bool { return o.field })
	held := first(records, func(o *observation) bool { return len(o.holds) > 0 })
	switch {
	case decides != nil:
		s.Reason = decides.seen.fault
	case field != nil:
		decides, s.Reason = field, ReasonSyncPaused
	case held != nil:
		decides, s.Reason = held, ReasonHeld
	default:
		decides = records[0]
		s.Phase, s.Paused, s.Reason = Open, false, ReasonSyncAllowed
	}
	if field != nil {
		s.Holds = append(s.Holds, Hold{Owner: SyncPausedField})
	}
	for _, r := range records {
		s.Holds = append(s.Holds, r.seen.holds...)
	}
	if len(records) > 1 {
		annotations := s.Holds
		if field != nil {
			annotations = annotations[1:]
		}
		slices.SortStableFunc(annotations, func(a, b Hold) int { return strings.Compare(a.Owner, b.Owner) })
	}
	s.Object = decides.key
	s.UID = decides.seen.uid
	s.Generation = decides.seen.generation
	s.SyncMode = decides.seen.syncMode
	if decides.seen.appPusher != 0 {
		appPusher := decides.seen.appPusher == yes
		s.AppPusher = &appPusher
	}
	s.Message = message(&s, decides, records)
	return s
}

func first(records []*record, is func(*observation) bool) *record {
	for _, r := range records {
		if is(&r.seen) {
			return r
		}
	}
	return nil
}

func message(s *State, decides *record, records []*record) string {
	switch s.Reason {
	case ReasonSyncAllowed:
		return fmt.Sprintf("nothing holds ManagedCluster %s", s.Object)
	case ReasonMalformed, ReasonFieldNotVisible:
		return fmt.Sprintf("ManagedCluster %s: %s", s.Object, decides.seen.problem)
	}
	holds := make([]string, 0, len(s.Holds))
	for _, hold := range s.Holds {
		holds = append(holds, hold.String())
	}
	var objects []string
	for _, r := range records {
		if r.seen.field || len(r.seen.holds) > 0 {
			objects = append(objects, r.key.String())
		}
	}
	if len(objects) == 1 {
		return fmt.Sprintf("ManagedCluster %s is held by %s", objects[0], strings.Join(holds, ", "))
	}
	return fmt.Sprintf("ManagedClusters %s are held by %s", strings.Join(objects, " and "), strings.Join(holds, ", "))
}

// keyOf returns the key of a deleted object, of which an informer may have no
// more than the key.
func keyOf(obj any) types.NamespacedName {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		namespace, name, _ := cache.SplitMetaNamespaceKey(tombstone.Key)
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	if m, err := meta.Accessor(obj); err == nil {
		return types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
	}
	return types.NamespacedName{}
}

// reader reads ManagedClusters of any Go type. It remembers where a type has its
// fields.
type reader map[reflect.Type]*shape

// read returns false for what is no Kubernetes object.
func (rd reader) read(obj any) (types.NamespacedName, observation, bool) {
	m, err := meta.Accessor(obj)
	if err != nil || api.IsNil(obj) {
		return types.NamespacedName{}, observation{}, false
	}
	key := types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}
	o := observation{uid: m.GetUID(), generation: m.GetGeneration()}
	if u, ok := obj.(runtime.Unstructured); ok {
		o.readContent(u.UnstructuredContent())
	} else {
		o.readTyped(rd.shapeOf(reflect.TypeOf(obj)), reflect.ValueOf(obj), m.GetLabels())
		for name, value := range m.GetAnnotations() {
			o.readHold(name, value)
		}
	}
	slices.SortFunc(o.holds, func(a, b Hold) int { return strings.Compare(a.Owner, b.Owner) })
	return key, o, true
}

// readContent reads an unstructured object, each part by itself: helpers that
// refuse a whole map for one bad value would hide a hold beside it.
func (o *observation) readContent(content map[string]any) {
	metadata, _ := content["metadata"].(map[string]any)
	switch annotations := metadata["annotations"].(type) {
	case nil:
	case map[string]any:
		for name, value := range annotations {
			o.readHold(name, value)
		}
	default:
		o.malformed("metadata.annotations", annotations, "remove it")
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
		o.malformed(SyncPausedField, value, flagRemedy)
	}
	o.stated, o.field = true, paused
}

func (o *observation) readHold(name string, value any) {
	owner, ok := api.HoldOwner(name)
	if !ok {
		return
	}
	reason, ok := value.(string)
	switch {
	case !ok:
		o.malformed("annotation "+name, value, holdRemedy)
	case reason != "false":
		o.holds = append(o.holds, Hold{Owner: owner, Reason: reason})
	}
}

func tristateOf(b bool) tristate {
	if b {
		return yes
	}
	return no
}

// shape has the places of a Go type's fields, by their JSON names. Nil: the type
// has no such field.
type shape struct {
	name                                       string
	clusterID, syncPaused, syncMode, appPusher []int
}

func (rd reader) shapeOf(t reflect.Type) *shape {
	s := rd[t]
	if s == nil {
		s = &shape{
			name:       t.String(),
			clusterID:  place(t, "spec", "clusterId"),
			syncPaused: place(t, "spec", "syncPaused"),
			syncMode:   place(t, "spec", "syncMode"),
			appPusher:  place(t, "status", "appPusher"),
		}
		rd[t] = s
	}
	return s
}

// place returns the index of a nested field by its JSON names.
func place(t reflect.Type, names ...string) []int {
	var index []int
	for _, name := range names {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil
		}
		found := false
		for _, f := range reflect.VisibleFields(t) {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if tag == name && f.IsExported() {
				index, t, found = append(index, f.Index...), f.Type, true
				break
			}
		}
		if !found {
			return nil
		}
	}
	return index
}

// at returns the value of a nested field, and false where the type has no such
// field or a pointer on the way to it is nil.
func at(v reflect.Value, index []int) (reflect.Value, bool) {
	for _, i := range index {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return v, false
		}
		v = v.Elem()
	}
	return v, index != nil
}

func (o *observation) readTyped(s *shape, v reflect.Value, labels map[string]string) {
	if s.clusterID == nil { // nothing but the label can tell whose it is
		o.clusterID = types.UID(labels[api.ClusterIDLabel])
	} else if id, ok := at(v, s.clusterID); ok && id.Kind() == reflect.String {
		o.clusterID = types.UID(id.String())
	}
	if mode, ok := at(v, s.syncMode); ok && mode.Kind() == reflect.String {
		o.syncMode = Mode(mode.String())
	}
	if appPusher, ok := at(v, s.appPusher); ok && appPusher.Kind() == reflect.Bool {
		o.appPusher = tristateOf(appPusher.Bool())
	}
	if s.syncPaused == nil {
		o.fault = ReasonFieldNotVisible
		o.problem = fmt.Sprintf("the Go type %s has no field for %s, so a pause can't be seen; use an informer of unstructured objects, such as that of informer.ForHub",
			s.name, SyncPausedField)
	} else if paused, ok := at(v, s.syncPaused); ok {
		if paused.Kind() == reflect.Bool {
			o.readFlag(paused.Bool())
		} else {
			o.readFlag(paused.Interface())
		}
	}
}
