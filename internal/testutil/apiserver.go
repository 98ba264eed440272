package testutil

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/internal/api"
)

// The verbs of a Request.
const (
	List      = "list"
	Watch     = "watch"
	WatchList = "watchlist" // a watch with sendInitialEvents

	Get          = "get"
	UpdateStatus = "update status"
	CreateEvent  = "create event"
)

// Request is a request that arrived, or that was refused on its way.
type Request struct {
	Verb      string
	Namespace string // empty: all
	Name      string // of Get and UpdateStatus
	Query     url.Values
	Time      time.Time
}

// String returns the verb, the namespace and the selectors.
func (r Request) String() string {
	out := strings.TrimSpace(r.Verb + " " + r.Namespace)
	if r.Name != "" {
		out += "/" + r.Name
	}
	for _, selector := range []string{"fieldSelector", "labelSelector"} {
		if r.Query.Has(selector) {
			out += " " + selector + "=" + r.Query.Get(selector)
		}
	}
	return out
}

// APIServer stands for an API server with ManagedClusters, of which it lets a
// client list, watch and get, and update the status; and it takes core/v1 Events
// of them. It answers as a real one does over HTTP, but its Client
// needs no socket, so that it can be used in a testing/synctest bubble. Watches
// send bookmarks to order only. All methods may be called from any goroutine.
type APIServer struct {
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	handlers sync.WaitGroup

	mu         sync.Mutex // guards all below
	objects    map[types.NamespacedName]*unstructured.Unstructured
	version    int // the resourceVersion
	log        []entry
	grown      chan struct{} // closed when log has grown or a bookmark is let go
	selectable bool
	withheld   bool
	faults     []Fault
	requests   []Request
	watches    int
	events     []*unstructured.Unstructured
	onRequest  func(Request)
}

// entry is what the open watches are to be told: a change, or else an event for
// all of them, or their end.
type entry struct {
	version  int
	old, obj *unstructured.Unstructured // nil old: created; nil obj: deleted
	event    *event
	end      bool
}

type event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// NewAPIServer returns a server whose CRD lets spec.clusterId be selected.
func NewAPIServer(objs ...*unstructured.Unstructured) *APIServer {
	s := &APIServer{
		objects:    map[types.NamespacedName]*unstructured.Unstructured{},
		version:    100,
		grown:      make(chan struct{}),
		selectable: true,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, obj := range objs {
		s.Create(obj)
	}
	return s
}

// Close ends all requests and returns when they have ended.
func (s *APIServer) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.handlers.Wait()
}

// begin lets a handler begin, to be ended by handlers.Done, unless s is closed.
func (s *APIServer) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.handlers.Add(1)
	return true
}

// Client returns a real dynamic client of s, without a limit on its rate.
func (s *APIServer) Client() dynamic.Interface {
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://apiserver.test", Transport: transport{s}, QPS: -1})
	if err != nil {
		panic(err) // of a fixed configuration
	}
	return client
}

// Create adds an object.
func (s *APIServer) Create(obj *unstructured.Unstructured) { s.put(obj, false) }

// Update replaces an object.
func (s *APIServer) Update(obj *unstructured.Unstructured) { s.put(obj, true) }

func (s *APIServer) put(obj *unstructured.Unstructured, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	old := s.objects[key]
	if (old != nil) != exists {
		panic(fmt.Sprintf("ManagedCluster %s exists: %t", key, old != nil))
	}
	s.objects[key] = s.changeLocked(old, obj.DeepCopy())
}

// Rewrite replaces an object without an event or a new resourceVersion, as a
// changed CRD does to what a client is shown.
func (s *APIServer) Rewrite(obj *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	obj = obj.DeepCopy()
	obj.SetResourceVersion(s.objects[key].GetResourceVersion())
	s.objects[key] = obj
}

// Delete removes an object.
func (s *APIServer) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if s.objects[key] == nil {
		panic(fmt.Sprintf("ManagedCluster %s does not exist", key))
	}
	s.changeLocked(s.objects[key], nil)
	delete(s.objects, key)
}

