//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// agent is the gate of an agent in a bubble of synctest, with a real client and a
// real informer over an API server that the test drives.
type agent struct {
	*testing.T
	server *tu.APIServer
	gate   *syncgate.Gate
	stop   func() time.Duration // ends Run and tells how long that took
}

func newAgent(t *testing.T, opts syncgate.Options, objs ...*unstructured.Unstructured) *agent {
	t.Helper()
	server := tu.NewAPIServer(objs...)
	gate, err := syncgate.New(server.Client(), ns, id, opts)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{T: t, server: server, gate: gate}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gate.Run(ctx) }()
	a.stop = sync.OnceValue(func() time.Duration {
		start := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v; want nil", err)
		}
		return time.Since(start)
	})
	t.Cleanup(func() { a.stop(); server.Close() })
	return a
}

// eventually waits for the gate to be as wanted, a few minutes at the most: that
// is how long a backoff may take.
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
		if !a.gate.Paused() || a.gate.State().Reason != syncgate.ReasonNotSynced {
			t.Errorf("before the sync State() = %+v; want NotSynced", a.gate.State())
		}
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var seen changes
		a.gate.OnChange(seen.add)
		seen.wants(t, "NotSynced>SyncPaused")
		if s := a.gate.State(); s.Selection != informer.ByField {
			t.Errorf("Selection = %v; want ByField", s.Selection)
		}

		time.Sleep(4 * time.Minute) // nothing periodic
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
		seen.wants(t, "SyncPaused>SyncAllowed")
		if took := a.stop(); took > 0 {
			t.Errorf("Run returned after %v; want at once", took)
		}
	})
}

func TestAgentRunIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, cluster())
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.gate.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
			t.Errorf("second Run = %v; want ErrAlreadyRun", err)
		}
		a.eventually(false, syncgate.ReasonSyncAllowed) // and the first is unharmed
	})
}

// C14: where the label selects, what it brings still counts by its spec only, and
// people are told.
func TestC14AgentByLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{Informer: informer.Options{Selection: informer.ByLabel}},
			tu.ManagedCluster(ns, "impostor", "another", tu.Labelled(id), tu.Paused(false)))
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := a.gate.State()
		if s.Reason != syncgate.ReasonNotFound || s.Selection != informer.ByLabel || !strings.Contains(s.Message, "by label") {
			t.Errorf("State() = %+v; want NotFound, and that the label selects", s)
		}
		a.server.Create(cluster())
		a.eventually(false, syncgate.ReasonSyncAllowed)
		// Leaving the selection looks like a deletion: the decision stays.
		a.server.Update(cluster(tu.Labelled("")))
		a.eventually(false, syncgate.ReasonDeleted)
	})
}

func TestC14UpgradedCRDKeepsTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, cluster(tu.Paused(true)))
		a.server.SetSelectable(false)
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var seen changes
		a.gate.OnChange(seen.add)
		seen.wants(t, "NotSynced>SyncPaused")
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
		seen.wants(t)
	})
}

// A CRD that learns spec.syncPaused ends its watches a second later. A pause within
// that second is shown without the field, and never again.
func TestC14PauseWhileTheCRDChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obj := cluster()
		a := newAgent(t, syncgate.Options{}, obj)
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		a.server.Update(tu.With(obj, tu.Annotated("event", "under the old schema")))
		synctest.Wait()
		a.server.Rewrite(cluster(tu.Paused(true)))
		time.Sleep(time.Second)
		a.server.CutWatches()
		start := time.Now()
		a.eventually(true, syncgate.ReasonSyncPaused)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("seen after %v; want a read at once", took)
		}
	})
}

