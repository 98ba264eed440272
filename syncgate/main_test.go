package syncgate_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
)

const (
	ns = "clusternet-abcde"
	id = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
)

// nothing is an operation that does nothing.
var nothing = func(context.Context) error { return nil }

func TestMain(m *testing.M) { tu.Main(m) }

// cluster returns the ManagedCluster "child" of cluster id.
func cluster(opts ...tu.Option) *unstructured.Unstructured {
	return tu.ManagedCluster(ns, "child", id, opts...)
}

// start calls run in a goroutine. stop ends its context, waits for its end, and
// checks that it returned nil. The end of the test calls stop too.
func start(ctx context.Context, tb testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run = %v; want nil", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// patience returns a context for what must happen, however busy the machine is.
func patience(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}
