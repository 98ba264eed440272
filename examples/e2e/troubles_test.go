package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// What is wrong with one Description is reported in its status, and harms no other.
func TestTroubles(t *testing.T) {
	t.Parallel()
	tests := []clusterTest{
		{"Malformed", testMalformed},
		{"Impossible", testImpossible},
		{"ClaimedTwice", testClaimedTwice},
		{"MovedAddFirst", testMovedAddFirst},
		{"MovedRemoveFirst", testMovedRemoveFirst},
		{"MovedToNowhere", testMovedToNowhere},
		{"TwiceInOne", testTwiceInOne},
		{"KindComesLate", testKindComesLate},
		{"KindGoes", testKindGoes},
		{"OtherVersion", testOtherVersion},
		{"WithdrawnVersion", testWithdrawnVersion},
		{"NotRecorded", testNotRecorded},
		{"Crash", testCrash},
	}
	for i, test := range tests {
		tests[i].run = func(f *fleettest.Fleet, c *cluster) {
			c.Register(syncgate.Pull)
			test.run(f, c)
		}
	}
	each(t, fleettest.New(t, 1, syncgate.Pull), 500, tests)
}

func testMalformed(f *fleettest.Fleet, c *cluster) {
	c.describeEach("1", "bad", "good")
	c.pull(f)
	c.awaitEach("at first", "1", "bad", "good")
	whole, err := json.Marshal(fleettest.App(c.appOf("bad"), "2"))
	if err != nil {
		c.Fatal(err)
	}
	for i, test := range []struct{ raw, reason string }{
		{`{"apiVersion":"demo.example.com/v1","kind":"App"`, "unexpected end of JSON input"},
		{`{"apiVersion":"demo.example.com/v1"}`, "Kind"},
		{`{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"namespace":"default"}}`, "the App has no name"},
	} {
		c.DescribeRaw("bad", string(whole), test.raw)
		c.AwaitFailure("bad", c.Namespace+"/bad", "spec.raw[1]", test.reason)
		c.describeEach(fmt.Sprint(i), "good")
		c.awaitEach("beside a malformed one", fmt.Sprint(i), "good")
	}
	c.describeEach("3", "bad")
	c.awaitEach("corrected", "3", "bad")

	// A malformed one can be deleted too.
	c.DescribeRaw("bad", "{")
	c.AwaitFailure("bad", "spec.raw[0]")
	c.DeleteDescription("bad")
	c.AwaitNoDescription("bad")
	c.awaitApps("deleted malformed", "", "bad")
}

// An object that can be read but not created is a mistake that can be corrected. It must
// not keep its Description from being deleted.
func testImpossible(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	for i, test := range []struct{ what, raw, reason string }{
		{"no namespace", `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"name":"x"}}`, "it has no namespace"},
		{"a namespace too many", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x","namespace":"default"}}`, "its kind has no namespaces"},
		{"no such kind", `{"apiVersion":"demo.example.com/v1","kind":"Ap","metadata":{"name":"x","namespace":"default"}}`, "does not serve this kind"},
		{"no such group", `{"apiVersion":"x.example.com/v1","kind":"App","metadata":{"name":"x","namespace":"default"}}`, "does not serve this kind"},
		{"no such version", `{"apiVersion":"a/b/c","kind":"App","metadata":{"name":"x","namespace":"default"}}`, "a/b/c"},
		{"no version", `{"kind":"App","metadata":{"name":"x","namespace":"default"}}`, "App default/x"},
		{"no such name", `{"apiVersion":"demo.example.com/v1","kind":"App","metadata":{"name":"X_/y","namespace":"default"}}`, "X_/y"},
	} {
		corrected, deleted := fmt.Sprintf("corrected%d", i), fmt.Sprintf("deleted%d", i)
		for _, name := range []string{corrected, deleted} {
			c.describeEach("1", name)
			c.AwaitPhase("Success", name)
			c.DescribeRaw(name, test.raw)
			c.AwaitFailure(name, test.reason)
		}
		c.describeEach("2", corrected)
		c.DeleteDescription(deleted)
		began := time.Now()
		c.AwaitPhase("Success", corrected)
		c.AwaitNoDescription(deleted)
		c.Logf("%s: corrected and deleted after %v", test.what, time.Since(began).Round(time.Millisecond))
	}
}

// A Description that contradicts itself must not make its deployer write without end.
func testTwiceInOne(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	c.Describe("web", fleettest.App(c.app(), "1"), fleettest.App(c.app(), "2"))
	c.AwaitFailure("web", "is in it twice")
	idle()
	if n := len(c.written()); n > 0 {
		c.Errorf("an app that is twice in one Description was written %d times; want it refused", n)
	}
	c.Describe("web", fleettest.App(c.app(), "3"))
	c.AwaitImages("corrected", map[string]string{c.app(): "3"})
	c.AwaitPhase("Success", "web")
}

// refuse makes the parent refuse writes to the status of Descriptions, after some that it
// accepts.
func (c *cluster) refuse(f *fleettest.Fleet, after int64) (refused *atomic.Int64, stop func()) {
	var writes, refusals atomic.Int64
	var over atomic.Bool
	f.Parent.Intercept(f.TB, func(r *http.Request) int {
		if over.Load() || r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/"+c.Namespace+"/descriptions/") ||
			!strings.HasSuffix(r.URL.Path, "/status") || writes.Add(1) <= after {
			return 0
		}
		refusals.Add(1)
		return http.StatusInternalServerError
	})
	return &refusals, func() { over.Store(true) }
}

// Nothing is written to the child before the parent has recorded it.
func testNotRecorded(f *fleettest.Fleet, c *cluster) {
	c.pull(f)
	first, second, third := c.appOf("first"), c.appOf("second"), c.appOf("third")
	c.Describe("web", fleettest.App(first, "1"))
	c.AwaitPhase("Success", "web")
	check := unchanged(c.Child)
	refused, stop := c.refuse(f, 0)
	c.Describe("web", fleettest.App(first, "2"), fleettest.App(second, "2"))
	c.Describe("new", fleettest.App(third, "2"))
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return refused.Load() > 4 }, func() string { return "no status was refused" })
	check("without a record")
	c.Describe("web", fleettest.App(second, "3"))
	idle()
	check("without a record")
	stop()
	c.AwaitImages("recorded", map[string]string{first: "", second: "3", third: "2"})
	c.AwaitPhase("Success", "web")
	c.DeleteDescription("web")
	c.AwaitImages("deleted", map[string]string{second: "", third: "2"})
}

// A deployer ends after it has written to the child, before it can write the phase.
func testCrash(f *fleettest.Fleet, c *cluster) {
	end := c.pull(f)
	first, second := c.appOf("first"), c.appOf("second")
	refused, stop := c.refuse(f, 1) // all but the record of what it writes
	c.Describe("web", fleettest.App(first, "1"), fleettest.App(second, "1"))
	c.AwaitImages("before the crash", map[string]string{first: "1", second: "1"})
	fleettest.Eventually(c.TB, fleettest.Soon, func() bool { return refused.Load() > 0 }, func() string { return "no status was refused" })
	end()
	stop()
	if phase, _ := c.Phase("web"); phase != "" {
		c.Errorf("the phase is %q; want none, since it was refused", phase)
	}
	c.Describe("web", fleettest.App(first, "2"))
	c.pull(f)
	c.AwaitImages("after the crash", map[string]string{first: "2", second: ""})
	c.AwaitPhase("Success", "web")
}
