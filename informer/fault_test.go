//go:build go1.25

package informer_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

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

func wantContact(t *testing.T, inf *informer.Informer, when string, want time.Time) {
	t.Helper()
	if got := inf.LastContact(); !got.Equal(want) {
		t.Errorf("LastContact() %s = %v; want %v", when, got, want)
	}
}

func TestLastContact(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		wantContact(t, inf, "before Run", time.Time{})

		server.Fail(testutil.Status(500))
		run(t, server, inf)
		wantContact(t, inf, "after a refusal", time.Time{})
		server.Heal()
		pass(2 * time.Second)
		wantHealthy(t, inf, "after the first list")
		heard := inf.LastContact()
		if time.Since(heard) > 2*time.Second {
			t.Errorf("LastContact() after the first list = %v; want that of the list", heard)
		}

		pass(20 * time.Second)
		wantContact(t, inf, "in silence", heard)
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"an addition", func() { server.Create(mine("b")) }},
			{"a change", func() { server.Update(mine("b", testutil.Paused(true))) }},
			{"a deletion", func() { server.Delete(namespace, "b") }},
			{"a bookmark", server.Bookmark},
			{"a bookmark of a watch that went on", func() {
				server.CutWatches()
				synctest.Wait()
				server.Bookmark()
			}},
		} {
			step.do()
			synctest.Wait()
			heard = time.Now()
			wantContact(t, inf, "after "+step.name, heard)
			pass(20 * time.Second)
			wantContact(t, inf, "in the silence after "+step.name, heard)
		}

		server.CutWatches()
		pass(20 * time.Second)
		wantContact(t, inf, "after a watch was merely opened", heard)

		server.Fail(testutil.Status(500))
		server.CutWatches()
		pass(time.Minute)
		wantContact(t, inf, "after failed requests", heard)
		server.Heal()
		pass(time.Minute)
		wantHealthy(t, inf, "after the outage")
		if got := inf.LastContact(); !got.After(heard) {
			t.Errorf("LastContact() after the outage = %v; want it later than %v", got, heard)
		}
	})
}

func TestContactIsNotMadeByErrorEvents(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		heard := inf.LastContact()
		pass(20 * time.Second)
		server.Fail(testutil.Refused)
		server.SendError(500)
		pass(20 * time.Second)
		wantContact(t, inf, "after an ERROR event", heard)
		wantErr(t, inf, "after an ERROR event", "refused")
	})
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
		heard := inf.LastContact()
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
		wantContact(t, inf, "after the watch opened", heard)
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

// An informer is to stop at once, whatever the server does just then.
func TestStopsPromptly(t *testing.T) {
	situations := append([]struct {
		name  string
		fault testutil.Fault
		want  []string
	}{
		{"none", testutil.Fault{}.On("none"), nil},
		{"hanging", testutil.Hang, nil},
		{"hanging lists", testutil.Hang.On(testutil.List), nil},
		{"hanging watches", testutil.Hang.On(testutil.Watch, testutil.WatchList), nil},
	}, slices.Concat(faults, streamFaults)...)
	for _, s := range situations {
		for when, outage := range map[string]time.Duration{
			"at once":       0,
			"in backoff":    100 * time.Millisecond,
			"after a while": 10 * time.Minute,
		} {
			t.Run(s.name+" "+when, func(t *testing.T) {
				eachWay(t, func(t *testing.T, _ way) {
					server := newServer(t, mine("own"))
					server.Fail(s.fault)
					inf := forCluster(t, server, informer.Auto)
					stop := run(t, server, inf) // which checks it
					if outage > 0 {
						pass(outage)
					}
					stop()
				})
			})
			t.Run(s.name+" at run time, "+when, func(t *testing.T) {
				eachWay(t, func(t *testing.T, _ way) {
					server := newServer(t, mine("own"))
					inf := forCluster(t, server, informer.Auto)
					stop := run(t, server, inf)
					pass(20 * time.Second)
					server.Fail(s.fault)
					server.CutWatches()
					synctest.Wait()
					if outage > 0 {
						pass(outage)
					}
					stop()
				})
			})
		}
	}
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

func TestWatchListWithoutItsBookmark(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		if way != watchList {
			t.Skip("of a WatchList")
		}
		server := newServer(t) // silent from the start
		server.WithholdInitialBookmark(true)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		wantErr(t, inf, "while the bookmark is awaited", "bookmark")
		wantContact(t, inf, "while the bookmark is awaited", time.Time{})

		pass(9 * time.Second)
		wantErr(t, inf, "after nine seconds", "bookmark")
		wantWire(t, server, "in nine seconds", []string{"watchlist" + byField})
		pass(time.Second)
		wantHealthy(t, inf, "after ten seconds")
		if n := server.Watches(); n != 1 {
			t.Errorf("watches open after ten seconds = %d; want 1", n)
		}
		wantWire(t, server, "after ten seconds", listWatch.read(byField))

		// Later on, nothing waits for that bookmark again.
		pass(10 * time.Second)
		server.SendError(410)
		pass(2 * time.Second)
		wantHealthy(t, inf, "after a relist")
		wantWire(t, server, "of a relist", listWatch.read(byField))
	})
}

