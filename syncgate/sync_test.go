//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that a gate is closed until the state of the server is known,
// and that it is decided from the whole first list.

func TestClosedUntilKnown(t *testing.T) {
	for _, failOpen := range []bool{false, true} {
		t.Run(fmt.Sprintf("failOpen=%v", failOpen), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := syncgate.Options{FailOpen: failOpen}
				newHub(t, opts).want(!failOpen, syncgate.Unknown, syncgate.ReasonNotSynced)

				f := newFixture(t, opts)
				f.want(!failOpen, syncgate.Unknown, syncgate.ReasonNotSynced)
				f.Add(tu.ManagedCluster(ns, "other", "another-cluster"))
				f.sync()
				f.want(!failOpen, syncgate.Unknown, syncgate.ReasonNotFound)

				open := cluster()
				f.Add(open)
				f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
				f.Update(open, tu.With(open, tu.Paused("yes")))
				f.want(true, syncgate.Paused, syncgate.ReasonMalformed)
				f.stop()
				f.want(true, syncgate.Unknown, syncgate.ReasonStopped)
			})
		})
	}
}

// The first of two duplicates is open. If it were published before the second is
// known, the gate would open for a moment.
func TestNothingIsPublishedBeforeTheWholeFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, syncgate.Options{})
		var got recorder
		f.gate.OnChange(got.change)
		f.Add(cluster())
		f.want(true, syncgate.Unknown, syncgate.ReasonNotSynced)
		if f.hub.HasSynced() || f.gate.HasSynced() {
			t.Error("HasSynced() = true; want false before the first list is complete")
		}
		f.Add(tu.ManagedCluster(ns, "duplicate", id, tu.Paused(true)))
		f.want(true, syncgate.Unknown, syncgate.ReasonNotSynced)
		f.sync()
		f.want(true, syncgate.Paused, syncgate.ReasonSyncPaused)
		got.want(t, "NotSynced>SyncPaused")
	})
}

func TestWaitForSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t, syncgate.Options{}).hub
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errCause)
		defer cancel()
		if err := hub.Gate(id).WaitForSync(ctx); !errors.Is(err, errCause) || !strings.Contains(err.Error(), "Run was not called") {
			t.Errorf("WaitForSync = %v; want the cause, and that Run was not called", err)
		}
		if err := hub.Check(nil); err == nil || !strings.Contains(err.Error(), "Run was not called") {
			t.Errorf("Check() = %v; want that Run was not called", err)
		}

		f := newFixture(t, syncgate.Options{})
		f.SetErr(errors.New("403"))
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Minute, errCause)
		defer cancel()
		if err := f.hub.WaitForSync(ctx); !errors.Is(err, errCause) || !strings.Contains(err.Error(), "403") {
			t.Errorf("WaitForSync = %v; want the cause, and the error of the server", err)
		}
	})
}
