//go:build go1.25

package informer_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

func TestReadsItsOwnObjectByFieldAndNothingElse(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		server := newServer(t,
			mine("own"),
			testutil.ManagedCluster(namespace, "other", "another-id"),
			testutil.ManagedCluster("elsewhere", "own", clusterID),
			// Its label names our cluster, but its spec another.
			mine("mislabelled", testutil.ClusterID("another-id")))
		inf := forCluster(t, server, informer.Auto)
		wantSelection(t, inf, "before Run", informer.Auto)
		run(t, server, inf)

		wantHealthy(t, inf, "after the start")
		wantSelection(t, inf, "after the start", informer.ByField)
		wantStore(t, inf, "after the start", "own")
		for _, r := range server.Requests() {
			if r.Verb == testutil.Watch && r.Query.Get("resourceVersion") != "104" {
				t.Errorf("%v begins at resourceVersion %q; want that of the list, 104", r, r.Query.Get("resourceVersion"))
			}
		}
		wantWire(t, server, "at the start", way.read(byField))

		pass(4 * time.Minute)
		wantWire(t, server, "in the four minutes after", []string{})

		// A server ends each watch after five to ten minutes.
		pass(30 * time.Minute)
		restarts := wire(server)
		if len(restarts) < 3 || len(restarts) > 7 || slices.ContainsFunc(restarts, func(r string) bool { return r != "watch"+byField }) {
			t.Errorf("requests in half an hour = %q; want 3 to 7 of %q", restarts, "watch"+byField)
		}
		wantHealthy(t, inf, "after half an hour")
	})
}

func TestHubReadsEverything(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		server := newServer(t, mine("own"), testutil.ManagedCluster("elsewhere", "b", "another-id"))
		server.SetSelectable(false)
		inf, err := informer.ForHub(server.Client(), informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		run(t, server, inf)
		wantHealthy(t, inf, "after the start")
		if got := len(inf.GetStore().List()); got != 2 {
			t.Errorf("objects in the store = %d; want 2", got)
		}
		server.CutWatches()
		pass(time.Minute)
		wantSelection(t, inf, "of a hub", informer.Auto)
		want := append(way.read(""), "watch")
		if got := wire(server); len(got) < len(want) || slices.ContainsFunc(got, func(r string) bool { return strings.Contains(r, "Selector") }) {
			t.Errorf("requests = %q; want %q, without a selector", got, want)
		}
	})
}

func TestPagesOfAHub(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t)
		for i := range 1201 {
			server.Create(testutil.ManagedCluster("ns", "c"+string(rune('a'+i/500))+time.Duration(i).String(), "id"))
		}
		inf, err := informer.ForHub(server.Client(), informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		run(t, server, inf)
		for _, when := range []string{"after the start", "after a relist"} {
			wantHealthy(t, inf, when)
			if got := len(inf.GetStore().ListKeys()); got != 1201 {
				t.Errorf("objects in the store %s = %d; want 1201", when, got)
			}
			server.SendError(410)
			pass(10 * time.Second)
		}
	})
}

func TestAutoFallsBackToTheLabel(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		server := newServer(t, mine("own"), mine("unlabelled", testutil.Labelled("")))
		server.SetSelectable(false)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)

		wantHealthy(t, inf, "after the start")
		wantSelection(t, inf, "after the start", informer.ByLabel)
		wantStore(t, inf, "after the start", "own")
		wantWire(t, server, "at the start", append(way.refused(byField), way.read(byLabel)...))

		// An ordinary restart of the watch costs one cheap question.
		pass(10 * time.Second)
		server.CutWatches()
		pass(10 * time.Second)
		for _, r := range server.Requests() {
			if limit := r.Query.Get("limit"); r.Verb == testutil.List && limit != "1" {
				t.Errorf("%v has limit %q; want 1", r, limit)
			}
		}
		wantWire(t, server, "as the watch starts again", []string{"list" + byField, "watch" + byLabel})
		wantHealthy(t, inf, "after the watch started again")
		wantSelection(t, inf, "after the watch started again", informer.ByLabel)

		pass(4 * time.Minute)
		wantWire(t, server, "in the four minutes after", []string{})
	})
}

func TestByLabelNeverAsksForTheField(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.ByLabel)
		run(t, server, inf)
		wantHealthy(t, inf, "after the start")
		wantSelection(t, inf, "after the start", informer.ByLabel)
		pass(10 * time.Second)
		server.CutWatches()
		pass(10 * time.Second)
		server.SendError(410)
		pass(10 * time.Second)
		wantWire(t, server, "in all", slices.Concat(way.read(byLabel), []string{"watch" + byLabel}, way.read(byLabel)))
	})
}

