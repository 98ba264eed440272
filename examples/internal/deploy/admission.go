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

// errParked means that the gate has refused a step. The backlog queues its Description
// again on resume.
var errParked = errors.New("parked until the cluster is resumed")

// admit runs fn, or parks the Description.
func (d *Deployer) admit(ctx context.Context, desc *description, fn func(context.Context) error) error {
	parked, err := d.backlog.Do(ctx, d.opts.Gate, desc.key(), fn)
	if parked {
		klog.FromContext(ctx).V(4).Info("Parked", "description", desc.key())
		return errParked
	}
	return err
}

// request runs fn, which sends requests to the child, or parks the Description. The child
// may have moved in a pause that has come and gone since it was connected to.
func (d *Deployer) request(ctx context.Context, desc *description, c *child, fn func(context.Context) error) error {
	return d.admit(ctx, desc, func(ctx context.Context) error {
		if !d.current(c) {
			return errChanged
		}
		return fn(ctx)
	})
}

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
			response, err = t.send(r) //nolint:bodyclose // the caller of RoundTrip closes it
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
