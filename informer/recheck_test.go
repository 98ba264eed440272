//go:build go1.25

package informer_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

// APIServer.Rewrite stands for a read under the old schema: the object has other
// content than what was sent, and the same resourceVersion.

var (
	onlyWatch  = []string{"watch" + byField}
	andRecheck = []string{"watch" + byField, "list" + byField}
)

func wantPaused(t *testing.T, inf *informer.Informer, when, name string, want any) {
	t.Helper()
	obj, _, _ := inf.GetStore().GetByKey(namespace + "/" + name)
	if obj == nil {
		t.Errorf("store %s has no %s", when, name)
		return
	}
	got, _, _ := unstructured.NestedFieldNoCopy(obj.(*unstructured.Unstructured).Object, "spec", "syncPaused")
	if got != want {
		t.Errorf("spec.syncPaused of %s %s = %v; want %v", name, when, got, want)
	}
}

func lists(server *testutil.APIServer) []time.Time {
	var out []time.Time
	for _, r := range server.Requests() {
		if r.Verb == testutil.List {
			out = append(out, r.Time)
		}
	}
	return out
}

func TestEventsUnderTheOldSchema(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		server := newServer(t, mine("a"), mine("b"), mine("c"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		server.Update(mine("a", testutil.Annotated("event", "x")))
		server.Update(mine("b", testutil.Paused(true)))
		pass(time.Second)
		server.Rewrite(mine("a", testutil.Paused(true)))
		wire(server)
		server.CutWatches()
		server.Update(mine("b", testutil.Paused(false))) // newer than what is in doubt
		server.Delete(namespace, "c")
		server.Create(mine("d", testutil.Paused(true)))
		pass(2 * time.Second)
		wantWire(t, server, "after the watch ended early", append(slices.Clone(andRecheck), way.read(byField)...))
		wantPaused(t, inf, "after the relist", "a", true)
		wantPaused(t, inf, "after the relist", "b", false)
		wantPaused(t, inf, "after the relist", "d", true)
		wantStore(t, inf, "after the relist", "a", "b", "d")
		wantHealthy(t, inf, "after the relist")
	})
}

// What has changed after the watch ended is sent by the next one, without a relist.
func TestNewerObjectsNeedNoRelist(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("a"), mine("b"), mine("c"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		for _, name := range []string{"a", "b", "c"} {
			server.Update(mine(name, testutil.Annotated("event", "x")))
		}
		server.Update(mine("c", testutil.Paused("an older read of c does not count")))
		synctest.Wait()
		wire(server)
		server.CutWatches()
		server.Update(mine("a", testutil.Paused(true)))
		server.Delete(namespace, "b")
		pass(time.Minute)
		wantWire(t, server, "after the watch ended early", andRecheck)
		wantPaused(t, inf, "after the recheck", "a", true)
		wantStore(t, inf, "after the recheck", "a", "c")
	})
}

func TestListUnderTheOldSchema(t *testing.T) {
	for name, relist := range map[string]bool{"first list": false, "relist": true} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, way way) {
				server := newServer(t, mine("a"))
				inf := forCluster(t, server, informer.Auto)
				run(t, server, inf)
				if relist {
					pass(time.Minute)
					server.SendError(410)
					pass(2 * time.Second)
				}
				wire(server)
				server.Rewrite(mine("a", testutil.Paused(true)))
				pass(time.Second)
				server.CutWatches()
				pass(10 * time.Second) // the reflector's backoff
				wantWire(t, server, "after the watch ended early", append(slices.Clone(andRecheck), way.read(byField)...))
				wantPaused(t, inf, "after the relist", "a", true)

				pass(10 * time.Second)
				server.CutWatches()
				pass(time.Minute)
				wantWire(t, server, "of the next watch", onlyWatch)
			})
		})
	}
}

// The CRD may change while the watch after the list can't be opened.
func TestListBeforeAWatchThatFails(t *testing.T) {
	eachWay(t, func(t *testing.T, way way) {
		if way == watchList {
			t.Skip("the list is the watch")
		}
		server := newServer(t, mine("a"))
		server.Fail(testutil.Refused.On(testutil.Watch).Times(1))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		server.Rewrite(mine("a", testutil.Paused(true)))
		pass(time.Minute)
		wantPaused(t, inf, "after the watch was opened", "a", true)
		wantHealthy(t, inf, "after the watch was opened")
	})
}

func TestRestartsWithoutRecheck(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("a"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		wire(server)
		server.CutWatches()
		pass(10 * time.Second)
		wantWire(t, server, "after a watch without recent events", onlyWatch)

		server.Bookmark()
		synctest.Wait()
		server.CutWatches()
		synctest.Wait()
		opened := server.Requests()
		wantWire(t, server, "after a bookmark", onlyWatch)

		// The server ends the watch in its time, just after an event.
		seconds, err := strconv.Atoi(opened[0].Query.Get("timeoutSeconds"))
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Duration(seconds)*time.Second - time.Second)
		server.Update(mine("a", testutil.Paused(true)))
		pass(time.Minute)
		wantWire(t, server, "after an ordinary end", onlyWatch)
	})
}

