//go:build go1.25

package informer_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

// An informer is to stop at once, whatever the server does just then.
func TestStopsPromptly(t *testing.T) {
	situations := append([]struct {
		name  string
		fault testutil.Fault
		want  []string
	}{
		{"none", testutil.Fault{}.On("none"), nil},
		{"hanging", testutil.Hang, nil},
		{"hanging lists", testutil.Hang.On(testutil.List), nil},
		{"hanging watches", testutil.Hang.On(testutil.Watch, testutil.WatchList), nil},
	}, slices.Concat(faults, streamFaults)...)
	for _, s := range situations {
		for when, outage := range map[string]time.Duration{
			"at once":       0,
			"in backoff":    100 * time.Millisecond,
			"after a while": 10 * time.Minute,
		} {
			t.Run(s.name+" "+when, func(t *testing.T) {
				eachWay(t, func(t *testing.T, _ way) {
					server := newServer(t, mine("own"))
					server.Fail(s.fault)
					inf := forCluster(t, server, informer.Auto)
					stop := run(t, server, inf) // which checks it
					if outage > 0 {
						pass(outage)
					}
					stop()
				})
			})
			t.Run(s.name+" at run time, "+when, func(t *testing.T) {
				eachWay(t, func(t *testing.T, _ way) {
					server := newServer(t, mine("own"))
					inf := forCluster(t, server, informer.Auto)
					stop := run(t, server, inf)
					pass(20 * time.Second)
					server.Fail(s.fault)
					server.CutWatches()
					synctest.Wait()
					if outage > 0 {
						pass(outage)
					}
					stop()
				})
			})
		}
	}
}

// lingering is a client whose requests take half a second to heed their context.
type lingering struct {
	dynamic.NamespaceableResourceInterface // nil: what is not overridden is not for use

	begun, ended atomic.Int32
}

func (l *lingering) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return l
}

func (l *lingering) Namespace(string) dynamic.ResourceInterface { return l }

func (l *lingering) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return nil, l.wait(ctx)
}

func (l *lingering) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	return nil, l.wait(ctx)
}

func (l *lingering) wait(ctx context.Context) error {
	l.begun.Add(1)
	<-ctx.Done()
	<-time.After(500 * time.Millisecond)
	l.ended.Add(1)
	return ctx.Err()
}

func TestRunReturnsAfterItsRequests(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		client := &lingering{}
		inf, err := informer.ForCluster(client, namespace, clusterID, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		inf.RunWithContext(ctx)
		if begun, ended := client.begun.Load(), client.ended.Load(); begun == 0 || begun != ended {
			t.Errorf("requests begun and ended when Run returned = %d and %d; want the same, not zero", begun, ended)
		}
	})
}

func TestRunTwice(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		stop := run(t, server, inf)
		begin := time.Now()
		inf.RunWithContext(t.Context())
		inf.Run(t.Context().Done())
		wantHealthy(t, inf, "after a second Run")
		stop()
		inf.RunWithContext(t.Context())
		inf.Run(t.Context().Done())
		if took := time.Since(begin); took != 0 {
			t.Errorf("later calls of Run took %v; want none", took)
		}
	})
}

func TestRunWithStopChannel(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			inf.Run(stop)
		}()
		synctest.Wait()
		wantHealthy(t, inf, "after the start")
		close(stop)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("Run goes on after stop was closed")
			<-done
		}
		if !inf.IsStopped() {
			t.Error("IsStopped() after the end = false; want true")
		}
	})
}

func TestRunOfTheEmbeddedInformer(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		server := newServer(t, mine("own"))
		inf := forCluster(t, server, informer.Auto)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.SharedIndexInformer.Run(ctx.Done())
		}()
		pass(time.Minute)
		wantErr(t, inf, "after Run of the embedded informer", "not run yet", "call Run of the *Informer")
		wantWire(t, server, "after Run of the embedded informer", []string{})
		cancel()
		<-done
	})
}

// This one runs in real time, so that goleak sees what a bubble would hide.
func TestNoGoroutineIsLeft(t *testing.T) {
	server := testutil.NewAPIServer(mine("own"))
	defer goleak.VerifyNone(t)
	defer server.Close()
	for i := range 200 {
		inf := forCluster(t, server, informer.Auto)
		added := make(chan struct{})
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { close(added) }}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			inf.RunWithContext(ctx)
		}()
		if i%2 == 0 { // every other one ends as it starts
			<-added
		}
		cancel()
		<-done
	}
}

// tardy is a client whose watches open after their context has ended.
type tardy struct {
	lingering
	opened chan *watch.FakeWatcher
}

func (c *tardy) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}

func (c *tardy) Namespace(string) dynamic.ResourceInterface { return c }

func (c *tardy) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetResourceVersion("1")
	return list, nil
}

func (c *tardy) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	_ = c.wait(ctx)
	w := watch.NewFake()
	c.opened <- w
	return w, nil
}

func TestLateWatchIsStopped(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		client := &tardy{opened: make(chan *watch.FakeWatcher, 10)}
		inf, err := informer.ForCluster(client, namespace, clusterID, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		inf.RunWithContext(ctx)
		pass(time.Second)
		close(client.opened)
		n := 0
		for w := range client.opened {
			n++
			if !w.IsStopped() {
				t.Error("a watch that opened after the end of Run is not stopped")
			}
		}
		if n == 0 {
			t.Error("no watch was opened; want one")
		}
	})
}
