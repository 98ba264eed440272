package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apiserver/pkg/server/healthz"
)

// Serve serves /healthz (it runs), /readyz (the checks) and /metrics until ctx ends.
// A nil listener serves nothing.
func Serve(ctx context.Context, listener net.Listener, registry *prometheus.Registry, checks ...healthz.HealthChecker) error {
	if listener == nil {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	healthz.InstallHandler(mux)
	healthz.InstallReadyzHandler(mux, checks...)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = server.Close() // nobody waits for what it has to tell
	})
	err := server.Serve(listener)
	if !stop() {
		<-closed
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving health and metrics on %s: %w", listener.Addr(), err)
	}
	return nil
}
