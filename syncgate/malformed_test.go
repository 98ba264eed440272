//go:build go1.25

package syncgate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that a gate never opens by accident: a value that cannot be read
// closes it, and so does a CRD that loses the field.

func TestMalformed(t *testing.T) {
	for name, value := range map[string]any{
		"text true": "true", "text false": "false", "empty text": "", "number": int64(0), "float": 1.5,
		"null": nil, "object": map[string]any{"a": true}, "list": []any{false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{FailOpen: true}, []any{cluster(tu.Paused(value))}, func(t *testing.T, f *fixture) {
				s := f.want(true, syncgate.Paused, syncgate.ReasonMalformed)
				if !strings.Contains(s.Message, "spec.syncPaused is") || !strings.Contains(s.Message, "set it to true or false") {
					t.Errorf("Message = %q; want the fault and the remedy", s.Message)
				}
			})
		})
	}
	t.Run("hold", func(t *testing.T) {
		obj := cluster(tu.Annotated(syncgate.HoldPrefix+"backup", int64(1)), tu.Held("other", "why"))
		inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
			s := f.want(true, syncgate.Paused, syncgate.ReasonMalformed)
			if diff := cmp.Diff([]syncgate.Hold{{Owner: "other", Reason: "why"}}, s.Holds); diff != "" {
				t.Errorf("Holds (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("two holds", func(t *testing.T) {
		obj := cluster(tu.Annotated(syncgate.HoldPrefix+"a", int64(1)), tu.Annotated(syncgate.HoldPrefix+"b", int64(1)))
		for range 20 { // the order of a map is random
			inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
				if s := f.wantReason(syncgate.ReasonMalformed); !strings.Contains(s.Message, syncgate.HoldPrefix+"a is") {
					t.Errorf("Message = %q; want the first annotation in it", s.Message)
				}
			})
		}
	})
	t.Run("annotations", func(t *testing.T) {
		obj := cluster()
		obj.Object["metadata"].(map[string]any)["annotations"] = "none"
		inBubble(t, syncgate.Options{}, []any{obj}, func(_ *testing.T, f *fixture) {
			f.want(true, syncgate.Paused, syncgate.ReasonMalformed)
		})
	})
	t.Run("duplicate", func(t *testing.T) {
		inBubble(t, syncgate.Options{}, []any{cluster(), tu.ManagedCluster(ns, "z", id, tu.Paused("no"))}, func(_ *testing.T, f *fixture) {
			f.want(true, syncgate.Paused, syncgate.ReasonMalformed)
		})
	})
}

// A CRD that loses the field drops the flag from all objects that the server sends,
// and does not change their generation.
func TestTheFieldVanishes(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		got := subscribe(f.gate)
		vanished := func(opts ...tu.Option) *unstructured.Unstructured {
			out := tu.With(obj, append(opts, tu.Unpaused())...)
			out.SetGeneration(obj.GetGeneration())
			return out
		}
		f.Update(obj, vanished())
		s := f.want(true, syncgate.Paused, syncgate.ReasonFieldNotVisible)
		if !strings.Contains(s.Message, "add it to the CRD again") {
			t.Errorf("Message = %q; want the remedy", s.Message)
		}
		f.Update(nil, vanished(tu.Heartbeat(time.Now())))
		f.want(true, syncgate.Paused, syncgate.ReasonFieldNotVisible)
		if err := f.hub.Check(nil); err != nil {
			t.Errorf("Check() = %v; want nil: the object of one cluster is no fault of the hub", err)
		}
		f.Update(nil, obj) // the CRD has the field again
		f.want(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		f.Update(nil, vanished())
		f.Update(nil, tu.With(obj, tu.Unpaused())) // an edit of the spec
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		got.take()
		f.Update(nil, tu.With(obj, tu.UID("another"), func(o map[string]any) { delete(o["spec"].(map[string]any), "syncPaused") }))
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}
