package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

const (
	appsMidway = 30
	passed     = 9 // writes that are answered before others are held up
)

// holdUp lets some writes of a method to a child pass, and holds up the later ones until
// release is called.
func holdUp(c *fleettest.Child, method string) (waiting func() int, release func()) {
	var begun, blocked atomic.Int64
	released := make(chan struct{})
	c.Intercept(func(r *http.Request) int {
		if r.Method == method && !r.URL.Query().Has("dryRun") && begun.Add(1) > passed {
			blocked.Add(1)
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		return 0
	})
	return func() int { return int(blocked.Load()) }, func() { close(released) }
}

// midway is a pause that comes while something is being deployed or deleted.
type midway struct {
	name         string
	method       string
	inFlight     int // one for each worker
	descriptions int // that share the apps
}

func TestPauseInTheMiddle(t *testing.T) {
	tests := []midway{
		{"of a large Description", http.MethodPatch, 1, 1},
		{"of several Descriptions", http.MethodPatch, 4, 6},
		{"of the end of a large Description", http.MethodDelete, 1, 1},
	}
	eachDeployer(t, []deployer{pulls, pushes}, len(tests), func(t *testing.T, f *fleettest.Fleet, d deployer) {
		for i, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				f := f.In(t, f.Children[i])
				d.run(f, "one", "")
				test.run(t, f.Children[0], d.parties()[0])
			})
		}
	})
}

// describe creates the Descriptions and returns their names.
func (m midway) describe(c *fleettest.Child) (names []string) {
	of := map[string][]map[string]any{}
	for i := range appsMidway {
		name := fmt.Sprintf("of-%d", i%m.descriptions)
		of[name] = append(of[name], fleettest.App(fmt.Sprintf("app-%02d", i), "1"))
	}
	for name, apps := range of {
		c.Describe(name, apps...)
		names = append(names, name)
	}
	return names
}

func (m midway) run(t *testing.T, c *fleettest.Child, party string) {
	var names, all []string
	for i := range appsMidway {
		all = append(all, fmt.Sprintf("%s app-%02d", m.method, i))
	}
	left := passed + m.inFlight // apps in the child during the pause
	if m.method == http.MethodDelete {
		names = m.describe(c)
		c.AwaitPhase("Success", names...)
		c.Quiet()
		left = appsMidway - left
	}
	waiting, release := holdUp(c, m.method)
	before := len(c.Writes())
	if m.method == http.MethodDelete {
		c.DeleteDescription(names[0])
	} else {
		names = m.describe(c)
	}
	fleettest.Eventually(t, fleettest.Soon, func() bool { return waiting() == m.inFlight }, func() string {
		return fmt.Sprintf("%d writes are held up; want %d", waiting(), m.inFlight)
	})
	c.Pause()
	c.AwaitCondition(fmt.Sprintf("False Draining: held by spec.syncPaused; waiting for the parties: %s has %d in flight", party, m.inFlight))
	release()
	c.AwaitCondition(acknowledged)
	alone := leave(c)
	if got, want := len(c.Writes())-before, passed+m.inFlight; got != want {
		t.Errorf("%d writes were begun before the acknowledgement; want %d, those before the pause", got, want)
	}
	if got := len(c.Images()); got != left {
		t.Errorf("the child has %d apps at the acknowledgement; want %d: what was in flight has ended", got, left)
	}
	fleettest.Eventually(t, fleettest.Soon, func() bool {
		return slices.ContainsFunc(names, func(name string) bool { phase, _ := c.Phase(name); return phase == "Pending" })
	}, func() string { return "no Description is Pending" })
	c.Quiet()
	alone.check(t, "after the acknowledgement")

	began := time.Now()
	c.Resume()
	fleettest.Eventually(t, fleettest.Soon, func() bool { return len(c.Writes())-before >= appsMidway }, func() string {
		return fmt.Sprintf("%d of %d apps have been written", len(c.Writes())-before, appsMidway)
	})
	t.Logf("resumed: the rest was written after %v", time.Since(began).Round(time.Millisecond))
	if m.method == http.MethodDelete {
		c.AwaitNoDescription(names...)
	} else {
		c.AwaitPhase("Success", names...)
	}
	c.Quiet()
	checkWritten(t, c, before, "in all", all...)
}
