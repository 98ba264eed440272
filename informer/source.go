package informer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
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

// bookmarkTimeout is how long a WatchList may be silent before the bookmark that
// ends its initial events. client-go itself waits for ever.
const bookmarkTimeout = 10 * time.Second

// oldSchema is how long before the end of a watch its events are in doubt. A
// changed CRD ends its watches a second after the change, and what they show in
// that second is trimmed to the old schema. A watch that goes on from there repeats
// nothing, so a field that the change brought would be missed. See review.
const oldSchema = 5 * time.Second

// answerTimeout is how long a request may go without an answer before that is a
// fault: one that hangs looks like one that is on its way.
const answerTimeout = 30 * time.Second

// noStream is a limit that limits nothing. The dynamic client of client-go up to
// 0.34 makes a WatchList of a list without one, and may wait for its bookmark for
// ever.
const noStream = math.MaxInt32

// probeTimeout bounds a question that the informer can do without.
const probeTimeout = 10 * time.Second

// stopTimeout is how long the end of Run waits for requests that do not heed it.
const stopTimeout = time.Second

var (
	errNotRun = errors.New("not run yet; call Run of the *Informer, or of the Gate or Hub that it belongs to")

	errNoAnswer = errors.New("the server has not answered the first request yet")

	errSilent = errors.New("the server has not answered a request for over thirty seconds")

	errNoWatch = errors.New("the connection timed out or was ended (EOF, reset) before the watch began")

	errNoBookmark = errors.New("the server has not sent the bookmark that ends the initial events of a WatchList; " +
		"after ten silent seconds LIST and WATCH are used instead")
)

// emptyWatch is what client-go's REST layer makes of a connection that timed out
// or was ended before the answer.
var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

// source lists and watches. It is where the selection is decided, where each
// initial read is made consistent, and where contact is seen: handlers of an
// informer are shown neither bookmarks nor errors.
type source struct {
	resource         dynamic.ResourceInterface
	what, where      string    // for people
	byField, byLabel string    // the selectors; both empty for a hub
	asked            Selection // what Options asked for
	noStreams        bool

	requests sync.WaitGroup // lists and watches under way

	mu      sync.Mutex // guards all below
	ctx     context.Context
	ended   bool
	inForce Selection
	contact time.Time
	fault   error       // of the last request; nil once one succeeded
	waiting []time.Time // when the requests without an answer yet were made
	// settled: the selection in force was decided by the initial read just
	// made, so the watch that follows it need not ask again.
	settled bool
	// listOnly: a WatchList was tried and its bookmark never came.
	listOnly bool
	// doubtful: the last watch ended before its time, shortly after an event;
	// see oldSchema.
	doubtful bool
}

var _ cache.ListerWatcher = (*source)(nil)

// IsWatchListSemanticsUnSupported is looked for by client-go's reflector.
func (s *source) IsWatchListSemanticsUnSupported() bool { return s.noStreams }

func (s *source) start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
	s.fault = errNoAnswer
}

// wait returns when no request is left, once the context of start has ended. It
// does not wait long for one that does not heed that; see request.
func (s *source) wait() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.requests.Wait()
	}()
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}

// begin returns the context for a request, to be ended by requests.Done. The
// context of Run serves, because client-go 0.32 hands none down.
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
// not: 0.32 sleeps out the Retry-After of a busy server. What such a
// request still brings is dropped.
func request[T any](ctx context.Context, s *source, send func() (T, error), drop func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	results := make(chan result)
	defer s.waitFor(time.Now())()
	s.requests.Add(1) // that of begin is still counted
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

// waitFor notes that a request has no answer yet, until its result is called.
func (s *source) waitFor(since time.Time) (answered func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, since)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.waiting, since); i >= 0 {
			s.waiting = slices.Delete(s.waiting, i, i+1)
		}
	}
}

func (s *source) list(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return request(ctx, s, func() (*unstructured.UnstructuredList, error) {
		return s.resource.List(ctx, opts)
	}, func(*unstructured.UnstructuredList) {})
}

