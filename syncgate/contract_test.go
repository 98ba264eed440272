//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

var errEnded = errors.New("the test has seen enough")

// fixture is a hub that runs in a bubble of synctest, over a source that the test
// drives.
type fixture struct {
	*testing.T
	*tu.Source
	hub  *syncgate.Hub
	gate *syncgate.Gate // of id
	stop func()         // ends Run and waits for it
}

// inBubble calls test with a hub that runs and whose first list is initial.
func inBubble(t *testing.T, opts syncgate.Options, initial []any, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, opts)
		f.Add(initial...)
		f.sync()
		test(t, f)
	})
}

// newFixture returns a hub that runs and has not synced.
func newFixture(t *testing.T, opts syncgate.Options) *fixture {
	t.Helper()
	f := &fixture{T: t, Source: tu.NewSource()}
	hub, err := syncgate.NewHub(f.Source, opts)
	if err != nil {
		t.Fatal(err)
	}
	f.hub, f.gate = hub, hub.Gate(id)
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel(errEnded)
		if err := <-ended; err != nil {
			t.Errorf("Run = %v; want nil", err)
		}
	})
	t.Cleanup(f.stop)
	synctest.Wait()
	return f
}

func (f *fixture) sync() {
	f.Helper()
	f.Source.SetContact(time.Now())
	f.Source.Sync()
	if err := f.hub.WaitForSync(f.Context()); err != nil {
		f.Fatal(err)
	}
	synctest.Wait()
}

// wants checks the decision, the Phase and the Reason of the gate of id, in
// State and in Paused.
func (f *fixture) wants(paused bool, phase syncgate.Phase, reason string) syncgate.State {
	f.Helper()
	s := f.gate.State()
	if s.Paused != paused || f.gate.Paused() != paused || s.Phase != phase || s.Reason != reason {
		f.Errorf("Paused() = %v, State() = %v %v %s (%s); want %v %v %s",
			f.gate.Paused(), s.Paused, s.Phase, s.Reason, s.Message, paused, phase, reason)
	}
	return s
}

// changes collects what callbacks are told.
type changes struct {
	mu   sync.Mutex
	list []syncgate.Change
}

func (c *changes) add(change syncgate.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, change)
}

// take returns the changes since the last take as "Old>New" reasons.
func (c *changes) take() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, change := range c.list {
		out = append(out, change.Old.Reason+">"+change.New.Reason)
	}
	c.list = nil
	return out
}

func (c *changes) wants(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, c.take()); diff != "" {
		t.Errorf("changes told (-want +got):\n%s", diff)
	}
}

func TestC1ClosedUntilKnown(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		t.Run(fmt.Sprintf("failOpen=%v", failOpen), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := syncgate.Options{FailOpen: failOpen}
				hub, err := syncgate.NewHub(tu.NewSource(), opts)
				if err != nil {
					t.Fatal(err)
				}
				notRun := &fixture{T: t, hub: hub, gate: hub.Gate(id)}
				notRun.wants(!failOpen, syncgate.Unknown, syncgate.ReasonNotSynced)

				f := newFixture(t, opts)
				f.wants(!failOpen, syncgate.Unknown, syncgate.ReasonNotSynced)
				f.Add(tu.ManagedCluster(ns, "other", "another-cluster"))
				f.sync()
				f.wants(!failOpen, syncgate.Unknown, syncgate.ReasonNotFound)

				open := cluster()
				f.Add(open)
				f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
				f.Update(open, tu.With(open, tu.Paused("yes")))
				f.wants(true, syncgate.Paused, syncgate.ReasonMalformed)
				f.stop()
				f.wants(true, syncgate.Unknown, syncgate.ReasonStopped)
			})
		})
	}
}

// The first of two duplicates is open: shown before the second is known, it would
// open the gate for a moment.
func TestC1NothingIsShownBeforeTheWholeFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, syncgate.Options{})
		var seen changes
		f.gate.OnChange(seen.add)
		f.Add(cluster())
		f.wants(true, syncgate.Unknown, syncgate.ReasonNotSynced)
		if f.hub.HasSynced() || f.gate.HasSynced() {
			t.Error("HasSynced() = true; want false before the first list is complete")
		}
		f.Add(tu.ManagedCluster(ns, "duplicate", id, tu.Paused(true)))
		f.wants(true, syncgate.Unknown, syncgate.ReasonNotSynced)
		f.sync()
		f.wants(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		seen.wants(t, "NotSynced>SyncPaused")
	})
}

