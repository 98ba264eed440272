//go:build go1.25

package syncgate_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// An annotation that looks like a hold holds nothing. A log line, once, and the message
// of the state say so.
func TestNearMissesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name, other = "holds.clusters.clusternet.io/x", "hold.clusters.clusternet.io"
		var mu sync.Mutex
		logged := map[string]int{}
		ctx := logTo(context.Background(), 0, func(line string) {
			mu.Lock()
			defer mu.Unlock()
			for _, n := range []string{name, other} {
				if strings.Contains(line, "annotation=\""+n+"\"") {
					logged[n]++
				}
			}
		})
		f := newHub(t, syncgate.Options{})
		f.run(ctx)
		obj := cluster(tu.Annotated(name, "why"))
		f.Add(obj, tu.ManagedCluster(ns, "none", "", tu.Annotated(name, "it counts for no cluster")))
		f.sync()
		want := func(paused bool, reason string, names ...string) {
			t.Helper()
			phase := syncgate.Open
			if paused {
				phase = syncgate.Paused
			}
			s := f.want(paused, phase, reason)
			for _, n := range names {
				if !strings.Contains(s.Message, "annotation "+n+" of ManagedCluster "+ns+"/child looks like a hold but is none; rename it to hold.clusters.clusternet.io/OWNER") {
					t.Errorf("Message = %q; want annotation %s in it", s.Message, n)
				}
			}
			if len(names) == 0 && strings.Contains(s.Message, "looks like") {
				t.Errorf("Message = %q; want no annotation in it", s.Message)
			}
		}
		want(false, syncgate.ReasonSyncAllowed, name)
		f.Update(obj, obj)
		held := tu.With(obj, tu.Annotated(other, ""), tu.Held("x", "why"))
		f.Update(obj, held)
		want(true, syncgate.ReasonHeld, name, other)
		f.Update(held, cluster())
		want(false, syncgate.ReasonSyncAllowed)
		f.stop()
		if logged[name] != 1 || logged[other] != 1 {
			t.Errorf("lines for each annotation = %v; want 1", logged)
		}
	})
}

// A value that looks like a release holds, and the message says so.
func TestValuesThatLookLikeAReleaseAreTold(t *testing.T) {
	for value, explained := range map[string]bool{
		" false": true, "False": true, "FALSE\n": true, "no": true, "off": true, "0": true, "'false'": true, "null": true,
		"why": false, "no deployments at night": false, "": false,
	} {
		inBubble(t, syncgate.Options{}, []any{cluster(tu.Held("x", value))}, func(t *testing.T, f *fixture) {
			s := f.wantReason(syncgate.ReasonHeld)
			if got := strings.Contains(s.Message, "only \"false\" releases"); got != explained {
				t.Errorf("value %q: Message = %q; want that it is no release: %t", value, s.Message, explained)
			}
			if s.Holds[0].Reason != value {
				t.Errorf("Holds = %q; want the value %q as it is", s.Holds, value)
			}
		})
	}
}
