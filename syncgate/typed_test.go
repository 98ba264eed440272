//go:build go1.25

package syncgate_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/syncgate"
)

// These tests check informers with typed objects: their field is read where the Go
// type has it, and the gate stays closed where the type has no such field.

// typedCluster is a type that the informer factory of an importer may have. It has
// the shape of Clusternet's ManagedCluster, with any Spec.
type typedCluster[Spec any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec `json:"spec"`
	Status            struct {
		AppPusher *bool `json:"appPusher,omitempty"`
	} `json:"status"`
}

type (
	specBlind struct {
		ClusterID types.UID `json:"clusterId"`
		SyncMode  string    `json:"syncMode"`
	}
	specBool struct {
		specBlind `json:",inline"`
		Pause     bool `json:"syncPaused,omitempty"`
	}
	specPointer struct {
		*specBlind `json:",inline"`
		Pause      *bool `json:"syncPaused,omitempty"`
	}
	specNull struct {
		specBlind `json:",inline"`
		Pause     *bool `json:"syncPaused"`
	}
	specText struct {
		specBlind `json:",inline"`
		Pause     string `json:"syncPaused,omitempty"`
	}
	specNothing struct{}
)

func typed[Spec any](spec Spec) *typedCluster[Spec] {
	yes := true
	c := &typedCluster[Spec]{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: "child", UID: "uid-child", Generation: 7,
		Labels: map[string]string{"clusters.clusternet.io/cluster-id": id},
	}, Spec: spec}
	c.Status.AppPusher = &yes
	return c
}

func TestTypedObjects(t *testing.T) {
	blind := specBlind{ClusterID: id, SyncMode: "Pull"}
	yes, no := true, false
	held := typed(specBool{specBlind: blind})
	held.Annotations = map[string]string{syncgate.HoldPrefix + "backup": "nightly"}
	for name, tc := range map[string]struct {
		obj    any
		reason string
	}{
		"no field":          {typed(blind), "FieldNotVisible"},
		"no spec":           {typed(specNothing{}), "FieldNotVisible"},
		"metadata only":     {&metav1.PartialObjectMetadata{ObjectMeta: typed(blind).ObjectMeta}, "FieldNotVisible"},
		"bool, true":        {typed(specBool{blind, true}), "SyncPaused"},
		"bool, false":       {typed(specBool{blind, false}), "SyncAllowed"},
		"bool, held":        {held, "Held"},
		"pointer, true":     {typed(specPointer{&blind, &yes}), "SyncPaused"},
		"pointer, false":    {typed(specPointer{&blind, &no}), "SyncAllowed"},
		"pointer, nil":      {typed(specPointer{&blind, nil}), "SyncAllowed"},
		"null, nil":         {typed(specNull{blind, nil}), "SyncAllowed"},
		"text":              {typed(specText{blind, "true"}), "Malformed"},
		"pointer to a spec": {typed(&specBool{blind, true}), "SyncPaused"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{FailOpen: true}, []any{tc.obj}, func(t *testing.T, f *fixture) {
				s := f.wantReason(tc.reason)
				if tc.reason == "FieldNotVisible" {
					if !strings.Contains(s.Message, "informer.ForHub") {
						t.Errorf("Message = %q; want the remedy", s.Message)
					}
					if err := f.hub.Check(nil); err == nil || !strings.Contains(err.Error(), "spec.syncPaused") {
						t.Errorf("Check() = %v; want that the field is not visible", err)
					}
					return
				}
				if s.SyncMode != syncgate.Pull || s.AppPusher == nil || !*s.AppPusher || s.Generation != 7 || s.UID != "uid-child" {
					t.Errorf("State() = %+v; want the fields of the object", s)
				}
				f.Delete(tc.obj)
				f.want(s.Paused, syncgate.Gone, syncgate.ReasonDeleted)
			})
		})
	}
	t.Run("no object at all", func(t *testing.T) {
		inBubble(t, syncgate.Options{}, []any{"text", (*unstructured.Unstructured)(nil), nil}, func(_ *testing.T, f *fixture) {
			f.want(true, syncgate.Unknown, syncgate.ReasonNotFound)
		})
	})
}
