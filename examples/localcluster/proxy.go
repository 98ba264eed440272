package localcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/clusternet/syncgate/examples/localcluster/internal/control"
)

// Bounds of what the end of a proxy waits for: that the last answers get out, and that requests end.
const (
	flushTime = 100 * time.Millisecond
	giveUp    = 5 * time.Second
)

// proxy passes requests through Options.Handler to the server process.
type proxy struct {
	server    *http.Server
	transport *http.Transport
	forwarded atomic.Int64  // requests at the server process
	requests  atomic.Int64  // those, and the ones that the Handler holds back
	served    chan error    // of Serve
	done      chan struct{} // closed when the proxy has ended
	err       error         // of its end; read after done
}

// startProxy serves until p has ended.
func startProxy(listener net.Listener, creds *credentials, server net.Addr, wrap func(http.Handler) http.Handler, p *process) (*proxy, error) {
	cert, err := tls.X509KeyPair(creds.cert, creds.key)
	if err != nil {
		return nil, fmt.Errorf("loading its certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(creds.ca)
	x := &proxy{
		transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true, DisableCompression: true,
		},
		served: make(chan error, 1), done: make(chan struct{}),
	}
	quiet := log.New(io.Discard, "", 0) // each connection that a client gives up would be a line
	handler := wrap(x.forward(&url.URL{Scheme: "https", Host: server.String()}, quiet))
	x.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x.requests.Add(1)
			defer x.requests.Add(-1)
			handler.ServeHTTP(w, r)
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: control.MaxStreams},
		ErrorLog:  quiet,
	}
	go func() { x.served <- x.server.ServeTLS(listener, "", "") }()
	go func() {
		defer close(x.done)
		<-p.done
		x.err = x.end()
	}()
	return x, nil
}

// forward passes a request on as it is, and the answer back as it comes.
func (x *proxy) forward(target *url.URL, quiet *log.Logger) http.Handler {
	reverse := &httputil.ReverseProxy{
		Transport: x.transport, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery
		},
		// A client that comes to the server by itself would meet a broken connection.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.forwarded.Add(1)
		defer x.forwarded.Add(-1)
		defer func() {
			// When the client is gone, the Handler sees the request end as a server ends it: by returning.
			if v := recover(); v != nil && (v != any(http.ErrAbortHandler) || r.Context().Err() == nil) {
				panic(v)
			}
		}()
		reverse.ServeHTTP(w, r)
	})
}

// end comes after the server process: what it answered last gets out, then connections are closed.
func (x *proxy) end() error {
	defer x.transport.CloseIdleConnections()
	waitForNone(&x.forwarded)
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	_ = x.server.Shutdown(ctx)
	err := x.server.Close()
	if served := <-x.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if !waitForNone(&x.requests) {
		err = errors.Join(err, fmt.Errorf("a request is still in Options.Handler %v after its connection was closed; "+
			"a Handler that delays must end with the request's context", giveUp))
	}
	return err
}

// waitForNone waits until there are no requests, but gives up after a while and returns false.
func waitForNone(requests *atomic.Int64) bool {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	return wait.PollUntilContextCancel(ctx, pollInterval/10, true, func(context.Context) (bool, error) {
		return requests.Load() == 0, nil
	}) == nil
}