func (s *source) errLocked() error {
	err := s.fault
	switch {
	case s.ctx == nil:
		err = errNotRun
	case err == nil && len(s.waiting) > 0 && time.Since(s.waiting[0]) > answerTimeout:
		err = errSilent
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("informer: read %s: %w%s", s.what, err, s.advice(err))
}

func (s *source) advice(err error) string {
	grant := fmt.Sprintf("%s %s", Resource.GroupResource(), s.where)
	switch {
	case apierrors.IsForbidden(err):
		return "; allow this client to list and watch " + grant
	case apierrors.IsUnauthorized(err):
		return "; renew the credentials of this client"
	case apierrors.IsNotFound(err):
		return "; install Clusternet's CRDs in the parent cluster"
	case notSelectable(err):
		return "; declare .spec.clusterId in selectableFields of the CRD, or use Selection Auto or ByLabel"
	default:
		return ""
	}
}

// logger is that of Run's context.
func (s *source) logger() klog.Logger {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		return klog.Background()
	}
	return klog.FromContext(s.ctx)
}

// heard notes an answer of the server; contact tells whether it carried state.
func (s *source) heard(contact bool) {
	s.mu.Lock()
	ctx, fault := s.ctx, s.fault
	s.fault = nil
	if contact {
		s.contact = time.Now()
	}
	s.mu.Unlock()
	if fault != nil && !waits(fault) {
		klog.FromContext(ctx).V(2).Info("ManagedClusters can be read again", "which", s.what)
	}
}

// failed notes that a request failed. The informer tries again by itself.
func (s *source) failed(err error) {
	s.mu.Lock()
	ctx, before := s.ctx, s.fault
	if ctx.Err() != nil { // the end of Run is no fault
		s.mu.Unlock()
		return
	}
	if at := (*url.Error)(nil); errors.As(err, &at) {
		err = at.Err // the URL is long, and tells no more than what
	}
	s.fault = err
	told := s.errLocked()
	s.mu.Unlock()
	level := 4
	if before == nil || waits(before) {
		level = 2
	}
	klog.FromContext(ctx).V(level).Info("ManagedClusters can't be read; the last known state holds", "which", s.what, "err", told)
}

// waits tells whether err says only that an answer is still to come.
func waits(err error) bool {
	return errors.Is(err, errNoAnswer) || errors.Is(err, errNoBookmark)
}

func (s *source) List(opts metav1.ListOptions) (runtime.Object, error) {
	ctx, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer s.requests.Done()
	var page *unstructured.UnstructuredList
	get := func(sel Selection) (err error) {
		page, err = s.list(ctx, s.selected(opts, sel))
		return err
	}
	if opts.Continue != "" { // the next page of a selection made already
		err = get(s.current())
	} else {
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
		if opts.Limit == 0 && s.isListOnly() {
			// The dynamic client of older client-go (0.32) makes a WatchList of a
			// list without limit, and waits for the bookmark for ever.
			opts.Limit = math.MaxInt32
		}
		err = s.selectAnew(get)
		s.settle(err == nil)
	}
	if err != nil {
		s.failed(err)
		return nil, err
	}
	if page.GetContinue() == "" { // it is the last page that makes a state
		s.heard(true)
	}
	return page, nil
}

func (s *source) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	ctx, err := s.begin()
	if err != nil {
		return nil, err
	}
	w, err := s.watch(ctx, opts)
	if err != nil {
		s.requests.Done()
		return nil, err
	}
	return w, nil // its end is the end of the request
}

func (s *source) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	stream := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	var due time.Time // the server ends each watch in its time
	if opts.TimeoutSeconds != nil {
		due = time.Now().Add(time.Duration(*opts.TimeoutSeconds) * time.Second)
	}
	var w watch.Interface
	get := func(sel Selection) (err error) {
		w, err = request(ctx, s, func() (watch.Interface, error) {
			return s.resource.Watch(ctx, s.selected(opts, sel))
		}, watch.Interface.Stop)
		if err == nil && reflect.TypeOf(w) == emptyWatch {
			return errNoWatch
		}
		return err
	}
	if !stream {
		if err := s.reselect(ctx); err != nil {
			return nil, err
		}
		err := get(s.current())
		switch {
		case notSelectable(err) && s.asked == Auto:
			return nil, s.relist("the CRD no longer lets spec.clusterId be selected")
		case err != nil:
			s.failed(err)
			return nil, err
		}
		s.heard(false)
		return s.tap(ctx, w, &tap{due: due, from: opts.ResourceVersion}), nil
	}
	if s.isListOnly() {
		return nil, errNoBookmark
	}
	opts.ResourceVersion = ""
	if err := s.selectAnew(get); err != nil {
		s.failed(err)
		// The reflector must recognize none: at a refused connection and 429 it
		// sleeps in a backoff that does not end with its context, at 410 it tries
		// again without a pause.
		return nil, errors.New(err.Error())
	}
	s.mu.Lock()
	s.fault = errNoBookmark
	s.mu.Unlock()
	return s.tap(ctx, w, &tap{due: due, stream: true}), nil
}

