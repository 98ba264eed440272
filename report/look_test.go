//go:build go1.25

package report

import (
	"context"
	"sync"
	"testing"
	"time"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// The gate of this test closes again and again, but never without an operation in
// flight: whoever sees it drained has counted after it had opened.
func TestLookNeverTakesAnOpenGateForDrained(t *testing.T) {
	const id = "6f1f5ae2"
	source := tu.NewSource()
	hub, err := syncgate.NewHub(source, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Add(1)
	go func() {
		defer parts.Done()
		if err := hub.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	open := tu.ManagedCluster("ns", "child", id)
	paused := tu.With(open, tu.Paused(true))
	for source.Handlers() == 0 {
		time.Sleep(time.Millisecond)
	}
	source.Add(open)
	source.Sync()
	if err := hub.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	gate := hub.Gate(id)

	stop, toggled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(toggled)
		for {
			running, end := make(chan struct{}), make(chan struct{})
			var operation sync.WaitGroup
			operation.Add(1)
			go func() {
				defer operation.Done()
				_ = gate.Do(ctx, func(context.Context) error { close(running); <-end; return nil })
			}()
			<-running
			source.Update(open, paused)
			source.Update(paused, open)
			close(end)
			operation.Wait()
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	closings := 0
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		v := look(gate)
		if v.state.Paused {
			closings++
			if v.inFlight == 0 {
				t.Error("a gate that closes with an operation in flight only looks drained")
				break
			}
		}
	}
	close(stop)
	<-toggled
	if closings == 0 {
		t.Error("the gate was never seen closed")
	}
}
