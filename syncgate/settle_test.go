//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
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

// What a hub takes for the end of a relist, and what it decides then.

// blockingLog returns a context whose logger blocks at each line that contains text,
// until release is called.
func blockingLog(text string) (ctx context.Context, release func()) {
	released := make(chan struct{})
	return logTo(context.Background(), 2, func(line string) {
		if strings.Contains(line, text) {
			<-released
		}
	}), func() { close(released) }
}

// While a logger blocks the handler, nothing is delivered. That is no end of a relist.
func TestBlockedLoggerIsNoEndOfARelist(t *testing.T) {
	one, two, other := duplicate("a", tu.Paused(true)), duplicate("b"), tu.ManagedCluster(ns, "c", "other-id")
	held := duplicate("b", tu.Held("x", "why"))
	pause := func(f *fixture) { f.Update(other, tu.With(other, tu.Paused(true))) }
	// The relist delivers that the hold has moved from a to b; in between a line is logged.
	test := func(t *testing.T, opts syncgate.Options, begin, line func(f *fixture)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx, release := blockingLog("clusterID=\"other-id\"")
			f := newHub(t, opts)
			f.run(ctx)
			begin(f)
			go func() {
				f.Update(one, duplicate("a"))
				line(f)
				f.Update(two, held)
			}()
			time.Sleep(time.Minute) // far longer than the limit for events that never stop
			if !f.gate.Paused() {
				f.Errorf("State() = %+v while a relist is half delivered; want closed", f.gate.State())
			}
			release()
			f.SetContact(time.Now())
			time.Sleep(time.Second)
			f.want(true, syncgate.Paused, syncgate.ReasonHeld)
			if n := f.gate.Stats().Resumes; n > 0 {
				f.Errorf("the gate opened %d times; want 0", n)
			}
			f.stop()
		})
	}
	relist := func(f *fixture) {
		f.Add(one, two, other)
		f.sync()
		f.Relist()
	}
	t.Run("relist", func(t *testing.T) { test(t, syncgate.Options{}, relist, pause) })
	t.Run("relist, a deletion is logged", func(t *testing.T) {
		test(t, syncgate.Options{}, relist, func(f *fixture) { f.Delete(other) })
	})
	t.Run("end of a silence", func(t *testing.T) {
		test(t, syncgate.Options{StaleAfter: time.Hour}, func(f *fixture) {
			f.Add(one, two, other)
			f.sync()
			time.Sleep(time.Hour)
			synctest.Wait()
			f.want(true, syncgate.Unknown, syncgate.ReasonStale)
			f.SetContact(time.Now())
			f.Relist()
		}, pause)
	})
}

// A cluster that is released by a relist and then deleted is gone as it was on the server:
// released.
func TestReleasedAndDeletedBeforeARelistIsSettled(t *testing.T) {
	held := func(name string) *unstructured.Unstructured { return duplicate(name, tu.Held("x", "why")) }
	missing := func(obj *unstructured.Unstructured) any {
		return cache.DeletedFinalStateUnknown{Key: ns + "/" + obj.GetName(), Obj: obj}
	}
	for name, tt := range map[string]struct {
		initial []any
		events  func(f *fixture)
		paused  bool
	}{
		"released, then deleted": {[]any{held("a")}, func(f *fixture) {
			f.Update(held("a"), duplicate("a"))
			f.Delete(duplicate("a"))
		}, false},
		"deleted, never released": {[]any{held("a")}, func(f *fixture) {
			f.Delete(held("a"))
		}, true},
		"held again before it was deleted": {[]any{held("a")}, func(f *fixture) {
			f.Update(held("a"), duplicate("a"))
			f.Update(duplicate("a"), held("a"))
			f.Delete(held("a"))
		}, true},
		"another holder is missing, which is delivered first": {[]any{held("a"), held("b")}, func(f *fixture) {
			f.Delete(missing(held("b")))
			f.Update(held("a"), duplicate("a"))
			f.Delete(duplicate("a"))
		}, false},
		"another holder is missing, which is delivered last": {[]any{held("a"), held("b")}, func(f *fixture) {
			f.Update(held("a"), duplicate("a"))
			f.Delete(duplicate("a"))
			f.Delete(missing(held("b")))
		}, false},
		"the holder is deleted last": {[]any{held("a"), duplicate("b")}, func(f *fixture) {
			f.Delete(duplicate("b"))
			f.Delete(held("a"))
		}, true},
		"the holder is deleted first": {[]any{held("a"), duplicate("b")}, func(f *fixture) {
			f.Delete(held("a"))
			f.Delete(duplicate("b"))
		}, false},
		"all are missing, the holder is delivered first": {[]any{held("a"), duplicate("b")}, func(f *fixture) {
			f.Delete(missing(held("a")))
			f.Delete(missing(duplicate("b")))
		}, true},
		"missing from a second relist, before the first is settled": {[]any{held("a"), held("b")}, func(f *fixture) {
			f.Update(held("a"), duplicate("a"))
			f.Delete(duplicate("a"))
			f.Relist()
			f.Delete(missing(held("b"))) // it may have been the last
		}, true},
		"what was missing before is no part of a later relist": {[]any{held("a"), duplicate("b")}, func(f *fixture) {
			f.Delete(missing(held("a")))
			time.Sleep(time.Minute) // the first is settled
			f.Relist()
			f.Delete(missing(duplicate("b")))
		}, false},
		"a holder that was deleted before is no part of a later relist": {[]any{held("a"), duplicate("b")}, func(f *fixture) {
			time.Sleep(time.Minute) // the first is settled
			f.Delete(held("a"))     // by a watch
			f.Relist()
			f.Delete(missing(duplicate("b")))
		}, false},
		"deleted between two relists": {[]any{held("a"), duplicate("b")}, func(f *fixture) {
			f.Relist()
			f.Delete(missing(held("a"))) // from the first or from the second
			f.Delete(duplicate("b"))
		}, true},
		"what was deleted before is no part of a later relist": {[]any{duplicate("a"), duplicate("b")}, func(f *fixture) {
			time.Sleep(time.Minute)  // the first is settled
			f.Delete(duplicate("a")) // by a watch
			f.Relist()
			f.Update(duplicate("b"), held("b"))
			f.Delete(missing(held("b")))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, syncgate.Options{}, tt.initial, func(_ *testing.T, f *fixture) {
				before := f.gate.Stats()
				f.Relist()
				tt.events(f)
				time.Sleep(time.Second)
				f.want(tt.paused, syncgate.Gone, syncgate.ReasonDeleted)
				if got := f.gate.Stats(); tt.paused && got.Resumes > before.Resumes {
					f.Errorf("the gate opened %d times; want 0", got.Resumes-before.Resumes)
				}
			})
		})
	}
}