func (s *APIServer) changeLocked(old, obj *unstructured.Unstructured) *unstructured.Unstructured {
	s.version++
	if obj != nil {
		obj.SetResourceVersion(strconv.Itoa(s.version))
	}
	s.tellLocked(entry{old: old, obj: obj})
	return obj
}

func (s *APIServer) tellLocked(e entry) {
	e.version = s.version
	s.log = append(s.log, e)
	s.wakeLocked()
}

func (s *APIServer) wakeLocked() {
	close(s.grown)
	s.grown = make(chan struct{})
}

// SetSelectable changes whether the CRD lets spec.clusterId be selected, which
// ends all watches.
func (s *APIServer) SetSelectable(selectable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selectable = selectable
	s.tellLocked(entry{end: true})
}

// CutWatches ends all watches, as a server does in their time.
func (s *APIServer) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLocked(entry{end: true})
}

// Bookmark sends a bookmark to all watches.
func (s *APIServer) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLocked(entry{event: &event{watch.Bookmark, bookmark(s.version, nil)}})
}

// SendError sends an ERROR event with the status of code to all watches, and ends
// them.
func (s *APIServer) SendError(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLocked(entry{event: &event{watch.Error, status(code)}})
	s.tellLocked(entry{end: true})
}

// WithholdInitialBookmark changes whether the bookmark that ends the initial
// events of a WatchList is kept back. Let go, it is sent to watches that lack it.
func (s *APIServer) WithholdInitialBookmark(withheld bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld = withheld
	s.wakeLocked()
}

// Fail adds a fault. Each request meets the first that is for it; see Heal.
func (s *APIServer) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// Heal removes all faults. Requests that hang already go on hanging.
func (s *APIServer) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// OnRequest has fn called with each request that arrives, before it is answered.
// nil: no longer.
func (s *APIServer) OnRequest(fn func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRequest = fn
}

