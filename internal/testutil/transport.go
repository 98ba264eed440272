package testutil

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"sync"
)

// transport sends requests to an APIServer without a socket. As with a socket, the
// handler ends when the context of the request ends or its body is closed.
type transport struct{ server *APIServer }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if !t.server.begin() {
		return nil, Refused.err
	}
	ctx, cancel := context.WithCancel(req.Context())
	body, pipe := io.Pipe()
	w := &response{header: http.Header{}, started: make(chan struct{}), pipe: pipe}
	unhook := context.AfterFunc(t.server.ctx, cancel)
	context.AfterFunc(ctx, func() { _ = pipe.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer t.server.handlers.Done()
		defer unhook()
		defer cancel()
		t.server.ServeHTTP(w, req.WithContext(ctx))
		if ctx.Err() == nil {
			w.WriteHeader(http.StatusOK)
		}
		_ = pipe.Close()
	}()
	select {
	case <-w.started:
	case <-ctx.Done(): // the handler may have started a response before
		select {
		case <-w.started:
		default:
			// When the request has no error, the server was closed.
			return nil, cmp.Or(req.Context().Err(), io.ErrUnexpectedEOF)
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, ContentLength: -1, Body: closer{body, cancel}, Request: req,
	}, nil
}

// closer is the body of a response. Close ends the handler.
type closer struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (c closer) Close() error {
	c.cancel()
	return c.PipeReader.Close()
}

// response is the ResponseWriter of a handler.
type response struct {
	header http.Header
	pipe   *io.PipeWriter

	once    sync.Once
	started chan struct{} // closed when code or err is set
	code    int
	err     error
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(code int) { w.start(code, nil) }

func (w *response) Flush() { w.start(http.StatusOK, nil) }

func (w *response) Write(b []byte) (int, error) {
	w.start(http.StatusOK, nil)
	return w.pipe.Write(b)
}

func (w *response) start(code int, err error) {
	w.once.Do(func() {
		w.header = w.header.Clone()
		w.code, w.err = code, err
		close(w.started)
	})
}

// abort ends a request with an error of its connection.
func abort(w http.ResponseWriter, err error) {
	if w, ok := w.(*response); ok {
		w.start(0, err)
		return
	}
	panic(http.ErrAbortHandler) // the server has a socket
}