func TestC2Decision(t *testing.T) {
	field := syncgate.Hold{Owner: syncgate.SyncPausedField}
	for name, tc := range map[string]struct {
		objects []any
		reason  string
		holds   []syncgate.Hold
	}{
		"absent":                {[]any{cluster()}, "SyncAllowed", nil},
		"false":                 {[]any{cluster(tu.Paused(false))}, "SyncAllowed", nil},
		"true":                  {[]any{cluster(tu.Paused(true))}, "SyncPaused", []syncgate.Hold{field}},
		"annotation":            {[]any{cluster(tu.Held("backup", "nightly"))}, "Held", []syncgate.Hold{{Owner: "backup", Reason: "nightly"}}},
		"annotation, no reason": {[]any{cluster(tu.Held("backup", ""))}, "Held", []syncgate.Hold{{Owner: "backup"}}},
		"annotation, true":      {[]any{cluster(tu.Held("backup", "true"))}, "Held", []syncgate.Hold{{Owner: "backup", Reason: "true"}}},
		"annotation, released":  {[]any{cluster(tu.Held("backup", "false"))}, "SyncAllowed", nil},
		"annotation, FALSE":     {[]any{cluster(tu.Held("backup", "FALSE"))}, "Held", []syncgate.Hold{{Owner: "backup", Reason: "FALSE"}}},
		"another annotation":    {[]any{cluster(tu.Annotated("clusters.clusternet.io/hold", "x"))}, "SyncAllowed", nil},
		"flag false, held": {
			[]any{cluster(tu.Paused(false), tu.Held("b", "2"), tu.Held("a", "1"))},
			"Held", []syncgate.Hold{{Owner: "a", Reason: "1"}, {Owner: "b", Reason: "2"}},
		},
		"flag true, one of two released": {
			[]any{cluster(tu.Paused(true), tu.Held("b", "2"), tu.Held("a", "false"))},
			"SyncPaused", []syncgate.Hold{field, {Owner: "b", Reason: "2"}},
		},
		"duplicates, open":         {[]any{cluster(), tu.ManagedCluster(ns, "a", id)}, "SyncAllowed", nil},
		"duplicates, first paused": {[]any{tu.ManagedCluster(ns, "a", id, tu.Paused(true)), cluster()}, "SyncPaused", []syncgate.Hold{field}},
		"duplicates, last paused":  {[]any{cluster(), tu.ManagedCluster("z", "z", id, tu.Paused(true))}, "SyncPaused", []syncgate.Hold{field}},
		"duplicates, held apart": {
			[]any{cluster(tu.Held("a", "1")), tu.ManagedCluster(ns, "a", id, tu.Held("b", "2"))},
			"Held", []syncgate.Hold{{Owner: "a", Reason: "1"}, {Owner: "b", Reason: "2"}},
		},
		"duplicates, last held": {
			[]any{cluster(), tu.ManagedCluster("z", "z", id, tu.Held("b", "2"))}, "Held", []syncgate.Hold{{Owner: "b", Reason: "2"}},
		},
		"another cluster is paused": {[]any{cluster(), tu.ManagedCluster(ns, "other", "other", tu.Paused(true))}, "SyncAllowed", nil},
		"label is ours, spec is not": {
			[]any{cluster(), tu.ManagedCluster(ns, "other", "other", tu.Labelled(id), tu.Paused(true))},
			"SyncAllowed", nil,
		},
		"spec is ours, label is not": {[]any{cluster(tu.Labelled("other"), tu.Paused(true))}, "SyncPaused", []syncgate.Hold{field}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{}, tc.objects, func(t *testing.T, f *fixture) {
				paused, phase := tc.reason != "SyncAllowed", syncgate.Paused
				if !paused {
					phase = syncgate.Open
				}
				s := f.wants(paused, phase, tc.reason)
				if diff := cmp.Diff(tc.holds, s.Holds); diff != "" {
					t.Errorf("Holds (-want +got):\n%s", diff)
				}
				for _, hold := range s.Holds {
					if !strings.Contains(s.Message, hold.Owner) || !strings.Contains(s.Message, hold.Reason) {
						t.Errorf("Message = %q; want it to name %+v", s.Message, hold)
					}
				}
			})
		})
	}
}

func TestC2HoldersAreIndependent(t *testing.T) {
	both := cluster(tu.Paused(true), tu.Held("backup", "nightly"))
	inBubble(t, syncgate.Options{}, []any{both}, func(t *testing.T, f *fixture) {
		var seen []syncgate.Change
		f.gate.OnChange(func(c syncgate.Change) { seen = append(seen, c) })
		one := tu.With(both, tu.Unpaused())
		f.Update(both, one)
		f.wants(true, syncgate.Paused, syncgate.ReasonHeld)
		none := tu.With(one, tu.Released("backup"))
		f.Update(one, none)
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		synctest.Wait()
		resumed := 0
		for _, c := range seen {
			if c.Resumed() {
				resumed++
			}
		}
		if resumed != 1 {
			t.Errorf("%d changes were Resumed; want 1: %+v", resumed, seen)
		}
	})
}

func TestStateTellsOfTheObject(t *testing.T) {
	obj := cluster(tu.Heartbeat(time.Now()), tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{tu.ManagedCluster(ns, "a-duplicate", id), obj}, func(t *testing.T, f *fixture) {
		got := f.gate.State()
		yes := true
		want := syncgate.State{
			Phase: syncgate.Paused, Paused: true, Reason: "SyncPaused",
			Message: "ManagedCluster clusternet-abcde/child is held by spec.syncPaused",
			Holds:   []syncgate.Hold{{Owner: "spec.syncPaused"}},
			Since:   time.Now(), Object: types.NamespacedName{Namespace: ns, Name: "child"},
			UID: "uid-child", Generation: 2, SyncMode: syncgate.Dual, AppPusher: &yes,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("State() (-want +got):\n%s", diff)
		}

		got.Holds[0].Owner, *got.AppPusher = "nobody", false
		if diff := cmp.Diff(want, f.gate.State()); diff != "" {
			t.Errorf("State() after its copy was changed (-want +got):\n%s", diff)
		}

		// Since is of the Phase and the Reason; the rest follows the object.
		time.Sleep(time.Minute)
		f.Update(obj, tu.With(obj, tu.Paused(true), tu.Held("backup", "nightly")))
		want.Generation, want.Holds = 3, []syncgate.Hold{{Owner: "spec.syncPaused"}, {Owner: "backup", Reason: "nightly"}}
		want.Message = "ManagedCluster clusternet-abcde/child is held by spec.syncPaused, backup (nightly)"
		if diff := cmp.Diff(want, f.gate.State()); diff != "" {
			t.Errorf("State() with a second hold (-want +got):\n%s", diff)
		}
	})
}

