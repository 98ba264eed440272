package informer

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkTimeout is how long a WatchList may be silent before the bookmark that
// ends its initial events. client-go itself waits for ever.
const bookmarkTimeout = 10 * time.Second

// observedWatch passes a watch on to the reflector. It trims and remembers objects,
// records contact and errors, gives up a WatchList that stays silent, and makes the
// reflector relist when a recheck says so. Its fields belong to the goroutine of run,
// but for what Stop and ResultChan use.
type observedWatch struct {
	source  *source
	history *history // since the initial read that this watch goes on from
	inner   watch.Interface
	due     time.Time // when the server ends it; zero: not known

	initial bool        // the initial events of a WatchList have not ended yet
	silence *time.Timer // runs while initial

	events  chan watch.Event
	stop    sync.Once
	stopped chan struct{}
}

// observe returns inner as an observedWatch. Its end is the end of the request.
func (s *source) observe(ctx context.Context, inner watch.Interface, due time.Time, initial bool) watch.Interface {
	_, history, _ := s.state()
	w := &observedWatch{
		source: s, history: history, inner: inner, due: due,
		initial: initial, silence: time.NewTimer(bookmarkTimeout),
		events: make(chan watch.Event), stopped: make(chan struct{}),
	}
	if !initial {
		w.silence.Stop()
	}
	go func() {
		defer s.requests.Done()
		defer close(w.events)
		defer inner.Stop()
		defer w.silence.Stop()
		w.run(ctx)
	}()
	return w
}

func (w *observedWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *observedWatch) Stop() { w.stop.Do(func() { close(w.stopped) }) }

// run returns when the watch ends, is stopped, or ctx ends. An error is the last
// event of a watch: the reflector stops it then.
func (w *observedWatch) run(ctx context.Context) {
	s := w.source
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.stopped:
			return
		case <-w.silence.C:
			s.mu.Lock()
			s.listOnly = true
			s.mu.Unlock()
			s.recordFailure(errNoBookmark)
			w.send(ctx, listInstead(errNoBookmark))
			return
		case <-w.history.stale:
			w.send(ctx, errorEvent(w.source.relist(ctx, "objects were read under an old schema of the CRD")))
			return
		case event, ok := <-w.inner.ResultChan():
			if ok {
				event = w.observe(event)
			}
			if !ok || event.Type == watch.Error {
				// Before the reflector can go on with another watch.
				s.recordWatchEnd(w.history, time.Now().Before(w.due))
			}
			if !ok || !w.pass(ctx, event) || event.Type == watch.Error {
				return
			}
			// Contact counts once the event is passed on. An initial event is not
			// contact: the state that it is a part of is not complete.
			if !w.initial {
				s.recordSuccess(true)
			}
		}
	}
}

// pass sends an event in its order. It returns false when the watch is stopped or ctx
// ends. The initial events of a WatchList and bookmarks reach no handler by themselves.
func (w *observedWatch) pass(ctx context.Context, event watch.Event) bool {
	if w.initial || event.Type == watch.Bookmark || event.Type == watch.Error {
		return w.send(ctx, event)
	}
	return w.source.order.begin(ctx, w.stopped, event) && w.send(ctx, event)
}

// send returns false when the watch is stopped or ctx ends.
func (w *observedWatch) send(ctx context.Context, event watch.Event) bool {
	select {
	case <-ctx.Done():
		return false
	case <-w.stopped:
		return false
	case w.events <- event:
		return true
	}
}

// observe returns the event to pass on.
func (w *observedWatch) observe(event watch.Event) watch.Event {
	obj, ok := event.Object.(*unstructured.Unstructured)
	switch {
	case event.Type == watch.Error:
		err := apierrors.FromObject(event.Object)
		// An expired history is no fault. The relist that follows may find one.
		if apierrors.IsResourceExpired(err) {
			w.source.recordRelisting()
		} else {
			w.source.recordFailure(err)
		}
		if w.initial { // as in openWatchList, for the same reasons
			return listInstead(err)
		}
	case w.initial && event.Type == watch.Bookmark && ok && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
		w.initial = false
		w.silence.Stop()
		w.source.recordRelist()
	case w.initial:
		w.silence.Reset(bookmarkTimeout)
	}
	if !ok || event.Type == watch.Bookmark {
		return event
	}
	obj = trim(obj)
	w.source.remember(w.history, obj)
	return watch.Event{Type: event.Type, Object: obj}
}

// listInstead returns an event that makes the reflector fall back from a WatchList
// to a list.
func listInstead(why error) watch.Event { return errorEvent(apierrors.NewTimeoutError(why.Error(), 0)) }

func errorEvent(err *apierrors.StatusError) watch.Event {
	status := err.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}
