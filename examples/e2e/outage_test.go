package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/syncgate"
)

// The server goes away and comes back with what happened in between.
func TestServerRestart(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		opts := localcluster.Options{DataDir: t.TempDir()}
		p := newParent(t, opts, localcluster.ManagedClusterCRD())
		opts.Port = p.Port()
		p.register("child", own)
		p.register("neighbour", other)
		p.patch("neighbour", pause)
		gate, paused, hub := p.agent(own), p.agent(other), p.hub()
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		fleettest.Eventually(t, soon, func() bool {
			return gate.Check(nil) != nil && paused.Check(nil) != nil && hub.Check(nil) != nil
		}, func() string {
			return fmt.Sprintf("Check() = %v, %v, %v with the server down; want errors", gate.Check(nil), paused.Check(nil), hub.Check(nil))
		})
		if gate.Paused() || !paused.Paused() || hub.Gate(own).Paused() || !hub.Gate(other).Paused() {
			t.Error("the outage changed a decision")
		}
		p.start(opts)
		if err := p.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.patch("child", pause)
		p.patch("neighbour", resume)
		awaitReason(t, syncgate.ReasonSyncPaused, gate, hub.Gate(own))
		awaitReason(t, syncgate.ReasonSyncAllowed, paused, hub.Gate(other))
		if err := errors.Join(gate.Check(nil), hub.Check(nil)); err != nil {
			t.Errorf("Check() = %v after the recovery", err)
		}
	})
}

// A gate that is refused keeps its state, and recovers by itself once it is allowed.
func TestForbiddenThenAllowed(t *testing.T) {
	var forbidden atomic.Bool
	cut := make(chan struct{})
	p := newParent(t, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if forbidden.Load() && r.Method == http.MethodGet {
				http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, http.StatusForbidden)
				return
			}
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			if r.URL.Query().Has("watch") {
				go func() {
					select {
					case <-cut:
						cancel()
					case <-ctx.Done():
					}
				}()
			}
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	gate := p.agent(own)
	forbidden.Store(true)
	close(cut)
	fleettest.Eventually(t, soon, func() bool {
		err := gate.Check(nil)
		return err != nil && strings.Contains(err.Error(), "allow this client to list and watch")
	}, func() string { return fmt.Sprintf("Check() = %v; want what to allow", gate.Check(nil)) })
	p.patch("child", pause)
	if gate.Paused() {
		t.Error("the refusal changed the decision")
	}
	forbidden.Store(false)
	awaitReason(t, syncgate.ReasonSyncPaused, gate)
}