func TestC3Malformed(t *testing.T) {
	for name, value := range map[string]any{
		"text true": "true", "text false": "false", "empty text": "", "number": int64(0), "float": 1.5,
		"null": nil, "object": map[string]any{"a": true}, "list": []any{false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{FailOpen: true}, []any{cluster(tu.Paused(value))}, func(t *testing.T, f *fixture) {
				s := f.wants(true, syncgate.Paused, syncgate.ReasonMalformed)
				if !strings.Contains(s.Message, "spec.syncPaused is") || !strings.Contains(s.Message, "set it to true or false") {
					t.Errorf("Message = %q; want what is wrong and what to do", s.Message)
				}
			})
		})
	}
	t.Run("hold", func(t *testing.T) {
		obj := cluster(tu.Annotated(syncgate.HoldPrefix+"backup", int64(1)), tu.Held("other", "why"))
		inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
			s := f.wants(true, syncgate.Paused, syncgate.ReasonMalformed)
			if diff := cmp.Diff([]syncgate.Hold{{Owner: "other", Reason: "why"}}, s.Holds); diff != "" {
				t.Errorf("Holds (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("annotations", func(t *testing.T) {
		obj := cluster()
		obj.Object["metadata"].(map[string]any)["annotations"] = "none"
		inBubble(t, syncgate.Options{}, []any{obj}, func(_ *testing.T, f *fixture) {
			f.wants(true, syncgate.Paused, syncgate.ReasonMalformed)
		})
	})
	t.Run("duplicate", func(t *testing.T) {
		inBubble(t, syncgate.Options{}, []any{cluster(), tu.ManagedCluster(ns, "z", id, tu.Paused("no"))}, func(_ *testing.T, f *fixture) {
			f.wants(true, syncgate.Paused, syncgate.ReasonMalformed)
		})
	})
}

// Types as an importer's own informer factory may have them. ManagedCluster is in
// the shape of Clusternet's, with Spec to choose.
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

func TestC3TypedObjects(t *testing.T) {
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
		"text":              {typed(specText{blind, "true"}), "Malformed"},
		"pointer to a spec": {typed(&specBool{blind, true}), "SyncPaused"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{FailOpen: true}, []any{tc.obj}, func(t *testing.T, f *fixture) {
				paused, phase := tc.reason != "SyncAllowed", syncgate.Paused
				if !paused {
					phase = syncgate.Open
				}
				s := f.wants(paused, phase, tc.reason)
				if tc.reason == "FieldNotVisible" {
					if !strings.Contains(s.Message, "informer.ForHub") {
						t.Errorf("Message = %q; want what to do", s.Message)
					}
					if err := f.hub.Check(nil); err == nil || !strings.Contains(err.Error(), "spec.syncPaused") {
						t.Errorf("Check() = %v; want that the field is not visible", err)
					}
					return
				}
				if s.SyncMode != syncgate.Pull || s.AppPusher == nil || !*s.AppPusher || s.Generation != 7 || s.UID != "uid-child" {
					t.Errorf("State() = %+v; want what the object says", s)
				}
				f.Delete(tc.obj)
				f.wants(paused, syncgate.Gone, syncgate.ReasonDeleted)
			})
		})
	}
	t.Run("no object at all", func(t *testing.T) {
		inBubble(t, syncgate.Options{}, []any{"text", (*unstructured.Unstructured)(nil), nil}, func(_ *testing.T, f *fixture) {
			f.wants(true, syncgate.Unknown, syncgate.ReasonNotFound)
		})
	})
}

// A CRD that is put back to the stock one drops the flag from what is shown, and
// bumps no generation.
func TestC3TheFieldVanishes(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var seen changes
		f.gate.OnChange(seen.add)
		seen.take()
		vanished := func(opts ...tu.Option) *unstructured.Unstructured {
			out := tu.With(obj, append(opts, tu.Unpaused())...)
			out.SetGeneration(obj.GetGeneration())
			return out
		}
		f.Update(obj, vanished())
		s := f.wants(true, syncgate.Paused, syncgate.ReasonFieldNotVisible)
		if !strings.Contains(s.Message, "add it to the CRD again") {
			t.Errorf("Message = %q; want what to do", s.Message)
		}
		f.Update(nil, vanished(tu.Heartbeat(time.Now())))
		f.wants(true, syncgate.Paused, syncgate.ReasonFieldNotVisible)
		if err := f.hub.Check(nil); err != nil {
			t.Errorf("Check() = %v; want nil: one cluster's object is no fault of the hub", err)
		}
		f.Update(nil, obj) // the CRD is right again
		f.wants(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		f.Update(nil, vanished())
		f.Update(nil, tu.With(obj, tu.Unpaused())) // an edit of the spec
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		seen.take()
		f.Update(nil, tu.With(obj, tu.UID("another"), func(o map[string]any) { delete(o["spec"].(map[string]any), "syncPaused") }))
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

func TestC4OnlyDecisionsNotify(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var seen, seenByHub changes
		f.gate.OnChange(seen.add)
		f.hub.OnChange(seenByHub.add)
		seen.wants(t, "NotSynced>SyncAllowed")
		seenByHub.wants(t, "NotSynced>SyncAllowed")

		f.Update(obj, obj) // a resync, or a relist without news
		for range 3 {      // heartbeats
			time.Sleep(time.Minute)
			next := tu.With(obj, tu.Heartbeat(time.Now()))
			f.Update(obj, next)
			obj = next
		}
		next := tu.With(obj, tu.Paused(false), tu.Annotated("note", "x")) // an edit of other things
		f.Update(obj, next)
		seen.wants(t)
		seenByHub.wants(t)
		if s := f.gate.State(); s.Generation != 2 || s.AppPusher == nil {
			t.Errorf("State() = %+v; want what the heartbeats and the edit brought", s)
		}

		f.Update(next, tu.With(next, tu.Paused(true)))
		seen.wants(t, "SyncAllowed>SyncPaused")
		seenByHub.wants(t, "SyncAllowed>SyncPaused")
	})
}

func TestC4OneResumeEach(t *testing.T) {
	for name, resume := range map[string]tu.Option{"true to false": tu.Paused(false), "true to absent": tu.Unpaused()} {
		t.Run(name, func(t *testing.T) {
			obj := cluster(tu.Paused(true))
			inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
				var told []syncgate.Change
				f.gate.OnChange(func(c syncgate.Change) { told = append(told, c) })
				synctest.Wait()
				if len(told) != 1 || !told[0].New.Paused || told[0].New.Phase != syncgate.Paused || told[0].ClusterID != id {
					t.Fatalf("first call = %+v; want the pause that was there from the start", told)
				}
				f.Update(obj, tu.With(obj, resume))
				synctest.Wait()
				if len(told) != 2 || !told[1].Resumed() || told[1].Paused() {
					t.Errorf("after the resume told = %+v; want one Resumed", told[1:])
				}
			})
		})
	}
}

func TestC5PausedShowsBeforeCallbacks(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		calls := 0
		f.gate.OnChange(func(c syncgate.Change) {
			calls++
			if f.gate.Paused() != c.New.Paused || f.gate.State().Reason != c.New.Reason {
				t.Errorf("in the callback of %s: Paused() = %v", c.New.Reason, f.gate.Paused())
			}
		})
		for i := range 10 {
			synctest.Wait()
			next := tu.With(obj, tu.Paused(i%2 == 0))
			f.Update(obj, next)
			obj = next
		}
		synctest.Wait()
		if calls != 11 {
			t.Errorf("%d calls; want 11", calls)
		}
	})
}

