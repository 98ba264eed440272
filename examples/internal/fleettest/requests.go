package fleettest

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// userAgent is that of the tests' own requests.
const userAgent = "fleettest"

// Request is a request to a server. It is recorded before the server handles it, so it is
// in the log when its effect is visible.
type Request struct {
	At                       time.Time // when it came
	Method, Path, URI, Agent string
	write                    bool // neither a read nor a dry run
}

func (r Request) String() string { return r.Method + " " + r.URI + " (" + r.Agent + ")" }

// lease reports whether the request is about the Leases that deployers compete for.
func (r Request) lease() bool { return strings.Contains(r.Path, "/leases") }

// requestLog records the requests to a server, but not those of the tests.
type requestLog struct {
	hook atomic.Pointer[func(*http.Request) int]

	mu  sync.Mutex
	all []Request
}

func (l *requestLog) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != userAgent {
			l.add(r)
			if hook := l.hook.Load(); hook != nil {
				if code := (*hook)(r); code != 0 {
					http.Error(w, "refused by a test", code)
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (l *requestLog) add(r *http.Request) {
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, Request{
		At: time.Now(), Method: r.Method, Path: r.URL.Path, URI: r.URL.RequestURI(), Agent: agent,
		write: !read && !r.URL.Query().Has("dryRun"),
	})
}

// intercept calls hook for each request of others than the test, until the test ends.
func (l *requestLog) intercept(tb testing.TB, hook func(*http.Request) int) {
	l.hook.Store(&hook)
	tb.Cleanup(func() { l.hook.Store(nil) })
}

// without returns the requests except those that drop matches, and those for Leases.
func (l *requestLog) without(drop func(Request) bool) []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.all), func(r Request) bool { return r.lease() || drop(r) })
}

func (l *requestLog) writes() []Request {
	return l.without(func(r Request) bool { return !r.write })
}

// Writes returns the writes to the parent so far, but not those of the test or for Leases.
func (p *Parent) Writes() []Request { return p.log.writes() }

// Writes is as for the parent.
func (c *Child) Writes() []Request { return c.log.writes() }

// AllRequests returns the requests to the child so far, but not those of the test or for
// Leases: writes, reads, dry runs, and the start of each watch.
func (c *Child) AllRequests() []Request { return c.log.without(func(Request) bool { return false }) }

// Requests returns the number of requests of any kind, but not those of the test.
func (c *Child) Requests() int {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	return len(c.log.all)
}

// Quiet waits until the child has had no request for a while. Something later can only
// be missed by that: whoever needs an effect has to wait for it first.
func (c *Child) Quiet() {
	c.Helper()
	const quiet = 250 * time.Millisecond
	began := time.Now()
	var last Request
	Eventually(c.TB, Soon, func() bool {
		if all := c.AllRequests(); len(all) > 0 {
			last = all[len(all)-1]
		}
		return time.Since(began) > quiet && time.Since(last.At) > quiet
	}, func() string { return fmt.Sprintf("requests to %s do not end; the last is %v", c.Name, last) })
}

// recheckAfter is how long after a write its deployer reads the object once more.
const recheckAfter = time.Second

// AwaitRecheck waits until each app of the child has been read once more after it was
// written, and until what follows is done. A deployer rechecks a whole Description at
// once, so each is to have one app.
func (c *Child) AwaitRecheck() {
	c.Helper()
	var due []string
	Eventually(c.TB, Soon, func() bool {
		written := map[string]time.Time{} // by app, without those that have been read
		for _, r := range c.AllRequests() {
			app := path.Base(r.Path)
			if at := written[app]; r.write {
				written[app] = r.At
			} else if r.At.Sub(at) >= recheckAfter {
				delete(written, app)
			}
		}
		due = due[:0]
		for app := range c.Images() {
			if _, ok := written[app]; ok {
				due = append(due, app)
			}
		}
		return len(due) == 0
	}, func() string { return fmt.Sprintf("written and not rechecked: %q", due) })
	c.Quiet()
}

// Intercept calls hook for each request to the child of others than the test, until the
// test ends. The request waits until hook returns, and is refused with the status that
// it returns unless that is 0.
func (c *Child) Intercept(hook func(*http.Request) int) { c.log.intercept(c.TB, hook) }

// Intercept is as for a child.
func (p *Parent) Intercept(tb testing.TB, hook func(*http.Request) int) { p.log.intercept(tb, hook) }
