package e2e

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"testing"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

// checkWritten checks what has been written to a child after the first n writes, as
// "PATCH name" or "DELETE name".
func checkWritten(t *testing.T, c *fleettest.Child, n int, when string, want ...string) {
	t.Helper()
	var got []string
	for _, w := range c.Writes()[n:] {
		got = append(got, w.Method+" "+path.Base(w.Path))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: the writes to %s are %q; want %q, each once", when, c.Name, got, want)
	}
}

// leftAlone checks that a child has had no request, and no change but by the test.
type leftAlone struct {
	*fleettest.Child
	requests int
	events   func() []string
}

// leave begins the check. Open watches do not count, new ones do.
func leave(c *fleettest.Child) *leftAlone {
	c.Helper()
	return &leftAlone{c, len(c.AllRequests()), c.WatchApps()}
}

func (l *leftAlone) check(t *testing.T, when string, own ...string) {
	t.Helper()
	if requests := l.AllRequests()[l.requests:]; len(requests) > 0 {
		t.Errorf("%s: the child %s has had the requests %v; want none", when, l.Name, requests)
	}
	fleettest.Eventually(t, fleettest.Soon, func() bool { return len(l.events()) >= len(own) }, func() string {
		return fmt.Sprintf("%s: a watch of %s has the events %q; want %q, by the test", when, l.Name, l.events(), own)
	})
	if got := l.events(); !slices.Equal(got, own) {
		t.Errorf("%s: a watch of %s has the events %q; want %q alone, by the test", when, l.Name, got, own)
	}
}

// unchanged returns a check that nothing was written to the child since, by the request
// log and by the versions of its apps.
func unchanged(c *fleettest.Child) (check func(when string)) {
	c.Helper()
	versions := func() map[string]string {
		versions := map[string]string{}
		for _, object := range c.AppObjects() {
			versions[object.GetName()] = string(object.GetUID()) + " " + object.GetResourceVersion()
		}
		return versions
	}
	before, n := versions(), len(c.Writes())
	return func(when string) {
		c.Helper()
		if got := c.Writes()[n:]; len(got) > 0 {
			c.Errorf("%s: written %v; want nothing", when, got)
		}
		if now := versions(); !maps.Equal(now, before) {
			c.Errorf("%s: the apps are %v; want them as before: %v", when, now, before)
		}
	}
}