func TestC5BlockedCallback(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		release := make(chan struct{})
		var first, second changes
		f.gate.OnChange(func(c syncgate.Change) { first.add(c); <-release })
		f.gate.OnChange(second.add)
		first.wants(t, "NotSynced>SyncAllowed")
		second.wants(t) // delayed, and nothing else is

		flip := func(paused bool) {
			next := tu.With(obj, tu.Paused(paused))
			f.Update(obj, next)
			obj = next
			if f.gate.Paused() != paused {
				t.Errorf("Paused() = %v; want %v however long a callback takes", f.gate.Paused(), paused)
			}
		}
		for range 500 {
			flip(true)
			flip(false)
		}
		close(release)
		// Merged, but not to nothing: what was refused in between waits for an
		// opening.
		first.wants(t, "SyncAllowed>SyncPaused", "SyncPaused>SyncAllowed")
		second.wants(t, "NotSynced>SyncAllowed")
		flip(true)
		first.wants(t, "SyncAllowed>SyncPaused")
		second.wants(t, "SyncAllowed>SyncPaused")
		for range 500 {
			flip(false)
			flip(true)
		}
		synctest.Wait()
		first.take() // however they were merged
		second.take()
	})
}

// From closed by way of open to closed again is nothing new to whoever was told
// that it is closed.
func TestC5MergedToNothing(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		release := make(chan struct{})
		var seen changes
		f.gate.OnChange(func(c syncgate.Change) { seen.add(c); <-release })
		seen.wants(t, "NotSynced>SyncPaused")
		open := tu.With(obj, tu.Unpaused())
		f.Update(obj, open)
		f.Update(open, tu.With(open, tu.Paused(true)))
		close(release)
		seen.wants(t)
	})
}

func TestC5EachSubscriberHasItsChain(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var early, late changes
		f.gate.OnChange(early.add)
		early.wants(t, "NotSynced>SyncAllowed")
		paused := tu.With(obj, tu.Paused(true))
		f.Update(obj, paused)
		early.wants(t, "SyncAllowed>SyncPaused")
		stop := f.gate.OnChange(late.add)
		late.wants(t, "NotSynced>SyncPaused") // at once
		early.wants(t)
		stop()
		stop() // twice is harmless
		f.Update(paused, tu.With(paused, tu.Paused(false)))
		early.wants(t, "SyncPaused>SyncAllowed")
		late.wants(t)
	})
}

// One that is stopped while another callback of the same news runs, is not called.
func TestC5StopIsHeededAtOnce(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var first, second changes
		block := make(chan struct{})
		f.gate.OnChange(func(c syncgate.Change) {
			first.add(c)
			if c.New.Paused {
				<-block
			}
		})
		stop := f.gate.OnChange(second.add)
		second.wants(t, "NotSynced>SyncAllowed")
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		first.wants(t, "NotSynced>SyncAllowed", "SyncAllowed>SyncPaused")
		stop()
		close(block)
		second.wants(t)
	})
}

func TestC5CallbacksMayCallAnything(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		calls := 0
		var nested changes
		stops := make(chan func(), 1) // the first call may come before OnChange returns
		stops <- f.hub.OnChange(func(c syncgate.Change) {
			calls++
			g := f.hub.Gate(c.ClusterID)
			_, _ = f.hub.GateOf(ns, "child")
			f.hub.Gate("made in a callback")
			_ = g.State()
			_ = g.Check(nil)
			_ = f.hub.Check(nil)
			_ = g.WaitForSync(t.Context())
			_ = g.Do(t.Context(), func(context.Context) error { return nil })
			_ = g.InFlight()
			for range f.hub.Gates() {
				_ = f.hub.Name()
			}
			g.OnChange(nested.add)
			(<-stops)()
		})
		synctest.Wait()
		nested.wants(t, "NotSynced>SyncAllowed")
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		nested.wants(t, "SyncAllowed>SyncPaused")
		if calls != 1 {
			t.Errorf("%d calls; want 1: it stopped itself", calls)
		}
	})
}

func TestC5CallbacksNeverOverlapAndKeepOrder(t *testing.T) {
	inBubble(t, syncgate.Options{}, nil, func(t *testing.T, f *fixture) {
		var running atomic.Int32
		var order []string
		for _, name := range []string{"a", "b"} {
			f.hub.OnChange(func(c syncgate.Change) {
				if running.Add(1) != 1 {
					t.Error("two callbacks at the same time")
				}
				time.Sleep(time.Second)
				order = append(order, name+" "+string(c.ClusterID))
				running.Add(-1)
			})
		}
		for i := range 3 {
			f.Add(tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster", i)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"a cluster0", "b cluster0", "a cluster1", "b cluster1", "a cluster2", "b cluster2"}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("order of calls (-want +got):\n%s", diff)
		}
	})
}

func TestC5NoneRunsAfterRun(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		var running atomic.Bool
		calls := 0
		f.gate.OnChange(func(syncgate.Change) {
			running.Store(true)
			calls++
			time.Sleep(time.Hour)
			running.Store(false)
		})
		synctest.Wait()
		f.Update(nil, cluster(tu.Paused(true)))
		f.stop()
		if running.Load() {
			t.Error("a callback runs after Run has returned")
		}
		f.gate.OnChange(func(syncgate.Change) { calls++ })
		time.Sleep(time.Hour)
		if calls != 1 {
			t.Errorf("%d calls; want 1: none starts after the end", calls)
		}
	})
}

func TestC5HubIsNotToldOfClustersNobodyRegistered(t *testing.T) {
	inBubble(t, syncgate.Options{StaleAfter: time.Hour}, nil, func(t *testing.T, f *fixture) {
		var seen, ofGate changes
		f.hub.OnChange(seen.add)
		f.hub.Gate("a typing error").OnChange(ofGate.add)
		seen.wants(t)
		ofGate.wants(t, "NotSynced>NotFound")
		time.Sleep(2 * time.Hour)
		seen.wants(t)
		ofGate.wants(t, "NotFound>Stale")
		f.SetContact(time.Now())
		time.Sleep(time.Second)
		seen.wants(t)
		f.Add(cluster())
		seen.wants(t, "NotSynced>SyncAllowed")
	})
}

