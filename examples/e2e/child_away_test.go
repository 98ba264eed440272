package e2e

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/syncgate"
)

// A child that does not answer, and then one that is down, delays no other. What shares
// workers with it would wait for longer than [fleettest.Soon]: a request may take half a
// minute, and there are more than two for each worker.
func TestChildAway(t *testing.T) {
	t.Parallel()
	f := fleettest.New(t, 2, syncgate.Push)
	var clusters []*cluster
	for i, c := range f.Children {
		c.Unregister()
		own := clusterOn(t, c, 400+i)
		own.Register(syncgate.Push)
		own.ReportAppPusher(true)
		clusters = append(clusters, own)
	}
	away, well := clusters[0], clusters[1]
	names := strings.Fields("a b c d e f g h i j")
	away.describeEach("0", names...)
	well.describeEach("0", names...)
	stop := push(f, clusters...)
	away.awaitEach("at first", "0", names...)
	well.awaitEach("at first", "0", names...)

	answer := make(chan struct{})
	var hanging atomic.Int64
	away.Intercept(func(r *http.Request) int {
		hanging.Add(1)
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		return 0
	})
	editBoth(away, well, names, "one hangs", "1", "2", "3")
	if hanging.Load() == 0 {
		t.Error("the child that hangs has had no request")
	}
	close(answer)
	began := time.Now()
	away.awaitEach("answering again", "3", names...)
	t.Logf("the child that hung has caught up in %v", time.Since(began))

	if err := away.Stop(); err != nil {
		t.Fatal(err)
	}
	editBoth(away, well, names, "one is down", "4", "5", "6")
	away.AwaitPhase("Failure", names[0])
	began = time.Now()
	stop()
	t.Logf("the hub has ended in %v while one is down", time.Since(began))
}

// editBoth edits the Descriptions of the child that is away, and then of the other.
func editBoth(away, well *cluster, names []string, how string, images ...string) {
	well.Helper()
	var longest time.Duration
	for _, image := range images {
		away.describeEach(image, names...)
		idle() // the workers of the child that is away get busy
		began := time.Now()
		well.describeEach(image, names...)
		well.awaitEach(how, image, names...)
		longest = max(longest, time.Since(began))
	}
	well.Logf("%s: an edit of %d Descriptions of the other takes up to %v", how, len(names), longest)
}