func TestC11FaultsOfTheServer(t *testing.T) {
	for name, fault := range map[string]tu.Fault{
		"refused": tu.Refused, "reset": tu.Reset, "eof": tu.EOF,
		"401": tu.Status(401), "403": tu.Status(403), "404": tu.Status(404), "410": tu.Status(410),
		"429": tu.Status(429), "500": tu.Status(500), "503": tu.Status(503),
		"410 in the stream": tu.InStream(410), "401 in the stream": tu.InStream(401),
		"hang": tu.Hang,
	} {
		for _, paused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, paused=%v", name, paused), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					obj := cluster(tu.Paused(paused))
					reason := map[bool]string{false: syncgate.ReasonSyncAllowed, true: syncgate.ReasonSyncPaused}
					a := newAgent(t, syncgate.Options{}, obj)
					if err := a.gate.WaitForSync(t.Context()); err != nil {
						t.Fatal(err)
					}
					var seen changes
					a.gate.OnChange(seen.add)
					seen.take()

					if name == "hang" {
						// What hangs, hangs until it ends; then there is more of it.
						a.server.Fail(fault.Times(1))
					} else {
						a.server.Fail(fault)
					}
					a.server.CutWatches()
					a.server.Update(tu.With(obj, tu.Paused(!paused))) // unseen
					time.Sleep(time.Minute)
					synctest.Wait()
					if s := a.gate.State(); s.Paused != paused || s.Reason != reason[paused] {
						t.Errorf("during the fault State() = %+v; want the last known", s)
					}
					if name != "hang" && !strings.Contains(name, "410 in") {
						if err := a.gate.Check(nil); err == nil {
							t.Error("Check() = nil during the fault; want it")
						}
					}
					seen.wants(t)
					if name == "hang" {
						a.stop()
						return
					}
					a.server.Heal()
					a.eventually(!paused, reason[!paused])
					if err := a.gate.Check(nil); err != nil {
						t.Errorf("Check() = %v after the recovery; want nil", err)
					}
					seen.wants(t, reason[paused]+">"+reason[!paused])
				})
			})
		}
	}
}

func TestC9RecreatedUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{}, cluster(tu.Paused(true)))
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var seen changes
		a.gate.OnChange(seen.add)
		seen.take()
		a.server.Fail(tu.InStream(410).Times(1))
		a.server.CutWatches()
		a.server.Delete(ns, "child")
		a.server.Create(cluster(tu.UID("another")))
		a.eventually(false, syncgate.ReasonSyncAllowed)
		seen.wants(t, "SyncPaused>SyncAllowed")
		if uid := a.gate.State().UID; uid != "another" {
			t.Errorf("UID = %s; want that of the new object", uid)
		}
	})
}

func TestC10RunReturnsWhateverTheServerDoes(t *testing.T) {
	for name, fault := range map[string]tu.Fault{
		"hanging": tu.Hang, "list hangs": tu.Hang.On(tu.List), "watch hangs": tu.Hang.On(tu.Watch, tu.WatchList),
		"refused": tu.Refused, "watch refused": tu.Refused.On(tu.Watch), "429": tu.Status(429).RetryAfter(time.Minute),
		"500": tu.Status(500), "healthy": tu.Hang.Times(0).On("none"),
	} {
		for _, after := range []time.Duration{0, time.Second, time.Hour} {
			t.Run(fmt.Sprintf("%s, after %v", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAgent(t, syncgate.Options{}, cluster())
					a.server.Fail(fault)
					time.Sleep(after)
					synctest.Wait()
					if took := a.stop(); took > stopBound {
						t.Errorf("Run returned %v after its context ended; want %v at most", took, stopBound)
					}
					if !a.gate.Paused() {
						t.Error("open after the end")
					}
					// client-go 0.32 sleeps out a Retry-After, come what may.
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

const stopBound = 2 * time.Second

// deafClient does not heed the end of a context.
type deafClient struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	wake chan struct{}
}

func (c deafClient) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}
func (c deafClient) Namespace(string) dynamic.ResourceInterface { return c }
func (c deafClient) IsWatchListSemanticsUnSupported() bool      { return true }
func (c deafClient) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	<-c.wake
	return nil, errors.New("woken")
}

func TestC10RunReturnsWhateverTheClientDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := deafClient{wake: make(chan struct{})}
		gate, err := syncgate.New(client, ns, id, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := gate.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start) - time.Minute; took > stopBound {
			t.Errorf("Run returned %v after its context ended; want %v at most", took, stopBound)
		}
		close(client.wake)
	})
}