func TestC6NothingStartsOnceClosed(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		finish := make(chan struct{})
		result := make(chan error, 1)
		go func() {
			result <- f.gate.Do(t.Context(), func(ctx context.Context) error {
				<-finish
				return ctx.Err()
			})
		}()
		synctest.Wait()
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		if got := f.gate.InFlight(); got != 1 {
			t.Errorf("InFlight() = %d; want 1: a pause cancels nothing", got)
		}
		err := f.gate.Do(t.Context(), func(context.Context) error { t.Error("ran while closed"); return nil })
		if !errors.Is(err, syncgate.ErrPaused) || errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("Do = %v; want ErrPaused alone", err)
		}
		if !strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "spec.syncPaused") {
			t.Errorf("Do = %q; want the cluster and the holder in it", err)
		}

		drained := make(chan error, 1)
		go func() { drained <- f.gate.WaitDrained(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-drained:
			t.Fatalf("WaitDrained = %v with an operation in flight", err)
		default:
		}
		close(finish)
		if err := <-drained; err != nil {
			t.Errorf("WaitDrained = %v", err)
		}
		if err := <-result; err != nil {
			t.Errorf("the admitted Do = %v; want nil", err)
		}
		if got := f.gate.InFlight(); got != 0 {
			t.Errorf("InFlight() = %d; want 0", got)
		}
	})
}

func TestC6DoReturnsWhatFnReturns(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		want := errors.New("from fn")
		if err := f.gate.Do(t.Context(), func(context.Context) error { return want }); err != want {
			t.Errorf("Do = %v; want %v itself", err, want)
		}
	})
}

func TestC6DoneContextAdmitsNothing(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		never := func(context.Context) error { t.Error("ran with a context that is done"); return nil }
		cause := errors.New("the cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := f.gate.Do(ctx, never); !errors.Is(err, cause) || errors.Is(err, syncgate.ErrPaused) {
			t.Errorf("Do = %v; want the cause and not ErrPaused", err)
		}
		// Nested too: who is told to stop begins nothing.
		_ = f.gate.Do(t.Context(), func(ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(cause)
			if err := f.gate.Do(ctx, never); !errors.Is(err, cause) {
				t.Errorf("nested Do = %v; want the cause", err)
			}
			return nil
		})
	})
}

func TestC6Waits(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		if err := f.gate.WaitDrained(t.Context()); err != nil {
			t.Errorf("WaitDrained = %v; want nil: it is closed and idle", err)
		}
		cause := errors.New("the cause")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		err := f.gate.WaitOpen(ctx)
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "spec.syncPaused") {
			t.Errorf("WaitOpen = %v; want the cause and who holds", err)
		}
		opened := make(chan error, 1)
		go func() { opened <- f.gate.WaitOpen(t.Context()) }()
		synctest.Wait()
		f.Update(obj, tu.With(obj, tu.Unpaused()))
		if err := <-opened; err != nil {
			t.Errorf("WaitOpen = %v", err)
		}
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		if err := f.gate.WaitDrained(ctx); !errors.Is(err, cause) {
			t.Errorf("WaitDrained = %v; want the cause: it is open", err)
		}

		go func() { opened <- f.gate.WaitDrained(t.Context()) }()
		_ = f.gate.Do(t.Context(), func(ctx context.Context) error {
			if err := f.gate.WaitDrained(ctx); err == nil || !strings.Contains(err.Error(), "inside") {
				t.Errorf("WaitDrained inside an operation = %v; want an error at once", err)
			}
			return nil
		})
		f.stop()
		if err := <-opened; err != nil {
			t.Errorf("WaitDrained at the end = %v; want nil", err)
		}
		if err := f.gate.WaitOpen(t.Context()); !errors.Is(err, syncgate.ErrStopped) {
			t.Errorf("WaitOpen after the end = %v; want ErrStopped", err)
		}
	})
}

func TestC7AnOperationIsWhole(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		type key struct{}
		last := make(chan struct{})
		var leaked context.Context
		err := f.gate.Do(t.Context(), func(ctx context.Context) error {
			f.Update(obj, tu.With(obj, tu.Paused(true)))
			leaked = ctx
			derived, cancel := context.WithTimeout(context.WithValue(ctx, key{}, 1), time.Hour)
			defer cancel()
			if err := f.gate.Do(derived, func(ctx context.Context) error {
				return f.gate.Do(ctx, func(context.Context) error {
					if got := f.gate.InFlight(); got != 1 {
						t.Errorf("InFlight() = %d inside of nested parts; want 1", got)
					}
					return nil
				})
			}); err != nil {
				t.Errorf("nested Do during a pause = %v; want nil", err)
			}
			if err := f.hub.Gate("another").Do(ctx, func(context.Context) error { return nil }); !errors.Is(err, syncgate.ErrPaused) {
				t.Errorf("Do of another gate = %v; want ErrPaused", err)
			}
			if err := f.gate.Do(t.Context(), func(context.Context) error { return nil }); !errors.Is(err, syncgate.ErrPaused) {
				t.Errorf("Do with a context of elsewhere = %v; want ErrPaused", err)
			}
			started := make(chan struct{})
			go func() { // a part that outlives the first
				_ = f.gate.Do(ctx, func(context.Context) error { close(started); <-last; return nil })
			}()
			<-started
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.gate.InFlight(); got != 1 {
			t.Errorf("InFlight() = %d while a part runs; want 1", got)
		}
		if err := f.gate.Do(leaked, func(context.Context) error { return nil }); err != nil {
			t.Errorf("Do while a part runs = %v; want nil: the operation is in flight", err)
		}
		close(last)
		if err := f.gate.WaitDrained(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.gate.Do(leaked, func(context.Context) error { return nil }); !errors.Is(err, syncgate.ErrPaused) {
			t.Errorf("Do with the context of an operation that ended = %v; want ErrPaused", err)
		}
	})
}

func TestC7PanicAndGoexitRelease(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			_ = f.gate.Do(t.Context(), func(ctx context.Context) error {
				return f.gate.Do(ctx, func(context.Context) error { panic("oops") })
			})
		}()
		if got := f.gate.InFlight(); got != 0 {
			t.Errorf("InFlight() = %d after a panic; want 0", got)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = f.gate.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		if got := f.gate.InFlight(); got != 0 {
			t.Errorf("InFlight() = %d after Goexit; want 0", got)
		}
	})
}

