// Package syncgatetest has gates for the unit tests of programs that use syncgate. A test
// pauses and resumes clusters by calls, without a server, sockets or sleeping. The gates
// are real ones, so what holds for package syncgate holds here.
//
//	hub := syncgatetest.NewHub(t, "id-of-child")
//	deployer := NewDeployer(hub.Gate("id-of-child")) // what is tested
//	hub.Pause("id-of-child")
//	err := deployer.Deploy(ctx, app) // is refused
//	hub.Resume("id-of-child")
//
// A gate of an agent is a *syncgate.Gate too, so a test of an agent uses the gate of a
// hub with one cluster. Only its Run belongs to the hub.
//
// The methods that change a cluster return when its gate has the new state. Callbacks of
// OnChange, and what a Backlog requeues, come later from other goroutines. In a bubble of
// testing/synctest, wait for them by synctest.Wait.
//
// For a test with an informer and a server, use client-go's fake dynamic client, see the
// example of package informer. It ignores field selectors, so it does not show which
// ManagedClusters a program asks for.
package syncgatetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// Namespace is that of the ManagedClusters. The name of each is its cluster ID.
const Namespace = "clusternet-test"

// Hub is a [syncgate.Hub] that runs, and whose clusters a test changes. All methods may be
// called from any goroutine.
type Hub struct {
	*syncgate.Hub
	tb     testing.TB
	source *testutil.Source

	mu       sync.Mutex // guards clusters, and orders the events
	clusters map[types.UID]*unstructured.Unstructured
}

// NewHub returns a hub that has synced, with a ManagedCluster for each of these cluster
// IDs, which nothing holds. It ends with the test.
func NewHub(tb testing.TB, clusterIDs ...types.UID) *Hub {
	tb.Helper()
	h := NewUnsyncedHub(tb)
	for _, clusterID := range clusterIDs {
		h.Register(clusterID)
	}
	h.Sync()
	return h
}

// NewUnsyncedHub returns a hub that has not synced, as at the start of a program: all
// gates are closed. Sync ends this.
func NewUnsyncedHub(tb testing.TB) *Hub {
	tb.Helper()
	h := &Hub{tb: tb, source: testutil.NewSource(), clusters: map[types.UID]*unstructured.Unstructured{}}
	h.source.SetContact(time.Now())
	var err error
	if h.Hub, err = syncgate.NewHub(h.source, syncgate.Options{}); err != nil {
		tb.Fatalf("syncgatetest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("syncgatetest: run the hub: %v", err)
		}
	})
	// The context is that of the test's end: before that there is a handler.
	if err := h.source.WaitForHandler(ctx); err != nil {
		tb.Fatalf("syncgatetest: %v", err)
	}
	return h
}

// Sync ends the first list, and waits until all gates have it.
func (h *Hub) Sync() {
	h.tb.Helper()
	h.source.Sync()
	if err := h.WaitForSync(context.Background()); err != nil {
		h.tb.Fatalf("syncgatetest: %v", err)
	}
}

// Register creates the ManagedCluster of a cluster, held by nothing. A cluster that was
// deleted gets a new one.
func (h *Hub) Register(clusterID types.UID) {
	h.tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clusters[clusterID] != nil {
		h.tb.Fatalf("syncgatetest: cluster %s is registered already", clusterID)
	}
	object := testutil.ManagedCluster(Namespace, string(clusterID), string(clusterID), testutil.UID(fmt.Sprintf("uid-%d", time.Now().UnixNano())))
	h.clusters[clusterID] = object
	h.source.Add(object)
}

// Pause sets spec.syncPaused of a cluster.
func (h *Hub) Pause(clusterID types.UID) { h.tb.Helper(); h.change(clusterID, testutil.Paused(true)) }

// Resume removes spec.syncPaused. Holds stay.
func (h *Hub) Resume(clusterID types.UID) { h.tb.Helper(); h.change(clusterID, testutil.Unpaused()) }

// Hold sets the hold annotation of an owner.
func (h *Hub) Hold(clusterID types.UID, owner, reason string) {
	h.tb.Helper()
	h.change(clusterID, testutil.Held(owner, reason))
}

// Release removes the hold annotation of an owner.
func (h *Hub) Release(clusterID types.UID, owner string) {
	h.tb.Helper()
	h.change(clusterID, testutil.Released(owner))
}

// Malform sets spec.syncPaused to a text, which closes the gate. Pause or Resume corrects
// it.
func (h *Hub) Malform(clusterID types.UID) {
	h.tb.Helper()
	h.change(clusterID, testutil.Paused("true"))
}

// SetMode sets spec.syncMode, and status.appPusher as the agent reports it.
func (h *Hub) SetMode(clusterID types.UID, mode syncgate.Mode, appPusher bool) {
	h.tb.Helper()
	h.change(clusterID, func(object map[string]any) {
		object["spec"].(map[string]any)["syncMode"] = string(mode)
		object["status"] = map[string]any{"appPusher": appPusher}
	})
}

// Delete deletes the ManagedCluster of a cluster. Its gate keeps the last decision.
func (h *Hub) Delete(clusterID types.UID) {
	h.tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.source.Delete(h.existing(clusterID))
	delete(h.clusters, clusterID)
}

// SetError sets what the server answers instead of events, for example because it is away:
// then Check reports it, and all gates keep their state. Nil: the server answers again.
// Changes reach the gates in any case, so make none while there is an error.
func (h *Hub) SetError(err error) { h.source.SetErr(err) }

func (h *Hub) change(clusterID types.UID, opt testutil.Option) {
	h.tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.existing(clusterID)
	h.clusters[clusterID] = testutil.With(old, opt)
	h.source.Update(old, h.clusters[clusterID])
}

func (h *Hub) existing(clusterID types.UID) *unstructured.Unstructured {
	h.tb.Helper()
	object := h.clusters[clusterID]
	if object == nil {
		h.tb.Fatalf("syncgatetest: there is no cluster %s; pass it to NewHub, or call Register", clusterID)
	}
	return object
}
