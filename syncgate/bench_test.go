package syncgate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

var sink atomic.Int64

// BenchmarkPaused compares Gate.Paused with the load of an atomic pointer, for one
// reader and for one reader on each processor.
func BenchmarkPaused(b *testing.B) {
	hub, _ := running(b, cluster())
	gate := hub.Gate(id)
	var pointer atomic.Pointer[int]
	for name, closed := range map[string]func() bool{
		"pointer": func() bool { return pointer.Load() != nil },
		"gate":    gate.Paused,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if closed() {
					b.Fatal("closed")
				}
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if closed() {
						sink.Add(1)
					}
				}
			})
		})
	}
}

// BenchmarkHubGatePaused reads one gate of a hub with 100,000 clusters, and all of
// them in random order. Random order measures mostly the caches of the machine, so
// a plain map is measured too.
func BenchmarkHubGatePaused(b *testing.B) {
	const clusters = 100_000
	objects := make([]any, clusters)
	ids := make([]types.UID, clusters)
	for i := range objects {
		// An ID is 36 characters long.
		ids[i] = types.UID(fmt.Sprintf("%08d-0e33-4f3c-9a0e-5a2f1c0d7e11", i))
		objects[i] = tu.ManagedCluster(fmt.Sprint("ns", i), "child", string(ids[i]))
	}
	hub, _ := running(b, objects...)
	bare := make(map[types.UID]*atomic.Bool, clusters)
	for _, id := range ids {
		bare[id] = new(atomic.Bool)
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if hub.Gate(ids[77]).Paused() {
				b.Fatal("closed")
			}
		}
	})
	rand.Shuffle(clusters, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if hub.Gate(ids[i%clusters]).Paused() {
				b.Fatal("closed")
			}
		}
	})
	b.Run("all/bare map", func(b *testing.B) {
		for i := range b.N {
			if bare[ids[i%clusters]].Load() {
				b.Fatal("closed")
			}
		}
	})
}

func BenchmarkDo(b *testing.B) {
	obj := cluster()
	hub, source := running(b, obj)
	gate := hub.Gate(id)
	ctx := context.Background()
	nothing := func(context.Context) error { return nil }
	b.Run("admitted", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if err := gate.Do(ctx, nothing); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("nested", func(b *testing.B) {
		b.ReportAllocs()
		_ = gate.Do(ctx, func(ctx context.Context) error {
			for range b.N {
				if err := gate.Do(ctx, nothing); err != nil {
					b.Fatal(err)
				}
			}
			return nil
		})
	})
	source.Update(obj, tu.With(obj, tu.Paused(true)))
	b.Run("refused", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if err := gate.Do(ctx, nothing); err == nil {
				b.Fatal("admitted")
			}
		}
	})
}

// BenchmarkHeartbeat measures the handler for an update of the status only.
func BenchmarkHeartbeat(b *testing.B) {
	for name, opts := range map[string][]tu.Option{"open": nil, "held": {tu.Paused(true), tu.Held("backup", "nightly")}} {
		b.Run(name, func(b *testing.B) {
			obj := cluster(append(opts, tu.Heartbeat(time.Unix(0, 0)))...)
			next := tu.With(obj, tu.Heartbeat(time.Unix(180, 0)))
			_, source := running(b, obj)
			handler := source.Handler()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				handler.OnUpdate(obj, next)
			}
		})
	}
}

// BenchmarkFlip measures a decision, from the event until Paused returns it.
func BenchmarkFlip(b *testing.B) {
	open := cluster()
	paused := tu.With(open, tu.Paused(true))
	hub, source := running(b, open)
	gate, handler := hub.Gate(id), source.Handler()
	defer gate.OnChange(func(syncgate.Change) {})()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if i%2 == 0 {
			handler.OnUpdate(open, paused)
		} else {
			handler.OnUpdate(paused, open)
		}
		if gate.Paused() != (i%2 == 0) {
			b.Fatal("not flipped")
		}
	}
}

// BenchmarkReplay requeues 100,000 keys into a workqueue, and compares that with
// adding them without a backlog. It reports the memory of a parked key.
func BenchmarkReplay(b *testing.B) {
	const keys = 100_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("namespace/description-%d", i)
	}
	b.Run("workqueue alone", func(b *testing.B) {
		for range b.N {
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
			for _, name := range names {
				queue.Add(name)
			}
			queue.ShutDown()
		}
	})
	b.Run("backlog", func(b *testing.B) { benchmarkReplay(b, names) })
}

func benchmarkReplay(b *testing.B, names []string) {
	keys := len(names)
	paused := cluster(tu.Paused(true))
	open := tu.With(paused, tu.Paused(false))
	hub, source := running(b, paused)
	gate := hub.Gate(id)
	for range b.N {
		b.StopTimer()
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		backlog := syncgate.NewBacklog(queue.Add)
		before := heap()
		for _, name := range names {
			if parked, err := backlog.Do(context.Background(), gate, name, nothing); !parked || err != nil {
				b.Fatal(parked, err)
			}
		}
		b.ReportMetric(float64(heap()-before)/float64(keys), "bytes/key")
		b.StartTimer()
		source.Update(paused, open)
		for backlog.Len() > 0 || queue.Len() < keys {
			time.Sleep(100 * time.Microsecond)
		}
		b.StopTimer()
		queue.ShutDown()
		source.Update(open, paused)
	}
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