func TestC9DeletionLatches(t *testing.T) {
	for name, tc := range map[string]struct {
		obj    *unstructured.Unstructured
		paused bool
	}{
		"paused":    {cluster(tu.Paused(true)), true},
		"open":      {cluster(), false},
		"malformed": {cluster(tu.Paused("no")), true},
	} {
		for how, gone := range map[string]any{
			"object":          tc.obj,
			"tombstone":       cache.DeletedFinalStateUnknown{Key: ns + "/child", Obj: tc.obj},
			"empty tombstone": cache.DeletedFinalStateUnknown{Key: ns + "/child"},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				inBubble(t, syncgate.Options{}, []any{tc.obj}, func(t *testing.T, f *fixture) {
					var seen changes
					f.gate.OnChange(seen.add)
					seen.take()
					f.Delete(gone)
					s := f.wants(tc.paused, syncgate.Gone, syncgate.ReasonDeleted)
					if s.Object.Name != "child" || s.UID != "uid-child" {
						t.Errorf("State() = %+v; want what was known of the object", s)
					}
					if len(seen.take()) != 1 {
						t.Error("want one change")
					}
					if _, ok := f.hub.GateOf(ns, "child"); ok {
						t.Error("GateOf finds a ManagedCluster that is gone")
					}
					f.Delete(gone) // once more is harmless
					if f.hub.Gate(id) != f.gate {
						t.Error("Gate returned another pointer for the same ID")
					}

					f.Add(cluster(tu.UID("another")))
					f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
				})
			})
		}
	}
}

func TestC9RecreatedWithinARelist(t *testing.T) {
	old := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{old}, func(t *testing.T, f *fixture) {
		var seen changes
		f.gate.OnChange(seen.add)
		seen.take()
		f.Update(old, cluster(tu.UID("another")))
		if s := f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed); s.UID != "another" {
			t.Errorf("UID = %s; want that of the new object", s.UID)
		}
		seen.wants(t, "SyncPaused>SyncAllowed")
		f.Update(nil, cluster(tu.UID("a third")))
		seen.wants(t, "SyncAllowed>SyncAllowed") // the same decision of another object
	})
}

func TestC9Duplicates(t *testing.T) {
	a, b := cluster(tu.Paused(true)), tu.ManagedCluster(ns, "duplicate", id)
	inBubble(t, syncgate.Options{}, []any{a, b}, func(_ *testing.T, f *fixture) {
		f.wants(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		f.Delete(a)
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed) // the other decides
		f.Delete(b)
		f.wants(false, syncgate.Gone, syncgate.ReasonDeleted)
	})
}

func TestAnObjectMovesToAnotherCluster(t *testing.T) {
	obj := cluster(tu.Paused(true))
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		moved := tu.With(obj, tu.ClusterID("other"))
		f.Update(obj, moved)
		f.wants(true, syncgate.Gone, syncgate.ReasonDeleted)
		if g, ok := f.hub.GateOf(ns, "child"); !ok || g.ClusterID() != "other" || g.State().Reason != "SyncPaused" {
			t.Errorf("GateOf = %v, %v; want the gate of the other cluster, paused", g, ok)
		}
		f.Update(moved, tu.With(moved, tu.ClusterID("")))
		if s := f.hub.Gate("other").State(); s.Phase != syncgate.Gone {
			t.Errorf("State() = %+v; want Gone", s)
		}
	})
}

func TestC10TheEndClosesForEver(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{FailOpen: true}, []any{obj}, func(t *testing.T, f *fixture) {
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		f.stop()
		f.wants(true, syncgate.Unknown, syncgate.ReasonStopped)
		f.Update(obj, tu.With(obj, tu.Annotated("late", "event")))
		for _, g := range []*syncgate.Gate{f.gate, f.hub.Gate("first asked for after the end")} {
			err := g.Do(t.Context(), func(context.Context) error { t.Error("ran after the end"); return nil })
			if !errors.Is(err, syncgate.ErrStopped) || !errors.Is(err, syncgate.ErrPaused) {
				t.Errorf("Do = %v; want ErrStopped and ErrPaused", err)
			}
			if !g.Paused() || g.State().Reason != syncgate.ReasonStopped {
				t.Errorf("State() = %+v; want Stopped", g.State())
			}
			if err := g.Check(nil); !errors.Is(err, syncgate.ErrStopped) {
				t.Errorf("Check() = %v; want ErrStopped", err)
			}
			if err := g.WaitForSync(t.Context()); !errors.Is(err, syncgate.ErrStopped) {
				t.Errorf("WaitForSync() = %v; want ErrStopped", err)
			}
			if err := g.Run(t.Context()); !errors.Is(err, syncgate.ErrDrivenByHub) {
				t.Errorf("Run of a hub's gate = %v; want ErrDrivenByHub", err)
			}
		}
		if err := f.hub.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
			t.Errorf("second Run = %v; want ErrAlreadyRun", err)
		}
		if f.Handlers() != 0 {
			t.Errorf("%d handlers are left on the informer; want none", f.Handlers())
		}
	})
}

// A callback that blocks holds up the return of Run, and not the closing.
func TestC10ClosedBeforeCallbacksAreWaitedFor(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(_ *testing.T, f *fixture) {
		block := make(chan struct{})
		f.gate.OnChange(func(syncgate.Change) { <-block })
		synctest.Wait()
		go f.stop()
		synctest.Wait()
		f.wants(true, syncgate.Unknown, syncgate.ReasonStopped)
		close(block)
	})
}

func TestC10RunWithAContextThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := syncgate.NewHub(tu.NewSource(), syncgate.Options{FailOpen: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := hub.Run(ctx); err != nil {
			t.Errorf("Run = %v; want nil", err)
		}
		if !hub.Gate(id).Paused() {
			t.Error("open after the end")
		}
	})
}

