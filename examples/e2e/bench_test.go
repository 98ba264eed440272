package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
)

// BenchmarkFlipVersusWatch patches spec.syncPaused and takes, for each patch, how
// long it is until a bare watch of the same client shows it and until Paused does:
// from when the server has committed it, that is from when its handler begins to
// answer. It reports medians in microseconds, and their ratio.
//
// The watch may show a patch before the server has answered it: then the time is
// negative. So the medians from the start of the request are reported too.
func BenchmarkFlipVersusWatch(b *testing.B) {
	var mu sync.Mutex
	var committed time.Time
	p := newParent(b, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				w = &firstWrite{ResponseWriter: w, first: func() {
					mu.Lock()
					defer mu.Unlock()
					committed = time.Now()
				}}
			}
			next.ServeHTTP(w, r)
		})
	}}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	gate := p.agent(own)

	list, err := p.client.Resource(informer.Resource).Namespace(namespace).List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	w, err := p.client.Resource(informer.Resource).Namespace(namespace).Watch(b.Context(), metav1.ListOptions{
		FieldSelector: "spec.clusterId=" + own, ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()

	var watchSent, gateSent, watchCommitted, gateCommitted, lag []time.Duration
	// A State tells since when it is: the news of it takes longer.
	flips := make(chan time.Time)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer close(flips)
		for gate.WaitDrained(ctx) == nil {
			select {
			case flips <- gate.State().Since:
			case <-ctx.Done():
				return
			}
			if gate.WaitOpen(ctx) != nil {
				return
			}
			select {
			case flips <- gate.State().Since:
			case <-ctx.Done():
				return
			}
		}
	}()
	b.ResetTimer()
	for i := range b.N {
		sent := time.Now()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			p.patch("child", fmt.Sprintf(`{"spec":{"syncPaused":%v}}`, i%2 == 0))
		}()
		var shown, flipped time.Time
		for shown.IsZero() || flipped.IsZero() {
			select {
			case event, ok := <-w.ResultChan():
				if !ok {
					b.Fatal("the bare watch has ended")
				}
				if event.Type == watch.Modified && event.Object.(*unstructured.Unstructured).GetName() == "child" {
					shown = time.Now()
				}
			case flipped = <-flips:
			}
		}
		<-answered
		mu.Lock()
		at := committed
		mu.Unlock()
		watchSent, gateSent = append(watchSent, shown.Sub(sent)), append(gateSent, flipped.Sub(sent))
		watchCommitted, gateCommitted = append(watchCommitted, shown.Sub(at)), append(gateCommitted, flipped.Sub(at))
		lag = append(lag, flipped.Sub(shown))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(micros(watchCommitted), "watch-µs")
	b.ReportMetric(micros(gateCommitted), "gate-µs")
	b.ReportMetric(micros(watchSent), "watch-from-sent-µs")
	b.ReportMetric(micros(gateSent), "gate-from-sent-µs")
	b.ReportMetric(micros(gateSent)/micros(watchSent), "gate/watch")
	b.ReportMetric(micros(lag), "lag-µs")
}

func micros(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2]) / float64(time.Microsecond)
}

// firstWrite tells when a response begins.
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
