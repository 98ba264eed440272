package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// pollInterval is how often something is asked that cannot be waited for.
const pollInterval = 20 * time.Millisecond

// Bounds of what Stop waits for: that watches and requests end, that the last answers get out, and that a
// server or an etcd ends at all, which Stop reports when it does not.
const (
	drainTime = 2 * time.Second
	flushTime = 100 * time.Millisecond
	giveUp    = 5 * time.Second
)

// Options of [Start]. The zero value is a fresh cluster that leaves nothing behind.
type Options struct {
	// DataDir is where the cluster keeps its objects, keys and kubeconfig. "": a temporary directory,
	// removed by Stop. Given: created when absent and kept, so that a later Start with the same DataDir
	// (and Port) is the same cluster restarted, with the same resource versions, token and certificate.
	// It survives a killed process but not a power cut: nothing is synced to disk.
	DataDir string

	// Port on 127.0.0.1. 0: chosen by the kernel. Given: that port, so that clients survive a restart. (It
	// is free in between, and the kernel may give it away: restart without delay.)
	Port int

	// Handler wraps the server's whole handler chain, for tests that record, delay or refuse requests.
	// nil: none. It sees every request with the kubeconfig's token or none, before authentication; the
	// server's own loopback requests, Start's and Apply's pass it by, so that refusing everything does
	// not break the server. It is called once. A ResponseWriter of its own must support http.Flusher
	// (best through an Unwrap method), or watches hang. A delay should end with the request's context.
	Handler func(http.Handler) http.Handler
}

// Cluster is a running API server with its etcd. Its methods may be called at the same time.
type Cluster struct {
	config     *rest.Config // of the kubeconfig's user
	kubeconfig string

	etcd    *etcdServer
	server  *apiServer
	cleanup []func() error // run in reverse, last in Stop

	stop func() error // sync.OnceValue
}