// Requests returns all requests so far.
func (s *APIServer) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ForgetRequests makes Requests begin anew.
func (s *APIServer) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Watches returns the number of open watches.
func (s *APIServer) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Get returns an object as it is now.
func (s *APIServer) Get(namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// Events returns the core/v1 Events that were created.
func (s *APIServer) Events() []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// ServeHTTP implements http.Handler.
func (s *APIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, ok := target(r)
	if !ok {
		reply(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, api.Resource.GroupResource(), "", "404 page not found", 0, true))
		return
	}
	s.mu.Lock()
	onRequest := s.onRequest
	s.mu.Unlock()
	if onRequest != nil {
		onRequest(req)
	}
	fault := s.admit(req)
	switch {
	case fault.hang:
		<-r.Context().Done()
		return
	case fault.err != nil:
		abort(w, fault.err)
		return
	case fault.code != 0 && !(fault.inStream && (req.Verb == Watch || req.Verb == WatchList)):
		if fault.retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(fault.retryAfter.Seconds())))
		}
		reply(w, &apierrors.StatusError{ErrStatus: *status(fault.code)})
		return
	}
	switch req.Verb {
	case Get, UpdateStatus, CreateEvent:
		answer, err := s.single(req, r.Body)
		if err != nil {
			reply(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	sel, err := s.selector(req)
	switch {
	case err != nil:
		reply(w, err)
	case req.Verb == List:
		s.list(w, req, sel)
	case fault.code != 0:
		_ = json.NewEncoder(w).Encode(event{watch.Error, status(fault.code)})
	default:
		s.watch(r.Context(), w, req, sel)
	}
}

// target returns what a request asks for.
func target(r *http.Request) (Request, bool) {
	req := Request{Query: r.URL.Query(), Time: time.Now()}
	switch {
	case req.Query.Get("sendInitialEvents") == "true":
		req.Verb = WatchList
	case req.Query.Get("watch") == "true":
		req.Verb = Watch
	default:
		req.Verb = List
	}
	if path, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"); ok {
		req.Verb = CreateEvent
		req.Namespace, path, _ = strings.Cut(path, "/")
		return req, path == "events" && r.Method == http.MethodPost
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/apis/"+api.Resource.GroupVersion().String()+"/")
	if !ok {
		return req, false
	}
	if path == api.Resource.Resource {
		return req, r.Method == http.MethodGet
	}
	parts := strings.Split(path, "/") // namespaces NAMESPACE managedclusters [NAME [status]]
	if len(parts) < 3 || parts[0] != "namespaces" || parts[2] != api.Resource.Resource {
		return req, false
	}
	req.Namespace = parts[1]
	switch {
	case len(parts) == 3:
		return req, r.Method == http.MethodGet
	case len(parts) == 4:
		req.Verb, req.Name = Get, parts[3]
		return req, r.Method == http.MethodGet
	default:
		req.Verb, req.Name = UpdateStatus, parts[3]
		return req, r.Method == http.MethodPut && len(parts) == 5 && parts[4] == "status"
	}
}

// single answers a request for one object.
func (s *APIServer) single(req Request, body io.Reader) (*unstructured.Unstructured, error) {
	in := &unstructured.Unstructured{}
	if req.Verb != Get {
		raw, err := io.ReadAll(body)
		if err == nil {
			err = in.UnmarshalJSON(raw)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Verb == CreateEvent {
		s.events = append(s.events, in)
		return in, nil
	}
	key := types.NamespacedName{Namespace: req.Namespace, Name: req.Name}
	obj := s.objects[key]
	switch rv := in.GetResourceVersion(); {
	case obj == nil:
		return nil, apierrors.NewNotFound(api.Resource.GroupResource(), req.Name)
	case req.Verb == Get:
		return obj, nil
	case rv != "" && rv != obj.GetResourceVersion():
		return nil, apierrors.NewConflict(api.Resource.GroupResource(), req.Name, errors.New("the object has been modified"))
	case reflect.DeepEqual(in.Object["status"], obj.Object["status"]):
		return obj, nil
	}
	out := obj.DeepCopy()
	out.Object["status"] = in.Object["status"]
	s.objects[key] = s.changeLocked(obj, out)
	return out, nil
}

// admit records a request and returns the fault that it is to meet.
func (s *APIServer) admit(req Request) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	for i, f := range s.faults {
		if len(f.verbs) > 0 && !slices.Contains(f.verbs, req.Verb) {
			continue
		}
		if f.times == 1 {
			s.faults = slices.Delete(s.faults, i, i+1)
		} else if f.times > 1 {
			s.faults[i].times--
		}
		return f
	}
	return Fault{}
}

// selector returns the test of an object for the selection of req. The errors are
// those of a real server.
func (s *APIServer) selector(req Request) (func(*unstructured.Unstructured) bool, error) {
	byLabel, err := labels.Parse(req.Query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(req.Query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	selectable := s.selectable
	s.mu.Unlock()
	for _, term := range byField.Requirements() {
		if term.Field != "metadata.name" && term.Field != "metadata.namespace" && !(term.Field == api.ClusterIDField && selectable) {
			return nil, apierrors.NewBadRequest("field label not supported: " + term.Field)
		}
	}
	if req.Verb == WatchList && req.Query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) {
		return nil, apierrors.NewBadRequest("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	}
	return func(obj *unstructured.Unstructured) bool {
		if obj == nil || req.Namespace != "" && obj.GetNamespace() != req.Namespace {
			return false
		}
		clusterID, _, _ := unstructured.NestedString(obj.Object, "spec", "clusterId")
		return byLabel.Matches(labels.Set(obj.GetLabels())) && byField.Matches(fields.Set{
			"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace(), api.ClusterIDField: clusterID,
		})
	}, nil
}

// list answers with a page. The token for the next one is the resourceVersion of
// the first, and the last key; unlike a real server's, a later page shows the
// objects as they are by then.
func (s *APIServer) list(w http.ResponseWriter, req Request, selected func(*unstructured.Unstructured) bool) {
	limit, _ := strconv.Atoi(req.Query.Get("limit"))
	s.mu.Lock()
	version := strconv.Itoa(s.version)
	objs := s.selectLocked(selected)
	s.mu.Unlock()
	if token := req.Query.Get("continue"); token != "" {
		first, last, _ := strings.Cut(token, " ")
		version = first
		objs = slices.DeleteFunc(objs, func(obj *unstructured.Unstructured) bool { return key(obj) <= last })
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": api.Resource.GroupVersion().String(), "kind": "ManagedClusterList",
	}}
	list.SetResourceVersion(version)
	if limit > 0 && len(objs) > limit {
		list.SetContinue(version + " " + key(objs[limit-1]))
		list.SetRemainingItemCount(ptr(int64(len(objs) - limit)))
		objs = objs[:limit]
	}
	for _, obj := range objs {
		list.Items = append(list.Items, *obj)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// watch sends events until ctx or the watch's own time ends.
func (s *APIServer) watch(ctx context.Context, w http.ResponseWriter, req Request, selected func(*unstructured.Unstructured) bool) {
	from, err := strconv.Atoi(cmp.Or(req.Query.Get("resourceVersion"), "0"))
	if err != nil {
		reply(w, apierrors.NewBadRequest("invalid resource version"))
		return
	}
	var timeout <-chan time.Time
	if seconds, _ := strconv.Atoi(req.Query.Get("timeoutSeconds")); seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		timeout = timer.C
	}
	owed := req.Verb == WatchList // the bookmark that ends the initial events
	bookmarks := req.Query.Get("allowWatchBookmarks") == "true"

	s.mu.Lock()
	var out []event
	if from == 0 || owed { // the state there is
		for _, obj := range s.selectLocked(selected) {
			out = append(out, event{watch.Added, obj})
		}
	} else { // the changes since
		for _, e := range s.log {
			if e.version > from {
				out = append(out, e.changes(selected)...)
			}
		}
	}
	next := len(s.log)
	s.watches++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watches--
	}()

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for encoder, ended := json.NewEncoder(w), false; ; {
		s.mu.Lock()
		for ; next < len(s.log) && !ended; next++ {
			e := s.log[next]
			ended = e.end
			if e.event != nil && (e.event.Type != watch.Bookmark || bookmarks) {
				out = append(out, *e.event)
			}
			out = append(out, e.changes(selected)...)
		}
		if owed && !s.withheld && !ended {
			owed = false
			out = append(out, event{watch.Bookmark, bookmark(s.version, map[string]any{metav1.InitialEventsAnnotationKey: "true"})})
		}
		grown := s.grown
		s.mu.Unlock()
		for _, e := range out {
			if encoder.Encode(e) != nil {
				return
			}
		}
		out = nil
		w.(http.Flusher).Flush()
		if ended {
			return
		}
		select {
		case <-grown:
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}

// changes returns what e is for a watch with a selection: leaving it is a
// deletion, entering it an addition.
func (e entry) changes(selected func(*unstructured.Unstructured) bool) []event {
	was, is := selected(e.old), selected(e.obj)
	switch {
	case was && is:
		return []event{{watch.Modified, e.obj}}
	case is:
		return []event{{watch.Added, e.obj}}
	case was:
		gone := e.old.DeepCopy()
		gone.SetResourceVersion(strconv.Itoa(e.version))
		return []event{{watch.Deleted, gone}}
	default:
		return nil
	}
}

// selectLocked returns the selected objects, which are never changed in place.
func (s *APIServer) selectLocked(selected func(*unstructured.Unstructured) bool) []*unstructured.Unstructured {
	objs := slices.SortedFunc(maps.Values(s.objects), func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(key(a), key(b))
	})
	return slices.DeleteFunc(objs, func(obj *unstructured.Unstructured) bool { return !selected(obj) })
}

func key(obj *unstructured.Unstructured) string { return obj.GetNamespace() + "/" + obj.GetName() }

func ptr[T any](v T) *T { return &v }

func bookmark(version int, annotations map[string]any) map[string]any {
	metadata := map[string]any{"resourceVersion": strconv.Itoa(version)}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	return map[string]any{"apiVersion": api.Resource.GroupVersion().String(), "kind": "ManagedCluster", "metadata": metadata}
}

// reply sends the status that err is.
func reply(w http.ResponseWriter, err error) {
	var of apierrors.APIStatus
	if !errors.As(err, &of) {
		of = apierrors.NewInternalError(err)
	}
	answer := of.Status()
	answer.APIVersion, answer.Kind = "v1", "Status"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(answer.Code))
	_ = json.NewEncoder(w).Encode(answer)
}
