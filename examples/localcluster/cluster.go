package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/localcluster/internal/control"
)

// pollInterval is how often something is asked that cannot be waited for.
const pollInterval = 20 * time.Millisecond

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

	// Handler wraps what answers the requests, for tests that record, delay or refuse them. nil: none. It
	// runs in this process, in a proxy in front of the server, and sees every request of a client before
	// authentication. The requests of the server itself, of Start and of Apply do not pass it, so that
	// refusing everything does not break the server. It is called once. A ResponseWriter of its own must
	// support http.Flusher (best through an Unwrap method), or watches hang. A delay must end with the
	// request's context. When the server breaks an answer off, the wrapped handler panics with
	// http.ErrAbortHandler, as a handler of net/http does; when the client does, it returns.
	Handler func(http.Handler) http.Handler
}

// Cluster is a running API server with its etcd. Its methods may be called at the same time.
type Cluster struct {
	config     *rest.Config // of the kubeconfig's user
	kubeconfig string
	port       int

	process *process
	control *controlClient
	proxy   *proxy         // nil without Options.Handler
	cleanup []func() error // run in reverse, last in Stop

	stop func() error // sync.OnceValue
}

// Start starts etcd and the API server in a process of their own and returns when the server is ready:
// /readyz is ok and CustomResourceDefinitions can be listed. It blocks for about a second; the first time on
// a machine it builds the program, see [Build].
//
// When ctx ends first, Start stops what it has started and returns an error that wraps context.Cause.
// Once Start has returned, ctx does not matter: only [Cluster.Stop] ends the cluster, or the end of this
// process. The error starts with what was attempted; nothing runs or is left behind then, except a DataDir
// that was given.
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
	ctx, resume, cancel := withoutDeadline(ctx)
	defer cancel()
	program, err := program(ctx)
	if err != nil {
		return nil, err
	}
	resume()

	c := &Cluster{}
	c.stop = sync.OnceValue(c.stopNow)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Kill())
		}
	}()
	temp, err := os.MkdirTemp("", "localcluster-")
	if err != nil {
		return nil, fmt.Errorf("creating a temporary directory (set TMPDIR to a writable one): %w", err)
	}
	c.cleanup = append(c.cleanup, func() error { return os.RemoveAll(temp) })
	data := opts.DataDir
	if data == "" {
		data = filepath.Join(temp, "data")
	}
	if err := c.startIn(ctx, data, temp, program, opts); err != nil {
		return nil, err
	}
	ctx, release := c.process.during(ctx)
	defer release()
	if err := c.control.waitReady(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the API server at %s to be ready: %w", c.config.Host, err)
	}
	c.kubeconfig = filepath.Join(data, "kubeconfig")
	if err := writeKubeconfig(c.kubeconfig, c.config); err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return c, nil
}

// startIn starts the server process on a data directory, and its proxy if it has one.
func (c *Cluster) startIn(ctx context.Context, data, temp, program string, opts Options) (err error) {
	lock, err := lockDir(data)
	if err != nil {
		return err
	}
	c.cleanup = append(c.cleanup, lock.Close)
	creds, err := loadOrCreateCredentials(filepath.Join(data, "pki"))
	if err != nil {
		return fmt.Errorf("preparing the certificate and token: %w", err)
	}

	front, err := listen(ctx, opts.Port) // the likeliest failure comes before what takes long
	if err != nil {
		return err
	}
	c.cleanup = append(c.cleanup, func() error { return closeListener(front) })
	c.port = front.Addr().(*net.TCPAddr).Port
	c.config = creds.config(front, creds.token)
	behind := front
	if opts.Handler != nil {
		if behind, err = listen(ctx, 0); err != nil {
			return err
		}
	}
	// Then the server process has it, and its end must close it.
	defer func() { err = errors.Join(err, closeListener(behind)) }()

	private := newToken()
	if c.control, err = newControlClient(creds.config(behind, private)); err != nil {
		return fmt.Errorf("creating a client of the API server: %w", err)
	}
	c.process, err = startProcess(ctx, program, control.Config{
		CA: creds.ca, Cert: creds.cert, Key: creds.key, Token: creds.token, Private: private,
		EtcdDir: filepath.Join(data, "etcd"), TempDir: temp,
	}, behind, lock.File)
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	if opts.Handler != nil {
		c.proxy, err = startProxy(front, creds, behind.Addr(), opts.Handler, c.process)
		if err != nil {
			return fmt.Errorf("starting a proxy for Options.Handler: %w", err)
		}
	}
	return nil
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
func (c *Cluster) Port() int { return c.port }

// Compact compacts etcd to its newest revision: it forgets every older state of every object. It blocks
// until that is done or ctx ends; the error then wraps the cause. On a stopped cluster it is an error.
//
// What clients see of it depends on the API server's watch cache, which is not compacted: while the cache of
// a resource lives, lists (exact ones too) and watches from versions that it holds are answered as before.
// The cache is new after a restart on the same DataDir and Port, and after Apply has changed the CRD. Then a
// list with resourceVersionMatch=Exact at an old version is answered 410 because of the compaction. A watch
// from a version older than the cache is answered 410 with or without compaction.
func (c *Cluster) Compact(ctx context.Context) error {
	ctx, cancel := c.process.during(ctx)
	defer cancel()
	if err := c.process.explain(ctx, c.control.compact(ctx)); err != nil {
		return fmt.Errorf("compacting etcd: %w", err)
	}
	return nil
}

// Stop ends the server, then etcd, closes every connection and removes what Start created, a given DataDir
// excepted. Open watches end first, without an error event; requests that a Handler holds back lose their
// connection. It blocks until all that is done: a fifth of a second as a rule, a few seconds when a request
// does not end, and when the server hangs, twenty until it is killed. A second call, also one at the same
// time, waits for the first and returns its error. The error says what did not end or could not be removed,
// and when the server had ended by itself before, why, with the last lines it wrote.
func (c *Cluster) Stop() error { return c.stop() }

// Kill is a Stop without notice, as by kill -9: the server answers nothing more, and its connections break.
// A later Start with the same DataDir (and Port) finds what was written before. It returns what Stop would.
func (c *Cluster) Kill() error {
	if c.process != nil {
		c.process.kill()
	}
	return c.Stop()
}

func (c *Cluster) stopNow() error {
	var errs []error
	if c.process != nil {
		if err := c.process.stop(); err != nil {
			errs = append(errs, fmt.Errorf("stopping the API server: %w", err))
		}
	}
	if c.proxy != nil {
		<-c.proxy.done
		if err := c.proxy.err; err != nil {
			errs = append(errs, fmt.Errorf("stopping the proxy for Options.Handler: %w", err))
		}
	}
	if c.control != nil {
		c.control.http.CloseIdleConnections()
	}
	for _, clean := range slices.Backward(c.cleanup) {
		if err := clean(); err != nil {
			errs = append(errs, fmt.Errorf("cleaning up after the local cluster: %w", err))
		}
	}
	return errors.Join(errs...)
}
