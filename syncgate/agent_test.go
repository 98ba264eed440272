//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check the gate of an agent: it asks the server for its own ManagedCluster
// only, by field or by label, and a changed CRD loses no pause.

// agent is the gate of an agent in a bubble, with a real client and a real informer
// over a fake API server.
type agent struct {
	*testing.T
	server *tu.APIServer
	gate   *syncgate.Gate
	stop   func() // ends Run and waits for it
}

// newAgent returns an agent that runs. The server has objs.
func newAgent(t *testing.T, opts syncgate.Options, objs ...*unstructured.Unstructured) *agent {
	t.Helper()
	server := tu.NewAPIServer(objs...)
	t.Cleanup(server.Close)
	gate, err := syncgate.New(server.Client(), ns, id, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &agent{T: t, server: server, gate: gate, stop: start(context.Background(), t, gate.Run)}
}

// newSyncedAgent returns an agent that runs and has synced.
func newSyncedAgent(t *testing.T, opts syncgate.Options, objs ...*unstructured.Unstructured) *agent {
	t.Helper()
	a := newAgent(t, opts, objs...)
	a.sync()
	return a
}

func (a *agent) sync() {
	a.Helper()
	if err := a.gate.WaitForSync(a.Context()); err != nil {
		a.Fatal(err)
	}
}

// wantStop ends Run, which must return within bound.
func (a *agent) wantStop(bound time.Duration) {
	a.Helper()
	begin := time.Now()
	a.stop()
	if took := time.Since(begin); took > bound {
		a.Errorf("Run returned %v after its context ended; want %v at most", took, bound)
	}
}

// eventually waits for a state of the gate, a few minutes at most: a backoff may take
// that long.
func (a *agent) eventually(paused bool, reason string) {
	a.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		synctest.Wait()
		if s := a.gate.State(); s.Paused == paused && s.Reason == reason && a.gate.Paused() == paused {
			return
		}
	}
	a.Errorf("State() = %+v; want paused %v, %s", a.gate.State(), paused, reason)
}

func TestAgentStartsWithOneReadAndFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obj := cluster(tu.Paused(true))
		a := newAgent(t, syncgate.Options{}, obj,
			tu.ManagedCluster(ns, "neighbour", "another"),
			tu.ManagedCluster(ns, "impostor", "another", tu.Labelled(id)))
		a.sync()
		var got recorder
		a.gate.OnChange(got.change)
		got.want(t, "NotSynced>SyncPaused")
		if s := a.gate.State(); s.Selection != informer.ByField {
			t.Errorf("Selection = %v; want ByField", s.Selection)
		}

		time.Sleep(4 * time.Minute) // no periodic requests
		var verbs []string
		for _, r := range a.server.Requests() {
			verbs = append(verbs, r.String())
		}
		selected := ns + " fieldSelector=spec.clusterId=" + id
		want := []string{"list " + selected, "watch " + selected}
		if len(verbs) == 1 {
			want = []string{"watchlist " + selected} // client-go 0.35 and later
		}
		if diff := cmp.Diff(want, verbs); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}

		a.server.Update(tu.With(obj, tu.Unpaused()))
		got.want(t, "SyncPaused>SyncAllowed")
		a.wantStop(0)
	})
}

func TestAgentRunIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSyncedAgent(t, syncgate.Options{}, cluster())
		if err := a.gate.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
			t.Errorf("second Run = %v; want ErrAlreadyRun", err)
		}
		a.eventually(false, syncgate.ReasonSyncAllowed) // the first Run goes on
	})
}

// With the label as selector, an object still counts for the cluster that its spec
// names, and the message names the selection.
func TestAgentByLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{Informer: informer.Options{Selection: informer.ByLabel}},
			tu.ManagedCluster(ns, "impostor", "another", tu.Labelled(id), tu.Paused(false)))
		a.sync()
		s := a.gate.State()
		if s.Reason != syncgate.ReasonNotFound || s.Selection != informer.ByLabel || !strings.Contains(s.Message, "by label") {
			t.Errorf("State() = %+v; want NotFound, and the selection by label", s)
		}
		a.server.Create(cluster())
		a.eventually(false, syncgate.ReasonSyncAllowed)
		// An object that leaves the selection arrives as deleted. The decision stays.
		a.server.Update(cluster(tu.Labelled("")))
		a.eventually(false, syncgate.ReasonDeleted)
	})
}

func TestUpgradedCRDKeepsTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, cluster(tu.Paused(true)))
		a.server.SetSelectable(false)
		a.sync()
		var got recorder
		a.gate.OnChange(got.change)
		got.want(t, "NotSynced>SyncPaused")
		for selectable, want := range map[bool]informer.Selection{true: informer.ByField, false: informer.ByLabel} {
			a.server.SetSelectable(selectable)
			for range 600 {
				time.Sleep(100 * time.Millisecond)
				if !a.gate.Paused() {
					t.Fatal("the gate opened while the selection changed")
				}
				if a.gate.State().Selection == want {
					break
				}
			}
			if got := a.gate.State().Selection; got != want {
				t.Errorf("Selection = %v with a CRD that has the field selectable: %v", got, selectable)
			}
		}
		got.want(t)
	})
}

// A CRD that gets spec.syncPaused ends its watches a second later. A watch sends a
// pause within that second once, without the field.
func TestPauseWhileTheCRDChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obj := cluster()
		a := newSyncedAgent(t, syncgate.Options{}, obj)
		time.Sleep(time.Minute)
		a.server.Update(tu.With(obj, tu.Annotated("event", "under the old schema")))
		synctest.Wait()
		a.server.Rewrite(cluster(tu.Paused(true)))
		time.Sleep(time.Second)
		a.server.CutWatches()
		start := time.Now()
		a.eventually(true, syncgate.ReasonSyncPaused)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("paused after %v; want a read at once", took)
		}
	})
}
