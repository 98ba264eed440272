package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
)

const rounds = 10 // of an edit, a removal, and what was removed put back

// Objects are edited, removed and put back, while somebody changes them in the child. In
// the end the child has what the parent said last, and nothing else.
func TestTheParentHasTheLastWord(t *testing.T) {
	eachDeployer(t, []deployer{pulls, pushes}, 3, func(t *testing.T, f *fleettest.Fleet, d deployer) {
		for i, test := range []struct {
			name string
			run  func(*testing.T, *fleettest.Child)
		}{
			{"unpaused", func(t *testing.T, c *fleettest.Child) { testLastWord(t, c, false) }},
			{"paused", func(t *testing.T, c *fleettest.Child) { testLastWord(t, c, true) }},
			{"put back during a pause", testPutBack},
		} {
			t.Run(test.name, func(t *testing.T) {
				f := f.In(t, f.Children[i])
				d.run(f, "one", "")
				test.run(t, f.Children[0])
			})
		}
	})
}

func testLastWord(t *testing.T, c *fleettest.Child, pausing bool) {
	app := fleettest.App
	c.Describe("web", app("stays", "0"), app("leaves", "0"))
	c.AwaitPhase("Success", "web")
	stop := keepDrifting(t, c, "stays", "leaves")
	want := map[string]string{}
	for i := range rounds {
		image := fmt.Sprint(i + 1)
		pauseNow(c, pausing, i%3 == 0)
		c.Describe("web", app("stays", image), app("leaves", image))
		pauseNow(c, pausing, i%3 == 1)
		c.Describe("web", app("stays", image))
		want = map[string]string{"stays": image}
		pauseNow(c, pausing, i%3 == 2)
		if i < rounds-1 {
			c.Describe("web", app("stays", image), app("leaves", image+"-back"))
			want["leaves"] = image + "-back"
		}
		if pausing {
			c.Resume()
		}
		if i%2 == 0 { // else the next round comes in the middle
			c.AwaitPhase("Success", "web")
		}
	}
	c.Logf("somebody has changed apps %d times", stop())
	c.AwaitAllImages("at last", want)
	c.AwaitPhase("Success", "web")
	idle() // what was begun and forgotten would come now
	c.Quiet()
	c.AwaitAllImages("and then", want)
}

// pauseNow pauses the child if it is time to, and waits for the acknowledgement. What it
// interrupts depends on chance.
func pauseNow(c *fleettest.Child, pausing, now bool) {
	c.Helper()
	if pausing && now {
		c.Pause()
		c.AwaitPaused()
	}
}

// keepDrifting changes apps of the child, as somebody else than its deployer, until stop is
// called, which returns how often it has done so.
func keepDrifting(t *testing.T, c *fleettest.Child, names ...string) (stop func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	var drifting sync.WaitGroup
	changed := 0
	drifting.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if driftOnce(ctx, c, names[i%len(names)], fmt.Sprintf("drift-%d", i)) == nil {
				changed++
			}
			sleep(5 * time.Millisecond)
		}
	})
	var once sync.Once
	end := func() int { once.Do(func() { cancel(); drifting.Wait() }); return changed }
	t.Cleanup(func() { end() })
	return end
}

// A prune has begun when the pause comes. What is put back during the pause is not deleted
// by it.
func testPutBack(t *testing.T, c *fleettest.Child) {
	app := fleettest.App
	c.Describe("web", app("stays", "1"), app("leaves", "1"))
	c.AwaitPhase("Success", "web")
	c.AwaitRecheck()
	uid := c.AppObject("leaves").GetUID()
	// The prune reads an app before it deletes it.
	var reads atomic.Int64
	answer := make(chan struct{})
	c.Intercept(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/apps/leaves") && reads.Add(1) == 1 {
			<-answer
		}
		return 0
	})
	c.Describe("web", app("stays", "2"))
	fleettest.Eventually(t, fleettest.Soon, func() bool { return reads.Load() > 0 }, func() string { return "no prune has begun" })
	c.Pause()
	c.AwaitCondition("False Draining: held by spec.syncPaused; waiting for the parties: ")
	c.Describe("web", app("stays", "2"), app("leaves", "2"))
	close(answer)
	c.AwaitPaused()
	c.AwaitImages("during the pause", map[string]string{"stays": "2", "leaves": "1"})
	c.Resume()
	c.AwaitAllImages("after the pause", map[string]string{"stays": "2", "leaves": "2"})
	c.AwaitPhase("Success", "web")
	if got := c.AppObject("leaves").GetUID(); got != uid {
		t.Errorf("what was put back has UID %s, want %s as before: it was deleted on the way", got, uid)
	}
	for _, w := range c.Writes() {
		if w.Method == http.MethodDelete {
			t.Errorf("written: %v; want no deletion", w)
		}
	}
}

func driftOnce(ctx context.Context, c *fleettest.Child, name, image string) error {
	_, err := c.Apps().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"image":%q}}`, image), metav1.PatchOptions{})
	return err //nolint:wrapcheck // it is only counted
}
