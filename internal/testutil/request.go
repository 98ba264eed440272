package testutil

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/internal/api"
)

// The verbs of a Request.
const (
	List      = "list"
	Watch     = "watch"
	WatchList = "watchlist" // a watch with sendInitialEvents

	Get          = "get"
	UpdateStatus = "update status"
	Patch        = "patch"
	CreateEvent  = "create event"
)

// Request is a request that the server received. It is recorded before it is
// answered, also when a Fault makes it fail.
type Request struct {
	Verb      string
	Namespace string // empty: all
	Name      string // of Get, UpdateStatus and Patch
	Query     url.Values
	Time      time.Time
}

// String returns the verb, the namespace, the name and the selectors.
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

// route parses a request. It returns false when the server has no such path.
func route(r *http.Request) (Request, bool) {
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
	case len(parts) == 4 && r.Method == http.MethodPatch:
		req.Verb, req.Name = Patch, parts[3]
		return req, r.Header.Get("Content-Type") == string(types.MergePatchType)
	case len(parts) == 4:
		req.Verb, req.Name = Get, parts[3]
		return req, r.Method == http.MethodGet
	default:
		req.Verb, req.Name = UpdateStatus, parts[3]
		return req, r.Method == http.MethodPut && len(parts) == 5 && parts[4] == "status"
	}
}

// OnRequest makes the server call fn with each request before it is answered. nil
// ends that.
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

// ForgetRequests clears what Requests returns.
func (s *APIServer) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// record calls OnRequest's function, records a request, and returns its fault.
func (s *APIServer) record(req Request) Fault {
	s.mu.Lock()
	onRequest := s.onRequest
	s.mu.Unlock()
	if onRequest != nil {
		onRequest(req)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, req)
	return s.takeFaultLocked(req.Verb)
}
