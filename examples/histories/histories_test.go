// Package histories checks random histories of pauses against rules. Clients pause,
// resume and edit through a real API server, two parties deploy and report, and
// everything between them and in the server fails at times. Each event is recorded, and a
// checker decides from the record alone whether a promise was broken.
//
// TESTING.md at the root of the repository says what is claimed, how to run it for
// longer, and how to replay a seed.
package histories

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/examples/localcluster"
)

var (
	seedFlag  = flag.Uint64("seed", 1, "of the choices of all histories")
	firstFlag = flag.Int("first", 0, "the first shard")
	lastFlag  = flag.Int("last", -1, "the last shard; -1: as many as make a test of a few minutes")
	sizeFlag  = flag.Int("size", 50, "how many histories share an API server, which is a shard")
	dumpFlag  = flag.String("dump", "", "a file for the events of the histories that break a rule")
)

// patience is how long must-happens are waited for. It is generous: nothing here is about
// speed, and the machine may be busy.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go logs a lot about the faults that these tests make.
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.SetLogger(logr.Discard())
	}
	leaks.Main(m)
}

func TestHistories(t *testing.T) {
	if err := localcluster.Build(context.Background()); err != nil {
		t.Fatal(err)
	}
	last := *lastFlag
	if last < 0 {
		last = *firstFlag + 1
		if testing.Short() {
			last = *firstFlag
		}
	}
	total := totals{checked: map[string]int{}, faults: map[string]int64{}}
	for number := *firstFlag; number <= last; number++ {
		t.Run(fmt.Sprintf("shard=%d", number), func(t *testing.T) { runShard(t, number, &total) })
	}
	t.Logf("%v", &total)
	for _, r := range rules {
		if total.checked[r.name] == 0 {
			t.Errorf("nothing has happened that could break the rule %q", r.name)
		}
	}
}

func runShard(t *testing.T, number int, total *totals) {
	fleettest.SetWatchList(t, number%2 == 0)
	began := time.Now()
	s := newShard(t, *seedFlag, number, *sizeFlag)
	s.run(t.Context())
	for _, namespace := range slices.Sorted(maps.Keys(s.clusters)) {
		c := s.clusters[namespace]
		h := s.history(c)
		violations := check(h, total.checked)
		for _, v := range violations {
			t.Errorf("%s: %v", c.namespace, v)
		}
		if len(violations) > 0 {
			dump(t, h)
		}
		total.add(c, h)
	}
	t.Logf("%d histories in %v, %v of them with faults, server: %v", len(s.clusters), time.Since(began).Round(time.Second), s.lived.Round(time.Second), s.troubles)
	for kind, n := range s.troubles {
		total.faults["server: "+kind] += int64(n)
	}
	if t.Failed() {
		t.Errorf("to run this shard again: go test -C examples ./histories -run TestHistories -count 1 -args -seed %d -size %d -first %d -last %d",
			*seedFlag, *sizeFlag, number, number)
	}
}

func dump(t *testing.T, h *History) {
	if *dumpFlag == "" {
		return
	}
	f, err := os.OpenFile(*dumpFlag, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = f.Close() }()
	events := slices.Clone(h.Events)
	slices.SortStableFunc(events, func(a, b Event) int { return int(min(max(a.End-b.End, -1), 1)) })
	for _, e := range events {
		_, _ = fmt.Fprintln(f, e, e.Condition)
	}
}

// totals are the figures of a run.
type totals struct {
	histories, events, acknowledged, restarts int
	operations, writes                        int64
	checked                                   map[string]int
	faults                                    map[string]int64
}

func (n *totals) add(c *cluster, h *History) {
	n.histories++
	n.events += len(h.Events)
	n.acknowledged += int(c.acknowledged.Load())
	n.restarts += int(c.restarts.Load())
	n.operations += c.ops
	n.writes += c.child.writes.Load()
	c.faults.Range(func(kind, count any) bool {
		n.faults[string(kind.(fault))] += count.(*atomic.Int64).Load()
		return true
	})
}

func (n *totals) String() string {
	return fmt.Sprintf("%d histories, %d operations, %d writes, %d pauses waited for, %d processes, %d events\nchecked: %v\nfaults: %v",
		n.histories, n.operations, n.writes, n.acknowledged, n.restarts, n.events, n.checked, n.faults)
}
