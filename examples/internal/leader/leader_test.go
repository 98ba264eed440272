package leader_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/internal/leader"
	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/syncgate"
)

func TestMain(m *testing.M) {
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.SetLogger(logr.Discard())
	}
	leaks.Main(m)
}

var (
	lease     = leader.Lease{Namespace: fleettest.LeaseNamespace, Name: "lead", Duration: fleettest.Lease}
	errFailed = errors.New("it failed")
)

// cluster is where processes compete, with a record of who leads.
type cluster struct {
	*testing.T
	*fleettest.Child
	block atomic.Pointer[func(*http.Request) int] // requests for the lease

	mu     sync.Mutex
	leads  map[string]bool
	events []string // "NAME begins", "NAME ends"
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, Child: fleettest.New(t, 1, syncgate.Pull).Children[0], leads: map[string]bool{}}
	c.Intercept(func(r *http.Request) int {
		if block := c.block.Load(); block != nil {
			return (*block)(r)
		}
		return 0
	})
	return c
}

func (c *cluster) config(name string) *rest.Config { return fleettest.As(name, c.Child.Config()) }

// compete has a process compete until stop is called. What it runs as a leader takes a
// while to end.
func (c *cluster) compete(name string, end time.Duration) (stop func()) {
	return fleettest.Run(c.T, func(ctx context.Context) error {
		return leader.Lead(ctx, c.config(name), lease, func(ctx context.Context) error {
			c.note(name, true)
			defer c.note(name, false)
			<-ctx.Done()
			<-time.After(end)
			return nil
		})
	})
}

func (c *cluster) note(name string, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	event := name + " ends"
	if leads {
		event = name + " begins"
		for other := range c.leads {
			c.T.Errorf("%s leads while %s still does: %q", name, other, c.events)
		}
		c.leads[name] = true
	} else {
		delete(c.leads, name)
	}
	c.events = append(c.events, event)
}

// happen waits until these have happened, and nothing else.
func (c *cluster) happen(want ...string) {
	c.T.Helper()
	text := func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return strings.Join(c.events, ", ")
	}
	fleettest.Eventually(c.T, fleettest.Soon, func() bool { return text() == strings.Join(want, ", ") }, func() string {
		return fmt.Sprintf("what has happened is %q; want %q", text(), strings.Join(want, ", "))
	})
}

func TestNoElection(t *testing.T) {
	for _, want := range []error{nil, errFailed} {
		runs := 0
		err := leader.Lead(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, leader.Lease{}, func(context.Context) error { runs++; return want })
		if err != want || runs != 1 {
			t.Errorf("Lead = %v after %d runs; want %v after 1", err, runs, want)
		}
	}
}

func TestRefusesWrongLeases(t *testing.T) {
	for _, test := range []struct {
		lease leader.Lease
		want  string
	}{
		{leader.Lease{Namespace: "default", Name: "lead", Duration: time.Second}, "its duration is 1s; want 3s or more"},
		{leader.Lease{Namespace: "default", Name: "No Name"}, "no Lease can have this name"},
	} {
		err := leader.Lead(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, test.lease, func(context.Context) error { return errFailed })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Lead with %+v = %v; want an error that says %q", test.lease, err, test.want)
		}
	}
}

func TestOneLeadsAtATime(t *testing.T) {
	c := newCluster(t)
	stopOne := c.compete("one", fleettest.Lease/2)
	c.happen("one begins")
	stopTwo := c.compete("two", 0)

	// The lease is kept until what ran has ended.
	stopOne()
	c.happen("one begins", "one ends", "two begins")

	// A lease that somebody has taken is lost, and competed for again.
	c.TakeLease(lease.Name, 3600)
	c.happen("one begins", "one ends", "two begins", "two ends")
	c.DropLease(lease.Name)
	c.happen("one begins", "one ends", "two begins", "two ends", "two begins")
	stopTwo()
	c.happen("one begins", "one ends", "two begins", "two ends", "two begins", "two ends")
	if holder := c.Holder(lease.Name); holder != "" {
		t.Errorf("%s holds the lease after the end; want nobody", holder)
	}
}

// One that can't renew its lease has ended before another leads.
func TestLostLease(t *testing.T) {
	for _, test := range []struct {
		name  string
		block func(*http.Request) int
	}{
		{"refused", func(*http.Request) int { return http.StatusInternalServerError }},
		{"no answer", func(r *http.Request) int { <-r.Context().Done(); return http.StatusServiceUnavailable }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t)
			stop := c.compete("one", 0)
			c.happen("one begins")
			stopTwo := c.compete("two", 0)
			block := func(r *http.Request) int {
				if r.UserAgent() == "one" {
					return test.block(r)
				}
				return 0
			}
			c.block.Store(&block)
			c.happen("one begins", "one ends", "two begins")
			c.block.Store(nil)
			stopTwo()
			c.happen("one begins", "one ends", "two begins", "two ends", "one begins")
			stop()
		})
	}
}

// The server refuses for as long as one goes on trying to renew its lease, and then
// takes that it is given back: what ran has to end first all the same.
func TestLostLeaseIsGivenBackLate(t *testing.T) {
	c := newCluster(t)
	c.compete("one", fleettest.Lease/5)
	c.happen("one begins")
	c.compete("two", 0)
	block := func(r *http.Request) int {
		if r.UserAgent() == "one" && r.Method != http.MethodGet && !givesBack(r) {
			return http.StatusInternalServerError
		}
		return 0
	}
	c.block.Store(&block)
	c.happen("one begins", "one ends", "two begins")
}

// givesBack tells whether a request empties a lease.
func givesBack(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return err == nil && (bytes.Contains(body, []byte(`"holderIdentity":""`)) || !bytes.Contains(body, []byte("holderIdentity")))
}

func TestRunEnds(t *testing.T) {
	c := newCluster(t)
	for _, test := range []struct {
		run  error
		want string
	}{
		{errFailed, "it failed"},
		{nil, "it ended by itself"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), fleettest.Soon)
		err := leader.Lead(ctx, c.config("one"), lease, func(context.Context) error { return test.run })
		cancel()
		if err == nil || err.Error() != test.want {
			t.Errorf("Lead = %v; want %s", err, test.want)
		}
		if holder := c.Holder(lease.Name); holder != "" {
			t.Errorf("%s holds the lease after the end; want nobody", holder)
		}
	}
}

// Who waits for the lease ends with its context.
func TestEndsWhileItWaits(t *testing.T) {
	c := newCluster(t)
	c.TakeLease(lease.Name, 3600)
	ctx, cancel := context.WithTimeout(t.Context(), fleettest.Lease)
	defer cancel()
	if err := leader.Lead(ctx, c.config("one"), lease, func(context.Context) error { return errFailed }); err != nil {
		t.Errorf("Lead = %v; want nil, since it never led", err)
	}
	if holder := c.Holder(lease.Name); holder != "somebody" {
		t.Errorf("%q holds the lease; want somebody", holder)
	}
}