func TestC11BookmarksAreContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, syncgate.Options{StaleAfter: 3 * time.Minute}, cluster())
		if err := a.gate.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			time.Sleep(2 * time.Minute)
			a.server.Bookmark()
			synctest.Wait()
			a.eventually(false, syncgate.ReasonSyncAllowed)
		}
		time.Sleep(3 * time.Minute)
		a.eventually(true, syncgate.ReasonStale)
		a.server.Bookmark()
		start := time.Now()
		a.eventually(false, syncgate.ReasonSyncAllowed)
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("open %v after the server was heard again", took)
		}
	})
}

func TestC13AgentBadInput(t *testing.T) {
	server := tu.NewAPIServer()
	defer server.Close()
	client := server.Client()
	var none *dynamic.DynamicClient
	for name, tc := range map[string]struct {
		client    dynamic.Interface
		namespace string
		id        string
		opts      syncgate.Options
		want      string
	}{
		"nil client":          {nil, ns, id, syncgate.Options{}, "client is nil"},
		"nil pointer":         {none, ns, id, syncgate.Options{}, "client is nil"},
		"empty namespace":     {client, "", id, syncgate.Options{}, "namespace"},
		"malformed namespace": {client, "a/b", id, syncgate.Options{}, "namespace"},
		"empty ID":            {client, ns, "", syncgate.Options{}, "cluster ID is empty"},
		"impossible ID":       {client, ns, "a b", syncgate.Options{}, "impossible"},
		"long ID":             {client, ns, strings.Repeat("x", 64), syncgate.Options{}, "impossible"},
		"negative StaleAfter": {client, ns, id, syncgate.Options{StaleAfter: -time.Second}, "StaleAfter is negative"},
		"unknown selection":   {client, ns, id, syncgate.Options{Informer: informer.Options{Selection: 9}}, "Selection(9)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := syncgate.New(tc.client, tc.namespace, types.UID(tc.id), tc.opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "syncgate: make a gate: ") {
				t.Errorf("New = %v; want an error with %q", err, tc.want)
			}
		})
	}
	t.Run("a hub has no selection", func(t *testing.T) {
		inf, err := informer.ForHub(client, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := syncgate.NewHub(inf, syncgate.Options{Informer: informer.Options{Selection: informer.ByField}}); err == nil {
			t.Error("NewHub took options of an informer")
		}
	})
}

func TestC15StartAndStop(t *testing.T) {
	server := tu.NewAPIServer(cluster())
	defer server.Close()
	leaks := goleak.IgnoreCurrent()
	for range 200 {
		gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- gate.Run(ctx) }()
		if err := gate.WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	goleak.VerifyNone(t, leaks)
}

// A hub runs an informer of ours, and leaves alone one that runs already.
func TestHubRunsItsInformer(t *testing.T) {
	for _, runs := range []bool{false, true} {
		t.Run(fmt.Sprintf("runs already: %v", runs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := tu.NewAPIServer(cluster(), tu.ManagedCluster("other", "child", "other", tu.Paused(true)))
				defer server.Close()
				inf, err := informer.ForHub(server.Client(), informer.Options{})
				if err != nil {
					t.Fatal(err)
				}
				var ended sync.WaitGroup
				defer ended.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if runs {
					ended.Add(1)
					go func() { defer ended.Done(); inf.Run(ctx.Done()) }()
					synctest.Wait()
				}
				hub, err := syncgate.NewHub(inf, syncgate.Options{StaleAfter: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				ended.Add(1)
				go func() {
					defer ended.Done()
					if err := hub.Run(ctx); err != nil {
						t.Errorf("Run = %v", err)
					}
				}()
				if err := hub.WaitForSync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if hub.Gate(id).Paused() || !hub.Gate("other").Paused() {
					t.Errorf("Paused() = %v and %v; want false and true", hub.Gate(id).Paused(), hub.Gate("other").Paused())
				}
				if err := hub.Check(nil); err != nil {
					t.Errorf("Check() = %v", err)
				}
			})
		})
	}
}
