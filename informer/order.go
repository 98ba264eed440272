package informer

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// deliveryTimeout is how long an event waits for the event before it. It is far longer
// than a delivery takes, so it ends the wait for an event that client-go has dropped.
const deliveryTimeout = 10 * time.Second

// order keeps the events of watches in the order of the server. The queue of client-go
// 0.32 collects the waiting events of one object: handlers get all of them before an
// earlier event of another object. So a watch passes an event on to the queue only when
// handlers have been given the event before it. The queue then has one event at most.
type order struct {
	store  cache.KeyGetter
	latest atomic.Pointer[delivery] // nil: handlers have been given all events
}

// delivery is the way of one event from a watch to the handlers.
type delivery struct {
	obj   *unstructured.Unstructured
	given chan struct{} // closed when the handlers have been given obj
}

// follow makes o notice what the handlers of an informer are given. The informer gives
// an event to all its handlers before it takes the next one.
func (o *order) follow(inf cache.SharedIndexInformer) {
	o.store = inf.GetStore()
	given := func(obj any) {
		if d := o.latest.Load(); d != nil && obj == any(d.obj) && o.latest.CompareAndSwap(d, nil) {
			close(d.given)
		}
	}
	_, _ = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{ // fails only after the end
		AddFunc:    given,
		UpdateFunc: func(_, obj any) { given(obj) },
		DeleteFunc: given,
	})
}

// begin waits until the event before this one has been given to the handlers. It returns
// false when ctx or stopped ends first.
func (o *order) begin(ctx context.Context, stopped <-chan struct{}, event watch.Event) bool {
	if before := o.latest.Load(); before != nil {
		timeout := time.NewTimer(deliveryTimeout)
		defer timeout.Stop()
		select {
		case <-before.given:
		case <-timeout.C:
		case <-stopped:
			return false
		case <-ctx.Done():
			return false
		}
	}
	obj, ok := event.Object.(*unstructured.Unstructured)
	if ok && event.Type == watch.Deleted { // client-go drops the deletion of what it does not have
		_, ok, _ = o.store.GetByKey(cache.MetaObjectToName(obj).String())
	}
	if ok {
		o.latest.Store(&delivery{obj: obj, given: make(chan struct{})})
	} else {
		o.latest.Store(nil)
	}
	return true
}