func TestByFieldNeverFallsBack(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		server.SetSelectable(false)
		inf := forCluster(t, server, informer.ByField)
		run(t, server, inf)
		pass(2 * time.Minute)
		if inf.HasSynced() {
			t.Error("HasSynced() = true; want false where the field can't be selected")
		}
		wantSelection(t, inf, "while the field can't be selected", informer.Auto)
		wantErr(t, inf, "while the field can't be selected", "field label not supported", "selectableFields", "Selection Auto or ByLabel")
		for _, r := range wire(server) {
			if !strings.HasSuffix(r, byField) {
				t.Errorf("request %q; want all by field", r)
			}
		}

		server.SetSelectable(true)
		pass(time.Minute)
		wantHealthy(t, inf, "after the CRD was upgraded")
		wantSelection(t, inf, "after the CRD was upgraded", informer.ByField)

		server.SetSelectable(false)
		pass(time.Minute)
		wantErr(t, inf, "after the CRD was downgraded", "selectableFields")
		wantStore(t, inf, "after the CRD was downgraded", "own")
		for _, r := range wire(server) {
			if !strings.HasSuffix(r, byField) {
				t.Errorf("request %q; want all by field", r)
			}
		}
	})
}

func TestAutoFollowsTheCRD(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		server := newServer(t, mine("own"), mine("unlabelled", testutil.Labelled("")))
		server.SetSelectable(false)
		inf := forCluster(t, server, informer.Auto)
		deleted := 0
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { deleted++ }}); err != nil {
			t.Fatal(err)
		}
		run(t, server, inf)
		wantStore(t, inf, "by label", "own")
		pass(10 * time.Second)
		wire(server)

		server.SetSelectable(true)
		pass(10 * time.Second)
		wantWire(t, server, "after the CRD was upgraded", append([]string{"list" + byField}, way.read(byField)...))
		wantSelection(t, inf, "after the CRD was upgraded", informer.ByField)
		wantStore(t, inf, "after the CRD was upgraded", "own", "unlabelled")
		wantHealthy(t, inf, "after the CRD was upgraded")
		if deleted != 0 {
			t.Errorf("deletions after the CRD was upgraded = %d; want 0", deleted)
		}

		// By field, a watch that starts again asks nothing more.
		server.CutWatches()
		pass(10 * time.Second)
		wantWire(t, server, "as the watch by field starts again", []string{"watch" + byField})

		server.SetSelectable(false)
		synctest.Wait()
		pass(10 * time.Second)
		wantWire(t, server, "after the CRD was downgraded", slices.Concat([]string{"watch" + byField}, way.refused(byField), way.read(byLabel)))
		wantSelection(t, inf, "after the CRD was downgraded", informer.ByLabel)
		wantStore(t, inf, "after the CRD was downgraded", "own")
		wantHealthy(t, inf, "after the CRD was downgraded")
		if deleted != 1 {
			t.Errorf("deletions after the CRD was downgraded = %d; want 1, of what has no label", deleted)
		}
	})
}

// A probe that fails says nothing about the field.
func TestFailedProbeGoesOnByLabel(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		server.SetSelectable(false)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		wire(server)
		server.Fail(testutil.Status(500).On(testutil.List).Times(1))
		server.CutWatches()
		pass(10 * time.Second)
		wantWire(t, server, "as the watch starts again", []string{"list" + byField, "watch" + byLabel})
		wantSelection(t, inf, "after the probe", informer.ByLabel)
		wantHealthy(t, inf, "after the probe")
	})
}

func TestHangingProbeGoesOnByLabel(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		server.SetSelectable(false)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		server.Fail(testutil.Hang.On(testutil.List).Times(1))
		server.CutWatches()
		pass(11 * time.Second)
		if n := server.Watches(); n != 1 {
			t.Errorf("watches open after eleven seconds = %d; want 1", n)
		}
		wantHealthy(t, inf, "after the probe")
	})
}

func TestRelistIsConsistent(t *testing.T) {
	for name, expire := range map[string]func(*testutil.APIServer){
		"ERROR event": func(s *testutil.APIServer) { s.SendError(410) },
		"HTTP status": func(s *testutil.APIServer) {
			s.Fail(testutil.Status(410).On(testutil.Watch).Times(1))
			s.CutWatches()
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, way way) {
				server := newServer(t, mine("own"))
				inf := forCluster(t, server, informer.Auto)
				run(t, server, inf)
				pass(10 * time.Second)
				wire(server)
				expire(server)
				pass(10 * time.Second)
				// Whether the reads are consistent is checked by run.
				got := wire(server)
				want := way.read(byField)
				if name == "HTTP status" {
					want = append([]string{"watch" + byField}, want...)
				}
				if !slices.Equal(got, want) {
					t.Errorf("requests = %q; want %q", got, want)
				}
				wantHealthy(t, inf, "after the relist")
			})
		})
	}
}