func TestC10RunOfAStoppedInformer(t *testing.T) {
	source := tu.NewSource()
	source.Stop()
	hub, err := syncgate.NewHub(source, syncgate.Options{FailOpen: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "make a new informer") {
		t.Errorf("Run = %v; want an error that says what to do", err)
	}
	if !hub.Gate(id).Paused() {
		t.Error("open after the end")
	}
}

func TestC11FaultsKeepTheState(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{}, []any{obj}, func(t *testing.T, f *fixture) {
		var seen changes
		f.gate.OnChange(seen.add)
		seen.take()
		if err := errors.Join(f.gate.Check(nil), f.hub.Check(nil)); err != nil {
			t.Errorf("Check() = %v; want nil", err)
		}
		fault := errors.New("connection refused")
		f.SetErr(fault)
		time.Sleep(24 * time.Hour)
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		if !errors.Is(f.gate.Check(nil), fault) || !errors.Is(f.hub.Check(nil), fault) {
			t.Errorf("Check() = %v; want the fault", f.gate.Check(nil))
		}
		f.SetErr(nil)
		if err := f.gate.Check(nil); err != nil {
			t.Errorf("Check() = %v; want nil after the recovery", err)
		}
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		if err := f.gate.Check(nil); err != nil {
			t.Errorf("Check() = %v; want nil: a pause is no fault", err)
		}
		seen.wants(t, "SyncAllowed>SyncPaused")
	})
}

// Who follows nothing any more must not stay open.
func TestC10TheInformerStops(t *testing.T) {
	for _, synced := range []bool{false, true} {
		t.Run(fmt.Sprintf("synced=%v", synced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := tu.NewSource()
				hub, err := syncgate.NewHub(source, syncgate.Options{FailOpen: true})
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- hub.Run(t.Context()) }()
				synctest.Wait()
				if synced {
					source.Add(cluster())
					source.Sync()
					if err := hub.WaitForSync(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				source.Stop()
				if err := <-ended; err == nil || !strings.Contains(err.Error(), "it has stopped") {
					t.Errorf("Run = %v; want that the informer has stopped", err)
				}
				if s := hub.Gate(id).State(); !s.Paused || s.Reason != syncgate.ReasonStopped {
					t.Errorf("State() = %+v; want Stopped", s)
				}
			})
		})
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// logTo returns a context whose logger calls line for each line.
func logTo(ctx context.Context, line func()) context.Context {
	return klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(
		textlogger.Verbosity(9), textlogger.Output(writer(func([]byte) { line() })))))
}

// A log that blocks, or that asks the hub, blocks no gate.
func TestLogsHoldNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var logged atomic.Int64 // by the run and by whoever sends events
		ctx, cancel := context.WithCancel(logTo(t.Context(), func() {
			logged.Add(1)
			_ = hub.Gate("made in a log")
			_ = hub.Check(nil)
		}))
		var run sync.WaitGroup
		run.Add(1)
		go func() { defer run.Done(); _ = hub.Run(ctx) }()
		synctest.Wait()
		obj := cluster()
		source.Add(obj)
		source.Sync()
		if err := hub.WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
		source.Update(obj, tu.With(obj, tu.Paused(true)))
		cancel()
		run.Wait()
		if n := logged.Load(); n < 2 {
			t.Errorf("%d lines were logged; want the sync and the pause", n)
		}
	})
}

func TestC11StaleAfter(t *testing.T) {
	paused := tu.ManagedCluster(ns, "paused", "paused", tu.Paused(true))
	opts := syncgate.Options{StaleAfter: 5 * time.Minute, FailOpen: true}
	inBubble(t, opts, []any{cluster(), paused}, func(t *testing.T, f *fixture) {
		start := time.Now()
		var seen changes
		f.gate.OnChange(seen.add)
		seen.take()
		unknown := f.hub.Gate("unknown")
		for range 10 { // bookmarks, at times of their own
			time.Sleep(4*time.Minute + 33*time.Millisecond)
			f.SetContact(time.Now())
			f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		}
		time.Sleep(5*time.Minute - time.Nanosecond)
		synctest.Wait()
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		s := f.wants(true, syncgate.Unknown, syncgate.ReasonStale)
		if !strings.Contains(s.Message, "5m0s") || s.Since.Sub(start) != 45*time.Minute+330*time.Millisecond {
			t.Errorf("State() = %+v; want how long it was silent, and since when that counts", s)
		}
		if !unknown.Paused() {
			t.Error("FailOpen keeps a stale gate open")
		}
		if err := f.gate.Check(nil); err == nil || !strings.Contains(err.Error(), "silent") {
			t.Errorf("Check() = %v; want the silence", err)
		}
		time.Sleep(time.Hour)
		f.SetContact(time.Now())
		time.Sleep(time.Second)
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		seen.wants(t, "SyncAllowed>Stale", "Stale>SyncAllowed")
		if !f.hub.Gate("paused").Paused() || unknown.Paused() {
			t.Error("after the silence the gates do not show what was known before")
		}
	})
}