// A holder that is missing from a list by label may be delivered again by the list by field
// that is under way.
func TestNothingIsSettledDuringAFault(t *testing.T) {
	one, holder := duplicate("a"), duplicate("b", tu.Labelled("other"), tu.Held("x", "why"))
	inBubble(t, syncgate.Options{}, []any{one, holder}, func(_ *testing.T, f *fixture) {
		f.Relist()
		f.SetErr(errors.New("the informer lists again"))
		f.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/b", Obj: holder}) // late: it selects by field again
		time.Sleep(time.Minute)
		f.want(true, syncgate.Paused, syncgate.ReasonHeld)
		f.SetErr(nil)
		f.Relist()
		f.Add(holder)
		time.Sleep(time.Minute)
		f.want(true, syncgate.Paused, syncgate.ReasonHeld)
		if n := f.gate.Stats().Resumes; n > 0 {
			f.Errorf("the gate opened %d times; want 0", n)
		}
	})
}

// selecting is a source that selects by label.
type selecting struct{ *tu.Source }

func (selecting) Selection() informer.Selection { return informer.ByLabel }

// What a watch has deleted is not hidden, also if the informer has come to select by label
// before the deletion was delivered.
func TestDeletedHolderIsNotHidden(t *testing.T) {
	one, holder := duplicate("a"), duplicate("b", tu.Labelled("other"), tu.Held("x", "why"))
	for name, tt := range map[string]struct {
		deleted any
		hidden  bool
	}{
		"by a watch":            {holder, false},
		"missing from a relist": {cache.DeletedFinalStateUnknown{Key: ns + "/b", Obj: holder}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := selecting{tu.NewSource()}
				hub, err := syncgate.NewHub(source, syncgate.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer start(context.Background(), t, hub.Run)()
				synctest.Wait()
				source.Add(one, holder)
				source.Sync()
				if err := hub.WaitForSync(t.Context()); err != nil {
					t.Fatal(err)
				}
				source.Relist()
				source.Delete(tt.deleted)
				time.Sleep(time.Second)
				if got := hub.Gate(id).Paused(); got != tt.hidden {
					t.Errorf("Paused() = %t; want %t", got, tt.hidden)
				}
			})
		})
	}
}

// What is missing from a relist is of that relist, however late it is delivered.
func TestLateTombstoneOpensNothingAtOnce(t *testing.T) {
	one, two, three := duplicate("a", tu.Paused(true)), duplicate("b"), duplicate("c", tu.Held("x", "why"))
	inBubble(t, syncgate.Options{}, []any{one, two}, func(_ *testing.T, f *fixture) {
		f.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/a", Obj: one})
		f.want(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		f.Add(three)
		time.Sleep(time.Second)
		f.want(true, syncgate.Paused, syncgate.ReasonHeld)
	})
}

// When a hub has synced, all gates are decided.
func TestSyncDecidesAllGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, duplicate("a"), duplicate("b"))
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := a.gate.State(); s.Paused || s.Reason != syncgate.ReasonSyncAllowed {
			t.Errorf("State() = %+v once it has synced; want SyncAllowed", s)
		}
	})
}

// A relist that is complete and not delivered yet is no quiet.
func TestStaleGateWaitsForTheDeliveryOfARelist(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{StaleAfter: time.Hour}, []any{obj}, func(_ *testing.T, f *fixture) {
		time.Sleep(time.Hour)
		synctest.Wait()
		f.want(true, syncgate.Unknown, syncgate.ReasonStale)
		f.SetContact(time.Now())
		time.Sleep(145 * time.Millisecond)
		f.want(true, syncgate.Unknown, syncgate.ReasonStale)
		f.Relist()
		time.Sleep(120 * time.Millisecond)
		f.Update(obj, cluster(tu.Paused(true)))
		time.Sleep(time.Second)
		f.want(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		if n := f.gate.Stats().Resumes; n > 0 {
			f.Errorf("the gate opened %d times; want 0", n)
		}
	})
}

// The message of a hidden holder says what to do if nobody can correct its label.
func TestHiddenHolderThatIsDeletedIsExplained(t *testing.T) {
	one, holder := duplicate("a"), duplicate("b", tu.Labelled("other"), tu.Held("x", "why"))
	synctest.Test(t, func(t *testing.T) {
		a := newSyncedAgent(t, syncgate.Options{}, one, holder)
		a.server.SetSelectable(false)
		time.Sleep(10 * time.Minute)
		s := a.gate.State()
		if s.Selection != informer.ByLabel || !strings.Contains(s.Message, "restart this program if the ManagedCluster is deleted") {
			t.Errorf("State() = %+v; want the way out of a holder that is hidden and deleted", s)
		}
	})
}