// Start starts etcd and the API server in this process and returns when the server is ready: /readyz is
// ok and CustomResourceDefinitions can be listed. It blocks for a fraction of a second.
//
// When ctx ends first, Start stops what it has started and returns an error that wraps context.Cause.
// Once Start has returned, ctx does not matter: only [Cluster.Stop] ends the cluster. The error starts with
// what was attempted; nothing runs or is left behind then, except a DataDir that was given.
//
// Start may be called many times in a process, and several clusters may run at once.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	if ctx == nil {
		return nil, errors.New("starting a local cluster: the context is nil; pass context.Background()")
	}
	if opts.Port < 0 || opts.Port > 65535 {
		return nil, fmt.Errorf("starting a local cluster: port %d: want 0 (any) to 65535", opts.Port)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("starting a local cluster: %w", context.Cause(ctx))
	}

	c := &Cluster{}
	c.stop = sync.OnceValue(c.stopNow)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()

	// The socket of etcd lives here even when DataDir is given: a socket's path must be short.
	temp, err := os.MkdirTemp("", "localcluster-")
	if err != nil {
		return nil, fmt.Errorf("creating a temporary directory (set TMPDIR to a writable one): %w", err)
	}
	c.cleanup = append(c.cleanup, func() error { return os.RemoveAll(temp) })

	dir := opts.DataDir
	if dir == "" {
		dir = filepath.Join(temp, "data")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	// Without this lock a second etcd on the directory would wait for the first one for ever.
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory %s (stop the cluster that uses it, or choose another one): %w", dir, err)
	}
	c.cleanup = append(c.cleanup, lock.Close)

	creds, err := loadOrCreateCredentials(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, fmt.Errorf("preparing the certificate and token: %w", err)
	}

	// First the port: that it is taken is the likeliest failure.
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(opts.Port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s (choose another Port, or 0 for any): %w", address, err)
	}
	conns := newConnTracker(listener)
	c.cleanup = append(c.cleanup, conns.Close)
	c.config = &rest.Config{
		Host:            "https://" + listener.Addr().String(),
		BearerToken:     creds.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: creds.ca},
		QPS:             -1, // no limit on the client's side: a test waits for the server only
	}

	c.etcd, err = startEtcd(ctx, filepath.Join(dir, "etcd"), filepath.Join(temp, "etcd.sock"))
	if err != nil {
		return nil, fmt.Errorf("starting etcd: %w", err)
	}

	loopback := rest.CopyConfig(c.config)
	loopback.BearerToken = newToken()
	// The context only carries the logger; the server ends in Stop.
	c.server, err = startAPIServer(klog.NewContext(context.Background(), logr.Discard()), serverOptions{
		conns: conns, creds: creds, loopback: loopback, etcd: c.etcd.endpoint, wrap: opts.Handler,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	if err := c.server.waitReady(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the API server at %s to be ready: %w", c.config.Host, err)
	}

	c.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := writeKubeconfig(c.kubeconfig, c.config); err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return c, nil
}

// Config returns a copy of the client configuration of an administrator, without a limit on the client's
// side (QPS -1). It does no I/O, and stays valid when the cluster is restarted with the same DataDir and Port.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig file with the same access as [Cluster.Config], for
// kubectl --kubeconfig. It is in DataDir, and so gone after Stop when that is temporary.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// URL returns where the API server is: https://127.0.0.1:port.
func (c *Cluster) URL() string { return c.config.Host }

// Port returns the port of the API server, to be given to a later Start.
func (c *Cluster) Port() int { return c.server.port }

// Compact compacts etcd to its newest revision: it forgets every older state of every object. It blocks
// until that is done or ctx ends; the error then wraps the cause. On a stopped cluster it is an error.
//
// What clients see of it depends on the API server's watch cache, which is not compacted: while the cache of
// a resource lives, lists (exact ones too) and watches from versions that it holds are answered as before.
// The cache is new after a restart on the same DataDir and Port, and after Apply has changed the CRD. Then a
// list with resourceVersionMatch=Exact at an old version is answered 410 because of the compaction. A watch
// from a version older than the cache is answered 410 with or without compaction.
func (c *Cluster) Compact(ctx context.Context) error {
	if err := c.etcd.compact(ctx); err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}

// Stop ends the server, then etcd, closes every connection and removes what Start created, a given DataDir
// excepted. Open watches end first, without an error event; requests that a Handler holds back lose their
// connection. It blocks until all that is done: a fifth of a second as a rule, a few seconds when a request
// does not end, twenty when something hangs. A second call, also one at the same time, waits for the first
// and returns its error, which says what did not end or could not be removed.
func (c *Cluster) Stop() error { return c.stop() }

func (c *Cluster) stopNow() error {
	var errs []error
	if c.server != nil {
		if err := c.server.stop(); err != nil {
			err = fmt.Errorf("stopping the API server: %w", err)
			if errors.Is(err, errLeftRunning) {
				return err // it would panic without its listener
			}
			errs = append(errs, err)
		}
	}
	if c.etcd != nil {
		if err := c.etcd.stop(); err != nil {
			errs = append(errs, fmt.Errorf("stopping etcd: %w", err))
		}
	}
	for i := len(c.cleanup) - 1; i >= 0; i-- {
		if err := c.cleanup[i](); err != nil {
			errs = append(errs, fmt.Errorf("cleaning up after the local cluster: %w", err))
		}
	}
	return errors.Join(errs...)
}

func writeKubeconfig(path string, config *rest.Config) error {
	const name = "localcluster"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	kubeconfig.CurrentContext = name
	return clientcmd.WriteToFile(*kubeconfig, path)
}

// connTracker is a listener that can close the connections it accepted.
type connTracker struct {
	net.Listener

	mu     sync.Mutex
	conns  map[*trackedConn]struct{} // guarded by mu
	closed bool                      // guarded by mu
}

type trackedConn struct {
	net.Conn
	tracker *connTracker
}

func newConnTracker(listener net.Listener) *connTracker {
	return &connTracker{Listener: listener, conns: map[*trackedConn]struct{}{}}
}

func (t *connTracker) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, tracker: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	t.conns[tracked] = struct{}{}
	return tracked, nil
}

// Close closes the listener only, as the HTTP server expects it; twice is no error.
func (t *connTracker) Close() error {
	if err := t.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// closeConns closes every connection, and those still to be accepted.
func (t *connTracker) closeConns() {
	t.mu.Lock()
	t.closed = true
	conns := make([]*trackedConn, 0, len(t.conns))
	for conn := range t.conns {
		conns = append(conns, conn)
	}
	t.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.conns, c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}