func TestFailedRecheckIsRetried(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("a"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		server.Update(mine("a", testutil.Annotated("event", "x")))
		synctest.Wait()
		server.Rewrite(mine("a", testutil.Paused(true)))
		server.Fail(testutil.Status(500).On(testutil.List).Times(2))
		wire(server)
		server.CutWatches()
		pass(19 * time.Second)
		wantWire(t, server, "in 19 seconds", append(slices.Clone(andRecheck), "list"+byField))
		wantErr(t, inf, "while rechecks fail", "recheck", "leader changed")
		wantPaused(t, inf, "while rechecks fail", "a", nil)
		if n := server.Watches(); n != 1 {
			t.Errorf("watches open while rechecks fail = %d; want 1", n)
		}
		pass(3 * time.Second)
		wantHealthy(t, inf, "after the third recheck")
		wantPaused(t, inf, "after the third recheck", "a", true)
	})
}

// The watch beside which the recheck is due may end before it, and the next one may
// not open for a while.
func TestDoubtOutlivesWatches(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("a"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		server.Update(mine("a", testutil.Annotated("event", "x")))
		synctest.Wait()
		server.CutWatches()
		synctest.Wait() // this recheck finds nothing, and the next is due in ten seconds
		server.Update(mine("a", testutil.Annotated("event", "y")))
		synctest.Wait()
		server.Rewrite(mine("a", testutil.Paused(true)))
		wire(server)
		server.CutWatches()
		pass(6 * time.Second)
		server.CutWatches()
		pass(3 * time.Second)
		wantWire(t, server, "before the recheck is due", slices.Concat(onlyWatch, onlyWatch))
		pass(4 * time.Second)
		wantPaused(t, inf, "after the recheck", "a", true)

		pass(20 * time.Second)
		server.Update(mine("a", testutil.Annotated("event", "z")))
		synctest.Wait()
		server.Rewrite(mine("a", testutil.Paused("again")))
		server.Fail(testutil.Refused)
		server.CutWatches()
		pass(time.Minute)
		server.Heal()
		pass(4 * time.Minute) // twice the reflector's backoff
		wantPaused(t, inf, "after the outage", "a", "again")
	})
}

// A recheck that fails leaves in doubt what it was about, and the latest read of each
// object.
func TestFailedRecheckKeepsTheLatestRead(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("a"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		server.Update(mine("a", testutil.Annotated("event", "x")))
		synctest.Wait()
		server.Fail(testutil.Hang.On(testutil.List))
		server.CutWatches()
		pass(time.Second) // the recheck hangs
		server.Update(mine("a", testutil.Annotated("event", "y")))
		synctest.Wait()
		server.Rewrite(mine("a", testutil.Paused(true)))
		server.CutWatches()
		pass(time.Second)
		server.Heal()
		pass(2 * time.Minute) // the recheck fails, and the next one does not
		wantPaused(t, inf, "after the next recheck", "a", true)
	})
}

// Watches that end all the time, against a server that is slow to list.
func TestRechecksDoNotPileUp(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("a"))
		inf := forCluster(t, server, informer.Auto)
		run(t, server, inf)
		pass(10 * time.Second)
		var mu sync.Mutex
		open, most, slow := 0, 0, 15*time.Second
		server.OnRequest(func(r testutil.Request) {
			if r.Verb != testutil.List {
				return
			}
			mu.Lock()
			open++
			most = max(most, open)
			wait := slow
			mu.Unlock()
			<-time.After(wait)
			mu.Lock()
			open--
			mu.Unlock()
		})
		flap := func() {
			for i := range 120 {
				server.Update(mine("a", testutil.Annotated("event", strconv.Itoa(i))))
				synctest.Wait()
				server.CutWatches()
				pass(time.Second)
			}
		}
		flap()
		mu.Lock()
		if most != 1 {
			t.Errorf("lists at once = %d; want 1", most)
		}
		slow = 0
		mu.Unlock()
		flap()
		begun := lists(server)
		for i := 1; i < len(begun); i++ {
			if begun[i].Sub(begun[i-1]) < 10*time.Second {
				t.Errorf("rechecks at %v; want one in ten seconds", begun)
				break
			}
		}
		if len(begun) < 14 {
			t.Errorf("rechecks in four minutes = %d; want at least 14", len(begun))
		}
		pass(time.Minute)
		wire(server)
		pass(2 * time.Minute)
		wantWire(t, server, "once all is quiet", []string{})
	})
}

// A recheck that gets no answer ends by itself, and with Run.
func TestHangingRecheck(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("a"))
		inf := forCluster(t, server, informer.Auto)
		stop := run(t, server, inf)
		pass(10 * time.Second)
		server.Update(mine("a", testutil.Annotated("event", "x")))
		synctest.Wait()
		server.Rewrite(mine("a", testutil.Paused(true)))
		server.Fail(testutil.Hang.On(testutil.List).Times(1))
		server.CutWatches()
		pass(50 * time.Second)
		wantErr(t, inf, "while the recheck hangs", "not answered a request")
		pass(25 * time.Second)
		wantPaused(t, inf, "after the next recheck", "a", true)
		wantHealthy(t, inf, "after the next recheck")

		pass(10 * time.Second)
		server.Update(mine("a", testutil.Annotated("event", "y")))
		synctest.Wait()
		server.Fail(testutil.Hang.On(testutil.List))
		server.CutWatches()
		pass(time.Second)
		stop()
		if err := inf.Err(); err != nil {
			t.Errorf("Err() after the end = %v; want nil", err)
		}
	})
}
