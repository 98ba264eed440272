package informer

import (
	"context"
	"errors"
	"math"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// noStream is a limit so high that it has no effect. Without a limit, the dynamic
// client of older client-go (0.32) makes a WatchList of a list, and may wait for its
// bookmark for ever.
const noStream = math.MaxInt32

// stopTimeout is how long the end of Run waits for requests that do not heed it.
const stopTimeout = time.Second

// source lists and watches for the reflector of the informer. It chooses the
// selection, makes each initial read consistent, trims objects, and records contact:
// event handlers get neither bookmarks nor errors.
//
// The reflector calls List and Watch one after the other. Besides its goroutine there
// is one for each request in flight, one for each open watch, and at most one that
// rechecks. All of them are counted in requests.
type source struct {
	resource         dynamic.ResourceInterface
	what, where      string    // for messages
	byField, byLabel string    // the selectors; both empty for a hub
	requested        Selection // Options.Selection
	noStreams        bool

	requests sync.WaitGroup
	order    order // of the events of watches

	mu      sync.Mutex // guards all below
	ctx     context.Context
	ended   bool
	inForce Selection
	contact time.Time
	relists uint64      // initial reads that were complete
	fault   error       // of the last request; nil once one succeeded
	pending []time.Time // when the requests without an answer yet were made
	// justProbed: the list just made has decided the selection in force, so the
	// watch that follows it need not probe for the field.
	justProbed bool
	// listOnly: a WatchList was tried and its bookmark never came.
	listOnly bool
	// history has what was read since the last initial read began.
	history *history
	// rechecking: the goroutine of startRecheck is running.
	rechecking bool
}

var _ cache.ListerWatcher = (*source)(nil)

// IsWatchListSemanticsUnSupported is an optional interface of client-go's reflector.
func (s *source) IsWatchListSemanticsUnSupported() bool { return s.noStreams }

func (s *source) start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
	s.fault = errNoAnswer
	s.history = newHistory()
}

// wait returns when no request is left, once the context of start has ended. It
// waits at most stopTimeout for a request that does not heed that; see request.
func (s *source) wait() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.requests.Wait()
	}()
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
}

// begin counts a request, until requests.Done, and returns the context for it. That
// is the context of Run, because client-go 0.32 passes none.
func (s *source) begin() (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx == nil:
		return nil, errNotRun
	case s.ended:
		return nil, context.Cause(s.ctx)
	}
	s.requests.Add(1)
	return s.ctx, nil
}

// request makes a request and returns when ctx ends, also where client-go does
// not: 0.32 waits for the Retry-After of a busy server. A result that comes after
// the end of ctx goes to drop.
func request[T any](ctx context.Context, s *source, send func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result)
	defer s.recordPending(time.Now())()
	s.requests.Add(1) // safe beside Wait: the caller is still counted
	go func() {
		defer s.requests.Done()
		value, err := send()
		select {
		case results <- result{value, err}:
		case <-ctx.Done():
			if err == nil {
				drop(value)
			}
		}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (s *source) list(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return request(ctx, s, func() (*unstructured.UnstructuredList, error) {
		return s.resource.List(ctx, opts)
	}, func(*unstructured.UnstructuredList) {})
}

// List is that of cache.Lister. The objects that it returns are trimmed.
func (s *source) List(opts metav1.ListOptions) (runtime.Object, error) {
	ctx, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer s.requests.Done()
	var page *unstructured.UnstructuredList
	get := func(sel Selection) (err error) {
		page, err = s.list(ctx, s.withSelector(opts, sel))
		return err
	}
	if opts.Continue != "" { // the next page goes on with the selection of the first
		sel, _, _ := s.state()
		err = get(sel)
	} else {
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
		if _, _, listOnly := s.state(); listOnly && opts.Limit == 0 {
			opts.Limit = noStream
		}
		err = s.initialRead(get)
	}
	if err != nil {
		s.recordFailure(err)
		return nil, err
	}
	_, history, _ := s.state()
	for i := range page.Items {
		obj := trim(&page.Items[i])
		page.Items[i].Object = obj.Object // the memory that the store will keep
		s.remember(history, obj)
	}
	if page.GetContinue() == "" { // the state is complete with the last page
		s.recordRelist()
		s.recordSuccess(true)
	}
	return page, nil
}

// Watch is that of cache.Watcher. See observedWatch.
func (s *source) Watch(opts metav1.ListOptions) (_ watch.Interface, err error) {
	ctx, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // otherwise the end of the watch is the end of the request
			s.requests.Done()
		}
	}()
	var due time.Time // when the server ends the watch
	if opts.TimeoutSeconds != nil {
		due = time.Now().Add(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	var w watch.Interface
	get := func(sel Selection) (err error) {
		w, err = request(ctx, s, func() (watch.Interface, error) {
			return s.resource.Watch(ctx, s.withSelector(opts, sel))
		}, watch.Interface.Stop)
		// client-go's REST layer returns an empty watch for a connection that timed
		// out or was closed before the answer.
		if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
			return errNoWatch
		}
		return err
	}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		if err := s.openWatchList(&opts, get); err != nil {
			return nil, err
		}
		return s.observe(ctx, w, due, true), nil
	}
	if err := s.probeField(ctx); err != nil {
		return nil, err
	}
	sel, history, _ := s.state()
	if err := get(sel); err != nil {
		if notSelectable(err) && s.requested == Auto {
			return nil, s.relist(ctx, "spec.clusterId is no longer a selectable field of the CRD")
		}
		s.recordWatchEnd(history, true)
		s.recordFailure(err)
		return nil, err
	}
	s.recordSuccess(false)
	s.startRecheck(ctx)
	return s.observe(ctx, w, due, false), nil
}

// openWatchList opens a WatchList by get, which uses opts.
func (s *source) openWatchList(opts *metav1.ListOptions, get func(Selection) error) error {
	if _, _, listOnly := s.state(); listOnly {
		return errNoBookmark
	}
	opts.ResourceVersion = ""
	if err := s.initialRead(get); err != nil {
		s.recordFailure(err)
		// Hide the kind of the error from the reflector. On a refused connection and
		// on 429 it would sleep in a backoff that does not end with its context, and
		// on 410 it would try again without a pause.
		return errors.New(err.Error())
	}
	s.mu.Lock()
	s.fault, s.justProbed = errNoBookmark, false
	s.mu.Unlock()
	return nil
}

// relist returns the answer to a watch that makes the reflector list again.
func (s *source) relist(ctx context.Context, why string) *apierrors.StatusError {
	s.recordRelisting()
	klog.FromContext(ctx).V(4).Info("Listing ManagedClusters again", "why", why)
	return apierrors.NewResourceExpired(why)
}

// state returns what the next request depends on.
func (s *source) state() (inForce Selection, history *history, listOnly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inForce, s.history, s.listOnly
}
