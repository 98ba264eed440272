package deploy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/syncgate"
)

// errParked means that the gate has refused an operation, or ended it early. The backlog
// queues its Description again on resume.
var errParked = errors.New("parked until the cluster is resumed")

// operate runs fn as one operation on the child, or parks the Description. All requests
// of fn use its context. A pause ends the operation before its next request: that request
// fails with syncgate.ErrPaused, fn returns this error, and the Description is parked.
//
// The drain of a pause waits for the operation, so fn sends no request to the parent.
func (d *Deployer) operate(ctx context.Context, desc *description, fn func(context.Context, *child) error) error {
	parked, err := d.backlog.Do(ctx, d.opts.Gate, desc.key(), func(operation context.Context) error {
		c, err := d.connect(ctx) // not with the context of the operation: watches outlast it
		if err != nil {
			return err
		}
		return fn(context.WithValue(operation, epochKey{}, desc.epoch), c)
	})
	if parked {
		klog.FromContext(ctx).V(4).Info("Parked", "description", desc.key())
		return errParked
	}
	return err
}

// operationTransport sends the requests of operations. It asks the gate before each of
// them, so the drain of a pause takes one request.
type operationTransport struct {
	gate    *syncgate.Gate
	current func(context.Context) bool // see Deployer.current
	next    http.RoundTripper
}

func (t operationTransport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	err = t.gate.Do(r.Context(), func(ctx context.Context) (err error) {
		if err := t.gate.Checkpoint(ctx); err != nil {
			return err
		}
		if !t.current(ctx) {
			return errChanged
		}
		response, err = send(t.next, r) //nolint:bodyclose // the caller of RoundTrip closes it
		return err
	})
	return response, err
}

// watchTransport sends the requests of watches. Such a request waits until the gate is
// open, and is an operation of its own until its answer begins. An open watch stays open
// in a pause, and one that ends in a pause begins again on resume.
type watchTransport struct {
	gate *syncgate.Gate
	next http.RoundTripper
}

func (t watchTransport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	for {
		err := t.gate.Do(r.Context(), func(context.Context) (err error) {
			response, err = send(t.next, r) //nolint:bodyclose // the caller of RoundTrip closes it
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

// send limits the time until the answer begins, since the drain of a pause waits for it.
func send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(writeTime, cancel)
	defer timer.Stop()
	response, err := next.RoundTrip(r.WithContext(ctx))
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
