package deploy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/clusternet/syncgate/syncgate"
)

// gatedTransport sends no request to a paused child. A request with the context of an
// admitted operation belongs to that operation. Any other request waits until the gate
// is open, and is an operation of its own until its answer begins. These are the
// requests of watches: an open watch stays open in a pause, and one that ends in a
// pause begins again on resume.
type gatedTransport struct {
	gate *syncgate.Gate
	next http.RoundTripper
}

func (t gatedTransport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	for {
		err := t.gate.Do(r.Context(), func(context.Context) (err error) {
			response, err = t.send(r)
			return err
		})
		if !errors.Is(err, syncgate.ErrPaused) || errors.Is(err, syncgate.ErrStopped) {
			return response, err
		}
		if err := t.gate.WaitOpen(r.Context()); err != nil {
			return nil, err
		}
	}
}

// send limits the time until the answer begins, since a drain waits for it.
func (t gatedTransport) send(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(writeTime, cancel)
	defer timer.Stop()
	response, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = cancelingBody{response.Body, cancel}
	return response, nil
}

// cancelingBody ends the context of its request when it is closed.
type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b cancelingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
