//go:build go1.25

package syncgate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// A relist is one state: what came and went during an outage opens no gate in
// between.

// duplicate returns another ManagedCluster of the cluster.
func duplicate(name string, opts ...tu.Option) *unstructured.Unstructured {
	return tu.ManagedCluster(ns, name, id, opts...)
}

// outage lets the agent's watch end with an expired history, makes changes that the
// agent can't see, and waits for the relist.
func (a *agent) outage(changes func()) {
	a.Helper()
	a.server.Fail(tu.Refused)
	a.server.SendError(410)
	synctest.Wait()
	changes()
	a.server.Heal()
	for range 10 { // the longest backoff, and more
		time.Sleep(30 * time.Second)
		a.server.Bookmark()
		synctest.Wait()
	}
}

type relistCase struct {
	before     []*unstructured.Unstructured
	outage     func(s *tu.APIServer)
	wantPaused bool
	wantReason string
	opens      uint64
}

// relistCases are changes during an outage, by name.
func relistCases() map[string]relistCase {
	return map[string]relistCase{
		"both duplicates deleted, one was paused": {
			before: []*unstructured.Unstructured{duplicate("a", tu.Paused(true)), duplicate("b")},
			outage: func(s *tu.APIServer) {
				s.Delete(ns, "b")
				s.Delete(ns, "a")
			},
			wantPaused: true, wantReason: syncgate.ReasonDeleted,
		},
		"three deleted, two were open": {
			before: []*unstructured.Unstructured{duplicate("a"), duplicate("b", tu.Held("x", "why")), duplicate("c")},
			outage: func(s *tu.APIServer) {
				for _, name := range []string{"a", "c", "b"} {
					s.Delete(ns, name)
				}
			},
			wantPaused: true, wantReason: syncgate.ReasonDeleted,
		},
		"the hold moved to the later duplicate": {
			before: []*unstructured.Unstructured{duplicate("a", tu.Paused(true)), duplicate("b")},
			outage: func(s *tu.APIServer) {
				s.Update(duplicate("b", tu.Paused(true)))
				s.Update(duplicate("a"))
			},
			wantPaused: true, wantReason: syncgate.ReasonSyncPaused,
		},
		"a held one took the place of a paused one": {
			before: []*unstructured.Unstructured{duplicate("b", tu.Paused(true))},
			outage: func(s *tu.APIServer) {
				s.Create(duplicate("c", tu.Held("x", "why")))
				s.Create(duplicate("a"))
				s.Delete(ns, "b")
			},
			wantPaused: true, wantReason: syncgate.ReasonHeld,
		},
		"a held one joined one that was released": {
			before: []*unstructured.Unstructured{duplicate("a", tu.Paused(true))},
			outage: func(s *tu.APIServer) {
				s.Create(duplicate("b", tu.Held("x", "why")))
				s.Update(duplicate("a"))
			},
			wantPaused: true, wantReason: syncgate.ReasonHeld,
		},
		"the paused one is gone, the other one is left": {
			before:     []*unstructured.Unstructured{duplicate("a", tu.Paused(true)), duplicate("b")},
			outage:     func(s *tu.APIServer) { s.Delete(ns, "a") },
			wantPaused: false, wantReason: syncgate.ReasonSyncAllowed, opens: 1,
		},
	}
}

func TestRelistNeverOpensInBetween(t *testing.T) {
	for name, tt := range relistCases() {
		for _, stale := range []time.Duration{0, 3 * time.Minute} {
			t.Run(fmt.Sprintf("%s, StaleAfter %v", name, stale), func(t *testing.T) {
				for range 5 { // the order of deletions is random
					synctest.Test(t, func(t *testing.T) {
						a := newAgent(t, syncgate.Options{StaleAfter: stale}, tt.before...)
						if err := a.gate.WaitForSync(t.Context()); err != nil {
							t.Fatal(err)
						}
						before := a.gate.Stats().Resumes
						a.outage(func() { tt.outage(a.server) })
						a.eventually(tt.wantPaused, tt.wantReason)
						if got := a.gate.Stats().Resumes - before; got != tt.opens {
							t.Errorf("the gate opened %d times; want %d", got, tt.opens)
						}
					})
				}
			})
		}
	}
}

