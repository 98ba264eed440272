//go:build !race

// Command apiserver is the server process of package localcluster: k8s.io/apiextensions-apiserver over an
// embedded etcd. Package localcluster builds and starts it; nobody else need.
//
// It is never built with the race detector, which would compile all of Kubernetes a second time. What can
// be tested without a server is in package localcluster, and its tests test this program too.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/localcluster/internal/control"
)

// Bounds of what a stop waits for: that watches and requests end, that the last answers get out, that the
// server or etcd ends at all, and the whole stop.
const (
	drainTime = 2 * time.Second
	flushTime = 100 * time.Millisecond
	giveUp    = 5 * time.Second
	endTime   = 14 * time.Second
)

func main() {
	// The parent process decides when this one ends. A terminal sends the first two to both. After the
	// parent's death a log line must not end this process before it has cleaned up.
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
	if err := run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until input ends.
func run(input io.Reader) (err error) {
	var config control.Config
	if err := json.NewDecoder(input).Decode(&config); err != nil {
		return fmt.Errorf("reading the configuration from standard input (package localcluster starts this program): %w", err)
	}
	cleanUp := func() error { return os.RemoveAll(config.TempDir) }
	defer func() { err = errors.Join(err, cleanUp()) }()
	klog.OsExit = func(code int) { // a server that is stopped while it starts ends so
		_ = cleanUp()
		os.Exit(code)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
		time.AfterFunc(endTime, func() { klog.Fatalf("still running %v after the parent's end", endTime) })
	}()

	listener, err := net.FileListener(os.NewFile(control.ListenerFD, "listener"))
	if err != nil {
		return fmt.Errorf("taking over the listener: %w", err)
	}
	conns := newConnTracker(listener)

	etcd, err := startEtcd(ctx, config.EtcdDir, filepath.Join(config.TempDir, "etcd.sock"))
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer func() {
		if stopErr := etcd.stop(); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("stopping etcd: %w", stopErr))
		}
	}()
	server, err := startAPIServer(config, conns, etcd)
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	select {
	case <-ctx.Done():
	case <-server.done:
		return fmt.Errorf("the API server has ended: %w", server.err)
	}
	if err := server.stop(); err != nil {
		return fmt.Errorf("stopping the API server: %w", err)
	}
	return nil
}
