//go:build go1.25

package informer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

func forStream(t *testing.T, stream *testutil.Stream) *informer.Informer {
	t.Helper()
	inf, err := informer.ForHub(stream, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return inf
}

// follow runs an informer, and records "event name resourceVersion" of each event that a
// handler gets.
func follow(t *testing.T, inf *informer.Informer, size int) <-chan string {
	t.Helper()
	got := make(chan string, size)
	if _, err := inf.AddEventHandler(handlerOf(func(event string, obj any) {
		o := obj.(*unstructured.Unstructured)
		got <- event + " " + o.GetName() + " " + o.GetResourceVersion()
	})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return got
}

// An informer of client-go 0.32 passes on all waiting events of one object before those
// of the next object. A gate may open by the later of them, although an earlier event of
// another object keeps it closed.
func TestHandlersGetEventsInTheOrderOfTheServer(t *testing.T) {
	const n, objects = 20_000, 7
	stream := testutil.NewStream(n)
	got := follow(t, forStream(t, stream), 2*n)
	begin := time.Now()
	var want []string
	for i := range n {
		event, name := watch.Modified, "update"
		switch i / objects % 5 {
		case 0:
			event, name = watch.Added, "add"
		case 4:
			event, name = watch.Deleted, "delete"
		}
		obj := testutil.ManagedCluster("ns", fmt.Sprintf("c%d", i%objects), clusterID)
		want = append(want, name+" "+obj.GetName()+" "+stream.Send(event, obj))
	}
	timeout := time.After(time.Minute)
	for i := range want {
		select {
		case event := <-got:
			if event != want[i] {
				t.Fatalf("event %d = %q; want %q", i, event, want[i])
			}
		case <-timeout:
			t.Fatalf("got %d events in a minute; want %d", i, n)
		}
	}
	t.Logf("%d events in %v", n, time.Since(begin))
}

// client-go drops the deletion of an object that it does not have. The next event does
// not wait for it.
func TestDroppedEventsDelayNothing(t *testing.T) {
	for name, drop := range map[string]func(s *testutil.Stream){
		"deletion of an unknown object": func(s *testutil.Stream) {
			s.Send(watch.Deleted, testutil.ManagedCluster("ns", "unknown", clusterID))
		},
		"second deletion": func(s *testutil.Stream) {
			s.Send(watch.Deleted, testutil.ManagedCluster("ns", "a", clusterID))
			s.Send(watch.Deleted, testutil.ManagedCluster("ns", "a", clusterID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := testutil.NewStream(10)
				got := follow(t, forStream(t, stream), 10)
				stream.Send(watch.Added, testutil.ManagedCluster("ns", "a", clusterID))
				drop(stream)
				want := "add b " + stream.Send(watch.Added, testutil.ManagedCluster("ns", "b", clusterID))
				synctest.Wait() // no time passes
				for len(got) > 1 {
					<-got
				}
				if len(got) == 0 {
					t.Fatalf("got no event; want %q", want)
				} else if event := <-got; event != want {
					t.Errorf("last event = %q; want %q", event, want)
				}
			})
		})
	}
}

// The informer does not hold an event back for ever if it can't know what has become of
// the one before.
func TestEventWaitsForAnotherOnlyAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := testutil.NewStream(10)
		inf := forStream(t, stream)
		if err := inf.SharedIndexInformer.SetTransform(func(obj any) (any, error) { // not what Informer allows
			return obj.(*unstructured.Unstructured).DeepCopy(), nil
		}); err != nil {
			t.Fatal(err)
		}
		got := follow(t, inf, 10)
		for _, name := range []string{"a", "b", "c"} {
			stream.Send(watch.Added, testutil.ManagedCluster("ns", name, clusterID))
		}
		for _, want := range []string{"add a 2", "add b 3"} {
			synctest.Wait()
			if len(got) != 1 {
				t.Fatalf("got %d events; want 1: %q", len(got), want)
			} else if event := <-got; event != want {
				t.Errorf("event = %q; want %q", event, want)
			}
			time.Sleep(10 * time.Second)
		}
	})
}