func TestSlowWatchListIsWaitedFor(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		if way != watchList {
			t.Skip("of a WatchList")
		}
		server := newServer(t)
		server.WithholdInitialBookmark(true)
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		for _, name := range []string{"a", "b", "c", "d"} {
			pass(9 * time.Second)
			server.Create(mine(name))
			synctest.Wait()
			// What ends a silence must be a whole state.
			wantContact(t, inf, "at the initial event "+name, time.Time{})
			wantErr(t, inf, "at the initial event "+name, "bookmark")
		}
		pass(9 * time.Second)
		server.WithholdInitialBookmark(false)
		synctest.Wait()
		wantHealthy(t, inf, "after the bookmark")
		wantContact(t, inf, "after the bookmark", time.Now())
		wantStore(t, inf, "after the bookmark", "a", "b", "c", "d")
		pass(time.Minute)
		wantWire(t, server, "in all", []string{"watchlist" + byField})
	})
}

// lingering is a client whose requests take half a second to heed their context.
type lingering struct {
	dynamic.NamespaceableResourceInterface // nil: what is not overridden is not for use

	begun, ended atomic.Int32
}

func (l *lingering) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return l
}

func (l *lingering) Namespace(string) dynamic.ResourceInterface { return l }

func (l *lingering) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return nil, l.wait(ctx)
}

func (l *lingering) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	return nil, l.wait(ctx)
}

func (l *lingering) wait(ctx context.Context) error {
	l.begun.Add(1)
	<-ctx.Done()
	<-time.After(500 * time.Millisecond)
	l.ended.Add(1)
	return ctx.Err()
}

func TestRunReturnsAfterItsRequests(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		client := &lingering{}
		inf, err := informer.ForCluster(client, namespace, clusterID, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		inf.RunWithContext(ctx)
		if begun, ended := client.begun.Load(), client.ended.Load(); begun == 0 || begun != ended {
			t.Errorf("requests begun and ended when Run returned = %d and %d; want the same, not zero", begun, ended)
		}
	})
}

func TestRunTwice(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		stop := run(t, server, inf)
		begin := time.Now()
		inf.RunWithContext(t.Context())
		inf.Run(t.Context().Done())
		wantHealthy(t, inf, "after a second Run")
		stop()
		inf.RunWithContext(t.Context())
		inf.Run(t.Context().Done())
		if took := time.Since(begin); took != 0 {
			t.Errorf("later calls of Run took %v; want none", took)
		}
	})
}

func TestRunWithStopChannel(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			inf.Run(stop)
		}()
		synctest.Wait()
		wantHealthy(t, inf, "after the start")
		close(stop)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Run goes on after stop was closed")
			<-done
		}
		if !inf.IsStopped() {
			t.Error("IsStopped() after the end = false; want true")
		}
	})
}

func TestRunOfTheEmbeddedInformer(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.SharedIndexInformer.Run(ctx.Done())
		}()
		pass(time.Minute)
		wantErr(t, inf, "after Run of the embedded informer", "not run yet", "call Run of the *Informer")
		wantWire(t, server, "after Run of the embedded informer", []string{})
		cancel()
		<-done
	})
}

// This one runs in real time, so that goleak sees what a bubble would hide.
func TestNoGoroutineIsLeft(t *testing.T) {
	server := testutil.NewAPIServer(mine("own"))
	defer goleak.VerifyNone(t)
	defer server.Close()
	for i := range 200 {
		inf := forCluster(t, server, informer.Auto)
		added := make(chan struct{})
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { close(added) }}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.RunWithContext(ctx)
		}()
		if i%2 == 0 { // every other one ends as it starts
			<-added
		}
		cancel()
		<-done
	}
}
