//go:build go1.25

package informer_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/features"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

const (
	namespace = "clusternet-7xk2p"
	clusterID = "5f2b1a9e-8c3d-4e6f-9a0b-1c2d3e4f5a6b"

	byField = " " + namespace + " fieldSelector=spec.clusterId=" + clusterID
	byLabel = " " + namespace + " labelSelector=clusters.clusternet.io/cluster-id=" + clusterID
)

// eachWay runs a test in a bubble of its own for each of client-go's ways to
// make an initial read, whichever of them is its default.
func eachWay(t *testing.T, test func(t *testing.T, way way)) {
	t.Helper()
	gates := features.FeatureGates()
	before := gates.Enabled(features.WatchListClient)
	set := func(on bool) {
		if err := gates.(interface {
			Set(features.Feature, bool) error
		}).Set(features.WatchListClient, on); err != nil {
			t.Fatal(err)
		}
	}
	defer set(before)
	for _, way := range []way{listWatch, watchList} {
		t.Run(string(way), func(t *testing.T) {
			set(way == watchList)
			synctest.Test(t, func(t *testing.T) { test(t, way) })
		})
	}
}

type way string

const (
	listWatch way = "LIST+WATCH"
	watchList way = "WatchList"
)

// read returns the requests of an initial read that succeeds, watch included.
func (w way) read(selection string) []string {
	if w == watchList {
		return []string{"watchlist" + selection}
	}
	return []string{"list" + selection, "watch" + selection}
}

// refused returns the requests of an initial read that the server refuses.
func (w way) refused(selection string) []string { return w.read(selection)[:1] }

// newServer returns a server that is checked and closed at the end of the test.
func newServer(t *testing.T, objs ...*unstructured.Unstructured) *testutil.APIServer {
	t.Helper()
	server := testutil.NewAPIServer(objs...)
	t.Cleanup(func() {
		pass(5 * time.Second) // client-go 0.32 sleeps out a Retry-After
		if n := server.Watches(); n != 0 {
			t.Errorf("watches open after the end = %d; want 0", n)
		}
		server.Close()
	})
	return server
}

func forCluster(t *testing.T, server *testutil.APIServer, sel informer.Selection) *informer.Informer {
	t.Helper()
	inf, err := informer.ForCluster(server.Client(), namespace, types.UID(clusterID), informer.Options{Selection: sel})
	if err != nil {
		t.Fatal(err)
	}
	return inf
}

// run runs inf until the end of the test or until stop is called. It fails the
// test if inf takes long to stop, or if an initial read was not consistent.
func run(t *testing.T, server *testutil.APIServer, inf *informer.Informer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		inf.RunWithContext(ctx)
	}()
	stop = func() {
		t.Helper()
		cancel()
		begin := time.Now()
		<-done
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("RunWithContext returned %v after the end of its context; want at most 2s", took)
		}
	}
	t.Cleanup(func() {
		stop()
		for _, r := range server.Requests() {
			if rv := r.Query.Get("resourceVersion"); r.Verb != testutil.Watch && rv != "" {
				t.Errorf("%v has resourceVersion %q; want none, for a consistent read", r, rv)
			}
		}
	})
	synctest.Wait()
	return stop
}

// pass lets time pass, and then all that is due happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// wire returns the requests since the last call of it.
func wire(server *testutil.APIServer) []string {
	out := []string{}
	for _, r := range server.Requests() {
		out = append(out, r.String())
	}
	server.ForgetRequests()
	return out
}

func wantWire(t *testing.T, server *testutil.APIServer, when string, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, wire(server)); diff != "" {
		t.Errorf("requests %s (-want +got):\n%s", when, diff)
	}
}

func wantStore(t *testing.T, inf *informer.Informer, when string, want ...string) {
	t.Helper()
	got := inf.GetStore().ListKeys()
	slices.Sort(got)
	for i := range want {
		want[i] = namespace + "/" + want[i]
	}
	if !slices.Equal(got, want) {
		t.Errorf("store %s = %v; want %v", when, got, want)
	}
}

func wantSelection(t *testing.T, inf *informer.Informer, when string, want informer.Selection) {
	t.Helper()
	if got := inf.Selection(); got != want {
		t.Errorf("Selection() %s = %v; want %v", when, got, want)
	}
}

func wantHealthy(t *testing.T, inf *informer.Informer, when string) {
	t.Helper()
	if !inf.HasSynced() {
		t.Errorf("HasSynced() %s = false; want true", when)
	}
	if err := inf.Err(); err != nil {
		t.Errorf("Err() %s = %v; want nil", when, err)
	}
}

func mine(name string, opts ...testutil.Option) *unstructured.Unstructured {
	return testutil.ManagedCluster(namespace, name, clusterID, opts...)
}