// selected returns opts for the selection sel.
func (s *source) selected(opts metav1.ListOptions, sel Selection) metav1.ListOptions {
	switch sel {
	case ByField:
		opts.FieldSelector = s.byField
	case ByLabel:
		opts.LabelSelector = s.byLabel
	case Auto: // a hub's
	}
	return opts
}

// selectAnew makes an initial read. Only these may change the selection: a watch
// that went on with another one would miss what the old one had left out.
func (s *source) selectAnew(read func(Selection) error) error {
	sel := s.asked
	if sel == Auto && s.byField != "" {
		sel = ByField
	}
	err := read(sel)
	if s.asked == Auto && notSelectable(err) {
		sel = ByLabel
		err = read(sel)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	before, ctx := s.inForce, s.ctx
	s.inForce = sel
	s.doubtful = false
	s.mu.Unlock()
	if before != sel {
		log := klog.FromContext(ctx).V(2)
		if sel == ByLabel && s.asked == Auto {
			log.Info("Selecting ManagedClusters by label: the CRD does not let spec.clusterId be selected", "which", s.what)
		} else {
			log.Info("Selecting ManagedClusters", "which", s.what, "selection", sel)
		}
	}
	return nil
}

// reselect asks, before a watch by label starts again, whether the field can be
// selected by now: client-go resumes a watch that a changed CRD ended without a
// relist.
func (s *source) reselect(ctx context.Context) error {
	s.mu.Lock()
	ask := s.asked == Auto && s.inForce == ByLabel && !s.settled
	s.settled = false
	s.mu.Unlock()
	if !ask {
		return nil
	}
	// Only the kind of the answer matters. With resourceVersion "0" older
	// client-go (0.32) may make a WatchList of it, and wait for its bookmark.
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := s.list(ctx, s.selected(metav1.ListOptions{Limit: 1}, ByField)); err == nil {
		return s.relist("the CRD lets spec.clusterId be selected now")
	}
	return nil // not yet, or a fault that the watch will meet too
}

// relist is the answer to a watch that makes the reflector list again.
func (s *source) relist(why string) error {
	s.logger().V(4).Info("Listing ManagedClusters again", "which", s.what, "why", why)
	return apierrors.NewResourceExpired(why)
}

func (s *source) current() Selection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inForce
}

func (s *source) settle(settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled = settled
}

func (s *source) inDoubt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doubtful
}

func (s *source) isListOnly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listOnly
}

// notSelectable recognizes the API server's answer to a field selector that the
// resource does not declare.
func notSelectable(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "field label not supported")
}

// tap passes a watch on unchanged and looks at what goes by.
type tap struct {
	due    time.Time // when the server ends it; zero: never
	from   string    // the resourceVersion that it goes on from
	stream bool      // it begins with the initial events of a WatchList

	inner   watch.Interface
	events  chan watch.Event
	stop    sync.Once
	stopped chan struct{}

	at string // the resourceVersion of what went by last
	// shown has the objects that went by, while a review may still come.
	shown map[string]struct{}
}

// tap returns w by way of t. Its end is the end of the request.
func (s *source) tap(ctx context.Context, w watch.Interface, t *tap) watch.Interface {
	t.inner, t.events, t.stopped = w, make(chan watch.Event), make(chan struct{})
	go func() {
		defer s.requests.Done()
		defer close(t.events)
		defer w.Stop()
		t.pass(ctx, s)
	}()
	return t
}

func (t *tap) ResultChan() <-chan watch.Event { return t.events }

func (t *tap) Stop() { t.stop.Do(func() { close(t.stopped) }) }

// send returns false when the watch is stopped or ctx ends.
func (t *tap) send(ctx context.Context, event watch.Event) bool {
	select {
	case <-ctx.Done():
		return false
	case <-t.stopped:
		return false
	case t.events <- event:
		return true
	}
}

