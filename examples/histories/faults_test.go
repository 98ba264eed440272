package histories

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// fault is what is wrong between a party and the parent.
type fault string

const (
	noFault           fault = "none"
	cut               fault = "cut"                // nothing gets through
	stalled           fault = "stalled"            // requests and events wait for the end of the fault
	halfOpen          fault = "half open"          // requests get through, answers do not
	slow              fault = "slow"               // each request and each event takes some time
	serverErrors      fault = "5xx"                // 500, 503, 504
	tooManyRequests   fault = "429"                // with Retry-After
	unauthorized      fault = "401"                // the token is no longer valid
	forbidden         fault = "403"                // the right is gone
	expired           fault = "410"                // each watch is answered so
	closedWatches     fault = "watches closed"     // each 100 ms
	withheldBookmarks fault = "bookmarks withheld" // also the one that ends a streamed list
	staleLists        fault = "stale lists"        // a list that may be old is the oldest one
)

var faultKinds = []fault{
	cut, stalled, halfOpen, slow, serverErrors, tooManyRequests, unauthorized, forbidden,
	expired, closedWatches, withheldBookmarks, staleLists,
}

var errCut = errors.New("the test has cut the connection")

// link is the connection of a party to the parent.
type link struct {
	namespace string // of a hub that follows this one only; empty: leave paths as they are

	mu      sync.Mutex
	fault   fault
	changed chan struct{} // closed when the fault changes
	watches map[*watchBody]struct{}
	lists   map[string][]byte // the first answer to each list that may be old
}

func newLink(namespace string) *link {
	return &link{
		namespace: namespace, fault: noFault, changed: make(chan struct{}),
		watches: map[*watchBody]struct{}{}, lists: map[string][]byte{},
	}
}

// set changes the fault. Watches that would not feel it are broken, so that they have to
// be started again.
func (l *link) set(f fault) {
	l.mu.Lock()
	l.fault = f
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	switch f {
	case noFault, stalled, halfOpen, slow:
	default:
		l.breakWatches()
	}
}

// during applies a fault for a time.
func (l *link) during(ctx context.Context, f fault, length time.Duration) {
	l.set(f)
	defer func() {
		l.set(noFault)
		l.breakStockWatches()
	}()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	for sleep(ctx, 100*time.Millisecond) {
		if f == closedWatches {
			l.breakWatches()
		}
	}
}

func (l *link) current() (fault, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault, l.changed
}

func (l *link) breakWatches() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watches {
		_ = w.ReadCloser.Close() // a Read that waits returns
	}
}

// breakStockWatches breaks the watches of client-go's own informers that have lost a
// bookmark. It may be the one that ends a streamed list, and client-go would wait for it
// until the server ends the watch, after 5 to 10 minutes. Package informer does not.
func (l *link) breakStockWatches() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watches {
		if w.stock && w.lost {
			_ = w.ReadCloser.Close()
		}
	}
}

// wrap puts the link between a client and the parent.
func (l *link) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if l.namespace != "" {
			r = r.Clone(r.Context())
			r.URL.Path = strings.Replace(r.URL.Path, "v1beta1/managedclusters", "v1beta1/namespaces/"+l.namespace+"/managedclusters", 1)
		}
		f, ended := l.current()
		watch := r.URL.Query().Get("watch") != ""
		switch f {
		case cut:
			return nil, errCut
		case stalled:
			if !wait(r.Context(), ended) {
				return nil, r.Context().Err()
			}
		case slow:
			sleep(r.Context(), rand.N(60*time.Millisecond))
		case serverErrors:
			return refuse(r, []int{500, 503, 504}[rand.IntN(3)], "InternalError"), nil
		case tooManyRequests:
			return refuse(r, http.StatusTooManyRequests, "TooManyRequests"), nil
		case forbidden:
			return refuse(r, http.StatusForbidden, "Forbidden"), nil
		case unauthorized:
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer rotated")
		case expired:
			if watch {
				return refuse(r, http.StatusGone, "Expired"), nil
			}
		case noFault, halfOpen, closedWatches, withheldBookmarks, staleLists:
		}
		return l.send(next, r, f, ended, watch)
	})
}

func (l *link) send(next http.RoundTripper, r *http.Request, f fault, ended <-chan struct{}, watch bool) (*http.Response, error) {
	answer, err := next.RoundTrip(r)
	switch {
	case err != nil || answer.StatusCode != http.StatusOK:
	case watch:
		answer.Body = l.watchBody(r.Context(), answer.Body, f, strings.HasSuffix(r.URL.Path, "/descriptions"))
	case r.Method == http.MethodGet && r.URL.Query().Get("resourceVersion") == "0":
		if err := l.mayBeOld(answer, r.URL.Path, f); err != nil {
			return nil, err
		}
	}
	if err == nil && f == halfOpen {
		wait(r.Context(), ended)
		_ = answer.Body.Close()
		return nil, errCut
	}
	return answer, err
}

// mayBeOld remembers the first answer to a list at resourceVersion 0, and repeats it when
// lists are stale.
func (l *link) mayBeOld(answer *http.Response, path string, f fault) error {
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists[path] == nil {
		l.lists[path] = body
	}
	if f == staleLists {
		body = l.lists[path]
	}
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Del("Content-Length")
	return nil
}

// refuse answers as a server does that does not let the request through.
func refuse(r *http.Request, code int, reason string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"a fault of the test","code":%d}`, reason, code)
	answer := &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
	if code == http.StatusTooManyRequests {
		answer.Header.Set("Retry-After", "1")
	}
	return answer
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// sleep returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait returns false when ctx ends first.
func wait(ctx context.Context, ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}
