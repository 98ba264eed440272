//go:build go1.25

package informer_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

func wantErr(t *testing.T, inf *informer.Informer, when string, parts ...string) {
	t.Helper()
	err := inf.Err()
	if err == nil {
		t.Errorf("Err() %s = nil; want one about %q", when, parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Err() %s = %q; want %q in it", when, err, part)
		}
	}
}

var faults = []struct {
	name  string
	fault testutil.Fault
	want  []string // of Err
}{
	{"401", testutil.Status(401), []string{"Unauthorized", "renew the credentials"}},
	{"403", testutil.Status(403), []string{"forbidden", "allow this client to list and watch managedclusters.clusters.clusternet.io in namespace " + namespace}},
	{"404", testutil.Status(404), []string{"could not find the requested resource", "install Clusternet's CRDs"}},
	{"410", testutil.Status(410), []string{"too old resource version"}},
	{"429", testutil.Status(429), []string{"too many requests"}},
	{"429 with Retry-After", testutil.Status(429).RetryAfter(time.Second), []string{""}},
	{"500", testutil.Status(500), []string{"leader changed"}},
	{"503 with Retry-After", testutil.Status(503).RetryAfter(5 * time.Second), []string{""}},
	{"refused", testutil.Refused, []string{"connection refused"}},
	{"reset", testutil.Reset, []string{"reset"}},
	{"EOF", testutil.EOF, []string{"EOF"}},
}

// Lists go on working in these.
var streamFaults = []struct {
	name  string
	fault testutil.Fault
	want  []string
}{
	{"500 in the stream", testutil.InStream(500).On(testutil.Watch, testutil.WatchList), nil},
	{"429 in the stream", testutil.InStream(429).On(testutil.Watch, testutil.WatchList), nil},
	{"410 in the stream", testutil.InStream(410).On(testutil.Watch, testutil.WatchList), nil},
}

func TestErrFromTheStart(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, _ way) {
				server := newServer(t, mine("own"))
				inf := forCluster(t, server, informer.Auto)
				wantErr(t, inf, "before Run", "not run yet", namespace, clusterID)
				server.Fail(f.fault)
				run(t, server, inf)
				for range 10 { // whatever is tried just then
					pass(20 * time.Second)
					wantErr(t, inf, "in the fault", f.want...)
					if inf.HasSynced() {
						t.Error("HasSynced() in the fault = true; want false")
					}
				}
				server.Heal()
				pass(90 * time.Second)
				wantHealthy(t, inf, "after the fault")
				wantStore(t, inf, "after the fault", "own")
			})
		})
	}
}

func TestErrAtRunTime(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, _ way) {
				server := newServer(t, mine("own"))
				inf := forCluster(t, server, informer.Auto)
				run(t, server, inf)
				wantHealthy(t, inf, "after the start")
				pass(20 * time.Second)
				server.Fail(f.fault)
				server.CutWatches()
				pass(time.Minute) // a REST layer may try again for that long
				for range 10 {
					pass(20 * time.Second)
					wantErr(t, inf, "in the fault", f.want...)
					wantStore(t, inf, "in the fault", "own")
				}
				server.Create(mine("unseen"))
				server.Heal()
				pass(90 * time.Second)
				wantHealthy(t, inf, "after the fault")
				wantStore(t, inf, "after the fault", "own", "unseen")
			})
		})
	}
}

// A watch that opens is no contact, but it works.
func TestErrEndsWhenAWatchOpens(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		contact := inf.LastContact()
		pass(20 * time.Second)
		server.ForgetRequests()
		server.Fail(testutil.Refused)
		server.CutWatches()
		synctest.Wait()
		wantErr(t, inf, "while refused", "refused")
		server.Heal()
		pass(10 * time.Second)
		wantWire(t, server, "while refused and after", []string{"watch" + byField, "watch" + byField})
		wantHealthy(t, inf, "after the watch opened")
		wantContact(t, inf, "after the watch opened", contact)
	})
}

func TestErrOfNoAnswer(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		server.Fail(testutil.Hang)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		wantErr(t, inf, "before the first answer", "has not answered the first request yet")
		wantContact(t, inf, "before the first answer", time.Time{})
	})
}

// A request that hangs is on its way for half a minute, and then a fault.
func TestErrOfARequestThatHangs(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Minute)
		wantHealthy(t, inf, "while a watch is open")
		server.Fail(testutil.Hang)
		server.CutWatches()
		pass(29 * time.Second)
		wantHealthy(t, inf, "after 29 seconds without an answer")
		pass(2 * time.Second)
		wantErr(t, inf, "after 31 seconds without an answer", "not answered a request")
	})
}

// A fault that lasts must not make requests without pause.
func TestFaultsAreMetWithBackoff(t *testing.T) {
	for _, f := range slices.Concat(faults, streamFaults) {
		t.Run(f.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, _ way) {
				server := newServer(t, mine("own"))
				server.Fail(f.fault)
				inf := forCluster(t, server, informer.Auto)
				run(t, server, inf)
				pass(10 * time.Minute)
				server.ForgetRequests()
				pass(10 * time.Minute)
				// 30 s between tries in the end, each of which may be a WatchList and
				// two lists; a REST layer that is told to come back does so ten times.
				if got := len(server.Requests()); got > 700 {
					t.Errorf("requests in ten minutes = %d; want at most 700", got)
				}
			})
		})
	}
}
