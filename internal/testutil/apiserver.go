package testutil

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/internal/api"
)

// APIServer is a fake API server for ManagedClusters. A client can list, watch, get
// and patch them, update their status, and create core/v1 Events. It answers as a real
// server does over HTTP, but its Client needs no socket, so that it works in a
// testing/synctest bubble. Watches send bookmarks only when Bookmark is called. All
// methods may be called from any goroutine.
type APIServer struct {
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	handlers sync.WaitGroup

	mu         sync.Mutex                            // guards all below
	objects    map[string]*unstructured.Unstructured // by key; an object is never changed in place
	version    int                                   // the latest resourceVersion
	log        []entry                               // what open watches send, see watch.go
	forgotten  int                                   // entries that log no longer has
	changed    chan struct{}                         // closed when log or withheld changes
	selectable bool                                  // whether spec.clusterId can be selected
	stock      bool                                  // whether spec.syncPaused is dropped, see DropFlag
	withheld   bool                                  // see WithholdInitialBookmark
	watches    int                                   // open watches
	events     []*unstructured.Unstructured
	faults     []Fault
	requests   []Request
	onRequest  func(Request)
}

// NewAPIServer returns a server whose CRD declares spec.clusterId as a selectable
// field.
func NewAPIServer(objs ...*unstructured.Unstructured) *APIServer {
	s := &APIServer{
		objects:    map[string]*unstructured.Unstructured{},
		version:    100,
		changed:    make(chan struct{}),
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

// begin starts a handler, which must end with handlers.Done. It returns false when
// s is closed.
func (s *APIServer) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.handlers.Add(1)
	return true
}

// Client returns a real dynamic client of s, without a rate limit.
func (s *APIServer) Client() dynamic.Interface {
	client, err := dynamic.NewForConfig(&rest.Config{Host: "http://apiserver.test", Transport: transport{s}, QPS: -1})
	if err != nil {
		panic(err) // the configuration is fixed
	}
	return client
}

// ServeHTTP implements http.Handler.
func (s *APIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, ok := route(r)
	if !ok {
		reply(w, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, api.Resource.GroupResource(), "", "404 page not found", 0, true))
		return
	}
	if s.record(req).serve(w, r, req) {
		return
	}
	switch req.Verb {
	case Get, UpdateStatus, Patch, CreateEvent:
		obj, err := s.serveObject(req, r.Body)
		if err != nil {
			reply(w, err)
			return
		}
		respond(w, http.StatusOK, obj)
	default:
		s.serveCollection(w, r, req)
	}
}

// serveCollection serves a list or a watch.
func (s *APIServer) serveCollection(w http.ResponseWriter, r *http.Request, req Request) {
	selects, err := s.selector(req)
	switch {
	case err != nil:
		reply(w, err)
	case req.Verb == List:
		s.list(w, req, selects)
	default:
		s.watch(r.Context(), w, req, selects)
	}
}

// respond writes a response in JSON.
func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// reply writes err as the Status of a failed request.
func reply(w http.ResponseWriter, err error) {
	var of apierrors.APIStatus
	if !errors.As(err, &of) {
		of = apierrors.NewInternalError(err)
	}
	status := of.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	respond(w, int(status.Code), status)
}