// The contact that ends a silence may come before the state that it is about.
func TestC11StaleOpensByStateOnly(t *testing.T) {
	obj := cluster()
	opts := syncgate.Options{StaleAfter: 5 * time.Minute}
	inBubble(t, opts, []any{obj, tu.ManagedCluster(ns, "noisy", "noisy")}, func(t *testing.T, f *fixture) {
		var seen changes
		f.gate.OnChange(seen.add)
		time.Sleep(time.Hour)
		f.wants(true, syncgate.Unknown, syncgate.ReasonStale)
		f.SetErr(errors.New("the list is under way"))
		f.SetContact(time.Now())
		time.Sleep(time.Minute)
		f.wants(true, syncgate.Unknown, syncgate.ReasonStale)
		f.SetErr(nil)
		noisy := tu.ManagedCluster(ns, "noisy", "noisy")
		for range 20 { // a relist on its way through the handler
			f.SetContact(time.Now())
			next := tu.With(noisy, tu.Heartbeat(time.Now()))
			f.Update(noisy, next)
			noisy = next
			time.Sleep(50 * time.Millisecond)
			f.wants(true, syncgate.Unknown, syncgate.ReasonStale)
		}
		f.Update(obj, tu.With(obj, tu.Paused(true)))
		time.Sleep(time.Second)
		f.wants(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		// In between it is told who holds the cluster, while it is stale still.
		seen.wants(t, "NotSynced>SyncAllowed", "SyncAllowed>Stale", "Stale>Stale", "Stale>SyncPaused")

		// Events that never end hold up nothing for ever.
		f.Update(nil, obj)
		time.Sleep(time.Hour)
		for range 200 {
			f.SetContact(time.Now())
			next := tu.With(noisy, tu.Heartbeat(time.Now()))
			f.Update(noisy, next)
			noisy = next
			time.Sleep(50 * time.Millisecond)
		}
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

// The relist of a large hub takes its time on the way to the handler.
func TestC11StaleHubWaitsByItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, syncgate.Options{StaleAfter: time.Minute})
		f.Add(cluster())
		for i := range 20_000 {
			f.Add(tu.ManagedCluster(ns, fmt.Sprint(i), fmt.Sprint("cluster-", i)))
		}
		f.sync()
		time.Sleep(time.Hour)
		f.SetContact(time.Now())
		time.Sleep(time.Second)
		f.wants(true, syncgate.Unknown, syncgate.ReasonStale)
		time.Sleep(time.Second)
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

func TestC11StaleFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := tu.NewSource()
		hub, err := syncgate.NewHub(source, syncgate.Options{StaleAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		// What is logged first comes after the sync, and before anything else.
		ctx, cancel := context.WithCancel(logTo(t.Context(), func() {
			if !hub.Gate(id).Paused() {
				t.Error("a stale gate was open at its start")
			}
		}))
		var run sync.WaitGroup
		run.Add(1)
		go func() { defer run.Done(); _ = hub.Run(ctx) }()
		synctest.Wait()
		source.Add(cluster())
		source.SetContact(time.Now().Add(-time.Hour))
		source.Sync()
		if err := hub.WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
		if s := hub.Gate(id).State(); s.Reason != syncgate.ReasonStale {
			t.Errorf("State() = %+v; want Stale", s)
		}
		cancel()
		run.Wait()
	})
}

func TestC11ContactInTheFuture(t *testing.T) {
	inBubble(t, syncgate.Options{StaleAfter: time.Minute}, []any{cluster()}, func(_ *testing.T, f *fixture) {
		f.SetContact(time.Now().AddDate(300, 0, 0))
		time.Sleep(time.Hour) // of a few looks
		f.wants(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

func TestC13BadInput(t *testing.T) {
	var source *tu.Source
	for name, tc := range map[string]struct {
		make func() error
		want string
	}{
		"nil informer": {func() error { _, err := syncgate.NewHub(nil, syncgate.Options{}); return err }, "informer is nil"},
		"nil pointer":  {func() error { _, err := syncgate.NewHub(source, syncgate.Options{}); return err }, "informer is nil"},
		"negative StaleAfter": {func() error {
			_, err := syncgate.NewHub(tu.NewSource(), syncgate.Options{StaleAfter: -1})
			return err
		}, "StaleAfter is negative"},
		"StaleAfter without LastContact": {func() error {
			plain := struct{ cache.SharedIndexInformer }{tu.NewSource()}
			_, err := syncgate.NewHub(plain, syncgate.Options{StaleAfter: time.Hour})
			return err
		}, "StaleAfter is set"},
		"nil client": {func() error { _, err := syncgate.New(nil, ns, id, syncgate.Options{}); return err }, "client is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.make(); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "syncgate: make a ") {
				t.Errorf("error = %v; want one with %q", err, tc.want)
			}
		})
	}
}

func TestC15SubscribeAndStop(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(t *testing.T, f *fixture) {
		before := runtime.NumGoroutine()
		for range 10_000 {
			f.gate.OnChange(func(syncgate.Change) {})()
			f.hub.OnChange(func(syncgate.Change) {})()
		}
		synctest.Wait()
		if n := syncgate.Subscriptions(f.hub, f.gate); n != 0 {
			t.Errorf("%d subscriptions are kept; want none", n)
		}
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines; want no more than before, %d", after, before)
		}
	})
}

func TestWaitForSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := syncgate.NewHub(tu.NewSource(), syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("the cause")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		if err := hub.Gate(id).WaitForSync(ctx); !errors.Is(err, cause) || !strings.Contains(err.Error(), "call Run") {
			t.Errorf("WaitForSync = %v; want the cause, and that it does not run", err)
		}
		if err := hub.Check(nil); err == nil || !strings.Contains(err.Error(), "call Run") {
			t.Errorf("Check() = %v; want that it does not run", err)
		}

		f := newFixture(t, syncgate.Options{})
		f.SetErr(errors.New("403"))
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		if err := f.hub.WaitForSync(ctx); !errors.Is(err, cause) || !strings.Contains(err.Error(), "403") {
			t.Errorf("WaitForSync = %v; want the cause, and what the server says", err)
		}
	})
}

func TestHubGates(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster(), tu.ManagedCluster("other", "x", "other")}, func(t *testing.T, f *fixture) {
		f.hub.Gate("asked for")
		var ids []string
		for g := range f.hub.Gates() {
			ids = append(ids, string(g.ClusterID()))
		}
		slices.Sort(ids)
		if diff := cmp.Diff([]string{id, "asked for", "other"}, ids); diff != "" {
			t.Errorf("Gates() (-want +got):\n%s", diff)
		}
		if g, ok := f.hub.GateOf(ns, "child"); !ok || g != f.gate {
			t.Errorf("GateOf = %v, %v; want the gate of its cluster", g, ok)
		}
		if g, ok := f.hub.GateOf(ns, "nobody"); ok || g != nil {
			t.Errorf("GateOf = %v, %v; want nil, false", g, ok)
		}
		if f.hub.Name() == f.gate.Name() || !strings.Contains(f.gate.Name(), id) {
			t.Errorf("Name() = %q and %q; want names that differ", f.hub.Name(), f.gate.Name())
		}
	})
}
