package placement_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/placement"
	"github.com/clusternet/syncgate/syncgate"
)

// functionsOf returns the functions of the package documentation.
func functionsOf(hub *syncgate.Hub) (paused, exists func(cluster string) bool) {
	gateOf := func(cluster string) (*syncgate.Gate, bool) {
		namespace, name, _ := strings.Cut(cluster, "/")
		return hub.GateOf(namespace, name)
	}
	paused = func(cluster string) bool {
		gate, ok := gateOf(cluster)
		return ok && gate.Paused()
	}
	exists = func(cluster string) bool {
		_, ok := gateOf(cluster)
		return ok
	}
	return paused, exists
}

// running returns a hub that runs and has synced with objs. stop ends Run and waits
// for it.
func running(t *testing.T, objs ...any) (hub *syncgate.Hub, source *tu.Source, stop func()) {
	t.Helper()
	source = tu.NewSource()
	hub, err := syncgate.NewHub(source, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v; want nil", err)
		}
	})
	t.Cleanup(stop)
	wait, cancelWait := context.WithTimeout(context.Background(), time.Minute)
	defer cancelWait()
	if err := source.WaitForHandler(wait); err != nil {
		t.Fatal(err)
	}
	source.Add(objs...)
	source.Sync()
	if err := hub.WaitForSync(wait); err != nil {
		t.Fatal(err)
	}
	return hub, source, stop
}

func TestKeepWithAHub(t *testing.T) {
	const ns = "clusternet-abcde"
	open := tu.ManagedCluster(ns, "open", "id-open")
	paused := tu.ManagedCluster(ns, "paused", "id-paused", tu.Paused(true))
	malformed := tu.ManagedCluster(ns, "malformed", "id-malformed", tu.Paused("yes"))
	hub, source, stop := running(t, open, paused, malformed)
	isPaused, exists := functionsOf(hub)
	wants := func(when, current, target, want string) {
		t.Helper()
		got, err := placement.Keep(bind(current), bind(target), isPaused, exists)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(got.Clusters, " ") != want {
			t.Errorf("%s: Keep([%s], [%s]) = %v; want [%s]", when, current, target, got.Clusters, want)
		}
	}
	const all = ns + "/open " + ns + "/paused " + ns + "/malformed"
	wants("bound", all, "", ns+"/paused "+ns+"/malformed")
	wants("not bound", "", all, ns+"/open")
	wants("no such cluster", "other/paused", "", "")
	if placement.Feasible(ns+"/paused", nil, isPaused) || !placement.Feasible(ns+"/open", nil, isPaused) {
		t.Error("Feasible(paused), Feasible(open) = true, or false; want false and true")
	}
	source.Update(paused, tu.With(paused, tu.Unpaused()))
	wants("resumed", all, "", ns+"/malformed")
	source.Delete(malformed)
	wants("deleted", all, "", "")
	stop()
	wants("the hub has stopped", all, "", ns+"/open "+ns+"/paused")
	wants("the hub has stopped", "", all, ns+"/malformed") // deleted, and the scheduler does not know it yet
}
