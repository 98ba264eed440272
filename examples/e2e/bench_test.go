package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/syncgate"
)

// BenchmarkFlipVersusWatch patches spec.syncPaused. For each patch it measures how long it
// takes until a bare watch of the same client has the event, and until Paused changes:
// from when the server has committed the patch, which is when its handler begins to
// answer. It reports medians in microseconds, and their ratio.
//
// The watch may have the event before the server has answered the patch: then the time is
// negative. So the medians from the start of the request are reported too.
func BenchmarkFlipVersusWatch(b *testing.B) {
	var committed atomic.Pointer[time.Time]
	p := newParent(b, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				w = &firstWrite{ResponseWriter: w, first: func() { now := time.Now(); committed.Store(&now) }}
			}
			next.ServeHTTP(w, r)
		})
	}}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	gate := p.agent(own)
	list, err := p.managedClusters().List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	w, err := p.managedClusters().Watch(b.Context(), metav1.ListOptions{
		FieldSelector: "spec.clusterId=" + own, ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	flips := flipsOf(ctx, gate)

	var watchSent, gateSent, watchCommitted, gateCommitted, lag []time.Duration
	b.ResetTimer()
	for i := range b.N {
		sent := time.Now()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			p.patch("child", fmt.Sprintf(`{"spec":{"syncPaused":%v}}`, i%2 == 0))
		}()
		event, flip := awaitBoth(b, w, flips)
		<-answered
		at := *committed.Load()
		watchSent, gateSent = append(watchSent, event.Sub(sent)), append(gateSent, flip.Sub(sent))
		watchCommitted, gateCommitted = append(watchCommitted, event.Sub(at)), append(gateCommitted, flip.Sub(at))
		lag = append(lag, flip.Sub(event))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(watchCommitted), "watch-µs")
	b.ReportMetric(micros(gateCommitted), "gate-µs")
	b.ReportMetric(micros(watchSent), "watch-from-sent-µs")
	b.ReportMetric(micros(gateSent), "gate-from-sent-µs")
	b.ReportMetric(micros(gateSent)/micros(watchSent), "gate/watch")
	b.ReportMetric(micros(lag), "lag-µs")
}

// flipsOf sends when a gate has closed and opened. A State says since when it is: its
// notification takes longer.
func flipsOf(ctx context.Context, gate *syncgate.Gate) <-chan time.Time {
	flips := make(chan time.Time)
	go func() {
		defer close(flips)
		for {
			for _, wait := range []func(context.Context) error{gate.WaitDrained, gate.WaitOpen} {
				if wait(ctx) != nil {
					return
				}
				select {
				case flips <- gate.State().Since:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return flips
}

// awaitBoth waits until the watch has an event and the gate has flipped.
func awaitBoth(b *testing.B, w watch.Interface, flips <-chan time.Time) (event, flip time.Time) {
	for event.IsZero() || flip.IsZero() {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				b.Fatal("the bare watch has ended")
			}
			if e.Type == watch.Modified && e.Object.(*unstructured.Unstructured).GetName() == "child" {
				event = time.Now()
			}
		case flip = <-flips:
		}
	}
	return event, flip
}

func micros(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2]) / float64(time.Microsecond)
}

// firstWrite calls first when a response begins.
type firstWrite struct {
	http.ResponseWriter
	once  sync.Once
	first func()
}

func (w *firstWrite) WriteHeader(code int) {
	w.once.Do(w.first)
	w.ResponseWriter.WriteHeader(code)
}

func (w *firstWrite) Write(b []byte) (int, error) {
	w.once.Do(w.first)
	return w.ResponseWriter.Write(b)
}

func (w *firstWrite) Unwrap() http.ResponseWriter { return w.ResponseWriter }
