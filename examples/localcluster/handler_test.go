package localcluster_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/localcluster"
)

func TestHandler(t *testing.T) {
	var requests, refuse atomic.Int64
	c := start(t, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if refuse.Load() > 0 {
				http.Error(w, "refused by the test", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	apply(t, c, true)
	if got := requests.Load(); got != 0 {
		t.Errorf("the handler saw %d requests of Start and Apply; want none", got)
	}
	mcls := client(t, c)
	create(t, mcls, "team-a", "mine", clusterID)
	w, err := mcls.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: nil})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Errorf("first event through the handler = %v; want ADDED", event.Type)
	}
	w.Stop()
	if got := requests.Load(); got != 2 {
		t.Errorf("the handler saw %d requests; want 2", got)
	}
	refuse.Store(1)
	if _, err := mcls.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("list while the handler refuses = %v; want 503", err)
	}
	apply(t, c, false) // not affected
}

// TestHandlerHoldsBack stops a cluster while its Handler holds a request back.
func TestHandlerHoldsBack(t *testing.T) {
	hold := make(chan struct{})
	c := start(t, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.RawQuery, "hold") {
				close(hold)
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	apply(t, c, true)
	mcls := client(t, c)
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := mcls.List(t.Context(), metav1.ListOptions{LabelSelector: "hold"}); err == nil {
			t.Error("list held back until Stop succeeded; want an error")
		}
	})
	<-hold
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("stopped with a request held back in %v", time.Since(begin).Round(time.Millisecond))
	group.Wait()
}

// TestHandlerChangesNothing compares answers through a Handler to those of the server.
func TestHandlerChangesNothing(t *testing.T) {
	c := start(t, localcluster.Options{Handler: passOn})
	apply(t, c, false)
	mcls := client(t, c)
	pad := strings.Repeat("0123456789abcdef", 1<<10)
	for i := range 100 {
		child := object("child"+strconv.Itoa(i), map[string]any{"clusterId": clusterID, "syncMode": "Dual"})
		child.SetAnnotations(map[string]string{"pad": pad})
		if _, err := mcls.Namespace("team-a").Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const path, one = "/apis/clusters.clusternet.io/v1beta1/managedclusters", "/apis/clusters.clusternet.io/v1beta1/namespaces/team-a/managedclusters/child0"
	stale := `{"apiVersion":"clusters.clusternet.io/v1beta1","kind":"ManagedCluster","metadata":{"name":"child0","resourceVersion":"1"},` +
		`"spec":{"clusterId":"` + clusterID + `","syncMode":"Dual"}}`
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, path, "", http.StatusOK},
		{http.MethodGet, path + "?limit=3", "", http.StatusOK},
		{http.MethodGet, path + "?fieldSelector=metadata.name%3Dchild7&labelSelector=a+notin+(b%2Cc);", "", http.StatusOK},
		{http.MethodGet, path + "?fieldSelector=spec.clusterId%3Dx", "", http.StatusBadRequest},
		{http.MethodGet, one + "-absent", "", http.StatusNotFound},
		{http.MethodPut, one, stale, http.StatusConflict},
		{http.MethodPost, strings.TrimSuffix(one, "/child0"), strings.NewReplacer("Dual", "Both", `,"resourceVersion":"1"`, "").Replace(stale), http.StatusUnprocessableEntity},
		{http.MethodGet, "/openapi/v2", "", http.StatusOK},
		{http.MethodGet, "/nothing", "", http.StatusNotFound},
	} {
		direct := answer(t, c.Direct(), test.method, test.path, test.body)
		through := answer(t, c.Config(), test.method, test.path, test.body)
		if direct.status != test.status || through.status != test.status || through.proto != direct.proto {
			t.Errorf("%s %s = %d by %s, through the handler %d by %s; want %d", test.method, test.path,
				direct.status, direct.proto, through.status, through.proto, test.status)
		}
		if !bytes.Equal(direct.body, through.body) {
			t.Errorf("%s %s: %d bytes, through the handler %d bytes; want the same", test.method, test.path, len(direct.body), len(through.body))
		}
		if !reflect.DeepEqual(direct.header, through.header) {
			t.Errorf("%s %s: headers = %v, through the handler %v; want the same", test.method, test.path, direct.header, through.header)
		}
	}
}

type answered struct {
	status int
	proto  string
	header http.Header
	body   []byte
}

// answer does not undo the compression of the answer.
func answer(t *testing.T, config *rest.Config, method, path, body string) answered {
	t.Helper()
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept-Encoding", "gzip")
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got := answered{status: response.StatusCode, proto: response.Proto, header: response.Header}
	if got.body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	for _, differs := range []string{"Date", "Audit-Id"} {
		got.header.Del(differs)
	}
	return got
}

// TestHandlerWatches has more watches than a connection carries by default, and ends them in each way.
func TestHandlerWatches(t *testing.T) {
	const count = 300
	var open atomic.Int64
	c := start(t, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			open.Add(1)
			next.ServeHTTP(w, r)
			open.Add(-1) // not deferred: a panic would leave it out
		})
	}})
	apply(t, c, true)
	mcls := client(t, c)
	watches := make([]watch.Interface, count)
	for i := range watches {
		w, err := mcls.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches[i] = w
	}
	create(t, mcls, "team-a", "mine", clusterID)
	for i, w := range watches {
		if event := <-w.ResultChan(); event.Type != watch.Added {
			t.Fatalf("event of watch %d = %v; want ADDED", i, event.Type)
		}
	}
	for _, w := range watches[:count/2] { // by the client
		w.Stop()
	}
	apply(t, c, false) // by the server
	for _, w := range watches[count/2:] {
		if end := drainWatch(t, w); strings.HasPrefix(end, string(watch.Error)) {
			t.Errorf("last event of a watch = %s; want no error", end)
		}
	}
	eventually(t, "the end of each request in the handler", func() error {
		if n := open.Load(); n != 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	// An error event passes as any other.
	if err := watchFrom(t, mcls, "1", soon); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old resourceVersion = %v; want 410", err)
	}
}
