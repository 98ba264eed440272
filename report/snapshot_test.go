//go:build go1.25

package report

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// The gate of this test closes again and again, but never without an operation in
// flight. So a snapshot that shows it drained has counted after it had opened.
func TestSnapshotNeverTakesAnOpenGateForDrained(t *testing.T) {
	const id = "6f1f5ae2"
	source := tu.NewSource()
	hub, err := syncgate.NewHub(source, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	defer cancel()
	goroutines.Go(func() {
		if err := hub.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	open := tu.ManagedCluster("ns", "child", id)
	for source.Handlers() == 0 {
		time.Sleep(time.Millisecond)
	}
	source.Add(open)
	source.Sync()
	if err := hub.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	gate := hub.Gate(id)
	var stop atomic.Bool
	defer stop.Store(true)
	goroutines.Go(func() {
		for !stop.Load() {
			toggleWithOperation(ctx, source, gate, open)
		}
	})
	for closed := 0; closed < 2000; {
		if ctx.Err() != nil {
			t.Fatalf("snapshots of the closed gate in a minute = %d; want 2000", closed)
		}
		s := snapshotOf(gate)
		if !s.state.Paused {
			continue
		}
		closed++
		if s.inFlight == 0 {
			t.Fatal("a gate that closes with an operation in flight only is taken for drained")
		}
	}
}

// toggleWithOperation closes and opens a gate while an operation is in flight.
func toggleWithOperation(ctx context.Context, source *tu.Source, gate *syncgate.Gate, open *unstructured.Unstructured) {
	paused := tu.With(open, tu.Paused(true))
	running, end := make(chan struct{}), make(chan struct{})
	var operation sync.WaitGroup
	defer operation.Wait()
	defer close(end)
	operation.Go(func() {
		_ = gate.Do(ctx, func(context.Context) error { close(running); <-end; return nil })
	})
	select {
	case <-running:
		source.Update(open, paused)
		source.Update(paused, open)
	case <-ctx.Done():
	}
}