// pass returns when the watch ends, is stopped, or ctx ends. With stream, it
// gives up when the server is silent before the end of the initial events.
func (t *tap) pass(ctx context.Context, s *source) {
	var silence *time.Timer
	var silent <-chan time.Time
	if t.stream {
		silence = time.NewTimer(bookmarkTimeout)
		silent = silence.C
		defer silence.Stop()
	}
	t.at = t.from
	var review <-chan reviewed
	if !t.stream && s.inDoubt() {
		t.shown = map[string]struct{}{}
		review = s.review(ctx, t.stopped)
	}
	var last time.Time // of the events but bookmarks
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.stopped:
			return
		case <-silent:
			silent = nil
			s.mu.Lock()
			s.listOnly = true
			s.mu.Unlock()
			s.failed(errNoBookmark)
			if !t.send(ctx, listInstead(errNoBookmark)) {
				return
			}
		case r := <-review:
			review = nil
			if !t.correct(ctx, s, r) {
				return
			}
			t.shown = nil
		case event, ok := <-t.inner.ResultChan():
			if !ok {
				now := time.Now()
				s.mu.Lock()
				s.doubtful = s.doubtful || now.Before(t.due) && now.Sub(last) < oldSchema
				s.mu.Unlock()
				return
			}
			initial := silent != nil
			switch {
			case event.Type == watch.Error:
				s.watchFailed(event.Object)
				if initial { // as in watch, for the same reasons
					event = listInstead(apierrors.FromObject(event.Object))
				}
			case endsInitialEvents(event):
				silent = nil
			case initial:
				silence.Reset(bookmarkTimeout)
			}
			obj, isObject := event.Object.(metav1.Object)
			if isObject {
				t.at = obj.GetResourceVersion()
			}
			if event.Type != watch.Bookmark {
				last = time.Now()
				if isObject && t.shown != nil {
					t.shown[keyOf(obj)] = struct{}{}
				}
			}
			if !t.send(ctx, event) {
				return
			}
			// Contact is what has been handed on. An initial event is none yet: the
			// state that it is a part of is not complete.
			if event.Type != watch.Error && silent == nil {
				s.heard(true)
			}
		}
	}
}

type reviewed struct {
	list *unstructured.UnstructuredList
	err  error
}

// review lists what a watch in doubt goes on from. The watch does not wait for it:
// a read instead of the watch would come after a backoff of the reflector, and
// leave a hub blind for that long at each connection that breaks.
func (s *source) review(ctx context.Context, stopped <-chan struct{}) <-chan reviewed {
	results := make(chan reviewed)
	s.requests.Add(1) // that of the watch is still counted
	go func() {
		defer s.requests.Done()
		list, err := s.list(ctx, s.selected(metav1.ListOptions{Limit: noStream}, s.current()))
		select {
		case results <- reviewed{list, err}:
		case <-stopped:
		case <-ctx.Done():
		}
	}()
	return results
}

// correct shows again what the review has found and the watch will not show: the
// objects that are not newer than where the watch goes on from, unless it has
// shown them since.
func (t *tap) correct(ctx context.Context, s *source, r reviewed) bool {
	if r.err != nil {
		s.failed(r.err)
		return t.send(ctx, relistInstead("a review of the last watch has failed: "+r.err.Error()))
	}
	from, err := strconv.ParseUint(t.from, 10, 64)
	if err != nil { // it has no order then
		return t.send(ctx, relistInstead("resourceVersions have no order"))
	}
	for i := range r.list.Items {
		obj := &r.list.Items[i]
		version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
		if _, shown := t.shown[keyOf(obj)]; shown || err != nil || version > from {
			continue
		}
		// The reflector takes the resourceVersion of each event for where it is. The
		// next watch must not go on from an old object's: it would replay history.
		if !t.send(ctx, watch.Event{Type: watch.Modified, Object: obj}) || !t.send(ctx, bookmarkAt(t.at)) {
			return false
		}
	}
	s.mu.Lock()
	s.doubtful = false
	s.mu.Unlock()
	return true
}

func keyOf(obj metav1.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }

func bookmarkAt(resourceVersion string) watch.Event {
	obj := &unstructured.Unstructured{}
	obj.SetResourceVersion(resourceVersion)
	return watch.Event{Type: watch.Bookmark, Object: obj}
}

// relistInstead is an error in a watch that makes the reflector list again.
func relistInstead(why string) watch.Event {
	status := apierrors.NewResourceExpired(why).Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

// listInstead is an error in a stream of initial events that makes the reflector
// fall back to a list.
func listInstead(why error) watch.Event {
	status := apierrors.NewTimeoutError(why.Error(), 0).Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

// watchFailed notes an error in a watch. One that says that the history is gone
// is an everyday matter: the relist that follows shows whether all is well.
func (s *source) watchFailed(obj runtime.Object) {
	err := apierrors.FromObject(obj)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	s.failed(err)
}

func endsInitialEvents(event watch.Event) bool {
	if event.Type != watch.Bookmark {
		return false
	}
	obj, ok := event.Object.(metav1.Object)
	return ok && obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
