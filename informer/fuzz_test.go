//go:build go1.25

package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

// FuzzSelection takes an informer through a sequence of faults, of changes of the CRD and
// of objects. Each byte is one step. The informer must never ask for more than its own
// objects. When all is quiet it must select by field exactly if the CRD allows it, and
// must have what that selects.
func FuzzSelection(f *testing.F) {
	for _, seed := range []string{
		"", "a", "ab", "aib", "aeibi", "cai", "dai", "cdibi", "agibi", "abababi", "ahjbi", "acjbdj", "fai", "kcljam", "amibn", "aicbjd", "nnaimi",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		if len(steps) > 40 {
			return
		}
		synctest.Test(t, func(t *testing.T) { fuzzSelection(t, steps) })
	})
}

func fuzzSelection(t *testing.T, steps []byte) {
	server := testutil.NewAPIServer(mine("own"), mine("mislabelled", testutil.Labelled("another-id")),
		testutil.ManagedCluster(namespace, "other", "another-id", testutil.Labelled(clusterID)))
	inf, err := informer.ForCluster(server.Client(), namespace, clusterID, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	selectable := true
	for i, step := range steps {
		selectable = selectionStep(server, step, selectable)
		if i == len(steps)/3 { // some steps come before the start
			go func() { defer close(ended); inf.RunWithContext(ctx) }()
			synctest.Wait()
		}
	}
	if len(steps) == 0 {
		go func() { defer close(ended); inf.RunWithContext(ctx) }()
	}
	server.Heal()
	for range 60 { // the longest backoff, the next probe, and more
		time.Sleep(time.Minute)
		server.Bookmark()
	}
	synctest.Wait()

	want, selection := []string{namespace + "/mislabelled", namespace + "/own"}, informer.ByField
	if !selectable {
		want, selection = []string{namespace + "/other", namespace + "/own"}, informer.ByLabel
	}
	got := inf.GetStore().ListKeys()
	slices.Sort(got)
	if inf.Selection() != selection || !slices.Equal(got, want) || inf.Err() != nil {
		t.Errorf("after %q: Selection = %v, objects %q, Err = %v; want %v and %q", steps, inf.Selection(), got, inf.Err(), selection, want)
	}
	for _, r := range server.Requests() {
		byField, byLabel := r.Query.Get("fieldSelector"), r.Query.Get("labelSelector")
		if r.Namespace != namespace || strings.Contains(byField, clusterID) == strings.Contains(byLabel, clusterID) {
			t.Errorf("after %q: request %q; want one for the own cluster only", steps, r)
		}
	}
	cancel()
	<-ended
	server.Close()
}

// selectionStep does one step, and returns whether the CRD has the field selectable.
func selectionStep(server *testutil.APIServer, step byte, selectable bool) bool {
	all := []string{testutil.List, testutil.Watch, testutil.WatchList}
	switch step % 14 {
	case 'a' % 14:
		server.SetSelectable(false)
		return false
	case 'b' % 14:
		server.SetSelectable(true)
		return true
	case 'c' % 14:
		server.CutWatches()
	case 'd' % 14:
		server.SendError(http.StatusGone)
	case 'e' % 14:
		server.Fail(testutil.Status(http.StatusBadRequest).On(all...).Times(1 + int(step)/14%3))
	case 'f' % 14:
		server.Fail(testutil.Status(http.StatusForbidden).On(testutil.List))
	case 'g' % 14:
		server.Fail(testutil.Refused)
	case 'h' % 14:
		server.Fail(testutil.InStream(http.StatusGone).Times(2))
	case 'i' % 14:
		time.Sleep(time.Minute)
	case 'j' % 14:
		server.Heal()
	case 'k' % 14:
		server.Fail(testutil.EOF.On(testutil.Watch).Times(3))
	case 'l' % 14:
		server.Fail(testutil.Status(http.StatusTooManyRequests).On(all...).Times(2))
	case 'm' % 14:
		own := server.Get(namespace, "own")
		server.Update(testutil.With(own, testutil.Held("ci", fmt.Sprint(own.GetResourceVersion()))))
	default:
		server.WithholdInitialBookmark(false)
		time.Sleep(time.Duration(step) * time.Millisecond)
	}
	return selectable
}