// During a relist an opening waits until the informer is quiet, but not for ever.
func TestOpeningsWaitForTheEndOfARelist(t *testing.T) {
	one, two := duplicate("a", tu.Paused(true)), duplicate("b")
	inBubble(t, syncgate.Options{}, []any{one, two}, func(t *testing.T, f *fixture) {
		seen := subscribe(f.gate)
		f.Relist()
		f.Delete(one)
		f.want(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		time.Sleep(time.Second)
		seen.want(t, "SyncPaused>SyncAllowed")
	})
	inBubble(t, syncgate.Options{}, []any{one, two}, func(_ *testing.T, f *fixture) {
		f.Relist()
		f.Delete(one)
		for range 400 { // a hub whose events never pause
			f.Update(two, two)
			time.Sleep(20 * time.Millisecond)
		}
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
	inBubble(t, syncgate.Options{}, []any{one, two}, func(t *testing.T, f *fixture) {
		seen := subscribe(f.gate)
		f.Relist()
		f.Delete(one)
		time.Sleep(100 * time.Millisecond)
		f.Relist() // another one before the first is settled
		f.Update(two, duplicate("b", tu.Held("x", "why")))
		time.Sleep(time.Minute)
		f.want(true, syncgate.Paused, syncgate.ReasonHeld)
		seen.want(t, "SyncPaused>Held")
		f.Update(duplicate("b", tu.Held("x", "why")), two) // by the watch again: at once
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
	inBubble(t, syncgate.Options{}, nil, func(_ *testing.T, f *fixture) {
		f.Relist()
		f.Add(two)
		f.want(true, syncgate.Unknown, syncgate.ReasonNotFound)
		f.Delete(two)
		time.Sleep(time.Minute)
		f.want(true, syncgate.Unknown, syncgate.ReasonNotFound)
		f.Relist()
		f.Add(two)
		time.Sleep(time.Minute)
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
	})
}

// plainInformer is an informer that can't tell a relist from a watch.
type plainInformer struct {
	cache.SharedIndexInformer
}

// Over such an informer no gate opens at once: another ManagedCluster of the cluster may be
// held, and be delivered later.
func TestRelistsOfOtherInformers(t *testing.T) {
	one, two := duplicate("a", tu.Paused(true)), duplicate("b")
	for name, tt := range map[string]struct {
		initial []any
		events  func(*tu.Source)
		held    bool
	}{
		"release of the only one": {[]any{one}, func(s *tu.Source) { s.Update(one, duplicate("a")) }, false},
		"a held one joins it": {[]any{one}, func(s *tu.Source) {
			s.Update(one, duplicate("a"))
			time.Sleep(100 * time.Millisecond)
			s.Add(duplicate("b", tu.Held("x", "why")))
		}, true},
		"release of one of two":  {[]any{one, two}, func(s *tu.Source) { s.Update(one, duplicate("a")) }, false},
		"deletion of one of two": {[]any{one, two}, func(s *tu.Source) { s.Delete(one) }, false},
		"a new one":              {nil, func(s *tu.Source) { s.Add(two) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := tu.NewSource()
				hub, err := syncgate.NewHub(plainInformer{source}, syncgate.Options{})
				if err != nil {
					t.Fatal(err)
				}
				stop := start(context.Background(), t, hub.Run)
				defer stop()
				synctest.Wait()
				source.Add(tt.initial...)
				source.Sync()
				if err := hub.WaitForSync(t.Context()); err != nil {
					t.Fatal(err)
				}
				gate := hub.Gate(id)
				tt.events(source)
				if !gate.Paused() {
					t.Error("the gate has opened at once; want that it waits")
				}
				time.Sleep(time.Second)
				if s := gate.State(); s.Paused != tt.held || gate.Stats().Resumes > 0 && tt.held {
					t.Errorf("State() = %+v a second later, after %d openings; want paused = %t", s, gate.Stats().Resumes, tt.held)
				}
			})
		})
	}
}

// What leaves the informer because it selects in another way has not been released.
func TestAnotherSelectionHidesNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, duplicate("a"), duplicate("b", tu.Labelled("other"), tu.Held("x", "why")))
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.eventually(true, syncgate.ReasonHeld)
		a.server.SetSelectable(false) // the stock CRD is put back
		time.Sleep(10 * time.Minute)
		if s := a.gate.State(); s.Selection != informer.ByLabel {
			t.Fatalf("Selection = %v; want ByLabel", s.Selection)
		} else if !strings.Contains(s.Message, ns+"/b counts as it was last read") {
			t.Errorf("Message = %q; want that ManagedCluster b counts as it was last read", s.Message)
		}
		a.eventually(true, syncgate.ReasonHeld)

		a.server.SetSelectable(true) // it is delivered again, and released
		time.Sleep(10 * time.Minute)
		a.eventually(true, syncgate.ReasonHeld)
		if got := a.gate.Stats().Resumes; got != 0 {
			t.Errorf("the gate opened %d times; want 0", got)
		}
		a.server.Update(duplicate("b", tu.Labelled("other")))
		a.eventually(false, syncgate.ReasonSyncAllowed)
	})
}

func TestHiddenHolderIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, duplicate("a"), duplicate("b", tu.Labelled("other"), tu.Held("x", "why")))
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.server.SetSelectable(false)
		time.Sleep(10 * time.Minute)
		a.server.Delete(ns, "b") // nobody sees it
		time.Sleep(10 * time.Minute)
		a.eventually(true, syncgate.ReasonHeld)
		a.server.SetSelectable(true)
		a.eventually(false, syncgate.ReasonSyncAllowed)
	})
}

// A ManagedCluster whose label is right would be selected by label as well, so its
// absence from a relist is a deletion.
func TestDeletedWhileTheSelectionChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, duplicate("a"), duplicate("b", tu.Held("x", "why")))
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.outage(func() {
			a.server.SetSelectable(false)
			a.server.Delete(ns, "b")
		})
		a.eventually(false, syncgate.ReasonSyncAllowed)
	})
}

// A flag that can't be read and vanishes with the field of the CRD still pauses, like
// one that is true.
func TestMalformedFlagVanishesWithTheField(t *testing.T) {
	for name, before := range map[string][]tu.Option{
		"malformed flag":              {tu.Paused("true")},
		"true flag":                   {tu.Paused(true)},
		"true flag, malformed hold":   {tu.Paused(true), tu.Annotated(syncgate.HoldPrefix+"x", int64(1))},
		"null flag, malformed hold":   {tu.Paused(nil), tu.Annotated(syncgate.HoldPrefix+"x", int64(1))},
		"malformed flag, hold beside": {tu.Paused(int64(1)), tu.Held("x", "why")},
	} {
		t.Run(name, func(t *testing.T) {
			obj := cluster(before...)
			inBubble(t, syncgate.Options{}, []any{obj}, func(_ *testing.T, f *fixture) {
				lost := obj.DeepCopy()
				unstructured.RemoveNestedField(lost.Object, "spec", "syncPaused")
				f.Update(obj, lost)
				f.want(true, syncgate.Paused, syncgate.ReasonFieldNotVisible)
				released := lost.DeepCopy()
				unstructured.RemoveNestedField(released.Object, "metadata", "annotations")
				f.Update(lost, released) // changes no generation
				f.want(true, syncgate.Paused, syncgate.ReasonFieldNotVisible)
				f.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/child", Obj: released})
				f.want(true, syncgate.Gone, syncgate.ReasonDeleted)
			})
		})
	}
}
