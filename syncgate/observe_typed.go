package syncgate

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/internal/api"
)

// fieldIndex has the places of the fields of a Go type, found by their JSON names.
// Nil: the type has no such field.
type fieldIndex struct {
	typeName                                   string
	clusterID, syncPaused, syncMode, appPusher []int
}

func (ob observer) indexOf(t reflect.Type) *fieldIndex {
	index := ob[t]
	if index == nil {
		index = &fieldIndex{
			typeName:   t.String(),
			clusterID:  findField(t, "spec", "clusterId"),
			syncPaused: findField(t, "spec", "syncPaused"),
			syncMode:   findField(t, "spec", "syncMode"),
			appPusher:  findField(t, "status", "appPusher"),
		}
		ob[t] = index
	}
	return index
}

// findField returns the index of a nested field by its JSON names, nil if there is
// none.
func findField(t reflect.Type, names ...string) []int {
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

// fieldAt returns the value of a nested field. It returns false where the type has
// no such field, or a pointer to it is nil.
func fieldAt(v reflect.Value, index []int) (reflect.Value, bool) {
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

// readTyped reads an object of a Go type, without its annotations.
func (o *observation) readTyped(index *fieldIndex, v reflect.Value, labels map[string]string) {
	if index.clusterID == nil { // only the label can tell the cluster
		o.clusterID = types.UID(labels[api.ClusterIDLabel])
	} else if id, ok := fieldAt(v, index.clusterID); ok && id.Kind() == reflect.String {
		o.clusterID = types.UID(id.String())
	}
	if mode, ok := fieldAt(v, index.syncMode); ok && mode.Kind() == reflect.String {
		o.syncMode = Mode(mode.String())
	}
	if appPusher, ok := fieldAt(v, index.appPusher); ok && appPusher.Kind() == reflect.Bool {
		o.appPusher = tristateOf(appPusher.Bool())
	}
	if index.syncPaused == nil {
		o.flag = flagNotVisible
		o.flagProblem = fmt.Sprintf("the Go type %s has no field for %s, so a pause can't be seen; use an informer of unstructured objects, such as that of informer.ForHub",
			index.typeName, SyncPausedField)
		return
	}
	switch flag, ok := fieldAt(v, index.syncPaused); {
	case !ok:
	case flag.Kind() == reflect.Bool:
		o.readFlag(flag.Bool())
	default:
		o.readFlag(flag.Interface())
	}
}
