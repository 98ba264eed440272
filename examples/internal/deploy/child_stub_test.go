package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// childStub is a child cluster that has ConfigMaps only. It is the transport of its clients.
type childStub struct {
	t *testing.T

	// during is called within each request before it is answered.
	during func(request string)

	mu       sync.Mutex // guards the fields below
	requests []string
	objects  map[string]*unstructured.Unstructured // by name
	version  int
	watches  []*io.PipeWriter
}

func newChildStub(t *testing.T) *childStub {
	return &childStub{t: t, during: func(string) {}, objects: map[string]*unstructured.Unstructured{}}
}

// describeRequest names a request, for example "GET web".
func describeRequest(r *http.Request) string {
	switch query := r.URL.Query(); {
	case r.URL.Path == "/api/v1":
		return "GET kinds"
	case query.Has("watch"):
		return "WATCH"
	case strings.HasSuffix(r.URL.Path, "/configmaps"):
		return "LIST"
	case query.Has("dryRun"):
		return "DRYRUN " + path.Base(r.URL.Path)
	default:
		return r.Method + " " + path.Base(r.URL.Path)
	}
}

func (s *childStub) RoundTrip(r *http.Request) (*http.Response, error) {
	request := describeRequest(r)
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	s.during(request)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	method, name, _ := strings.Cut(request, " ")
	switch method {
	case "WATCH":
		return s.watchLocked(r), nil
	case "LIST":
		return answer(http.StatusOK, map[string]any{
			"kind": "ConfigMapList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)},
			"items": slices.Collect(maps.Values(s.objects)),
		}), nil
	case http.MethodPatch, "DRYRUN":
		return s.applyLocked(r, name, method == "DRYRUN"), nil
	}
	if name == "kinds" {
		return answer(http.StatusOK, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
			"resources": []any{map[string]any{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}},
		}), nil
	}
	object := s.objects[name]
	if object == nil {
		return refuse(http.StatusNotFound, "NotFound"), nil
	}
	if method == http.MethodDelete {
		delete(s.objects, name)
	}
	return answer(http.StatusOK, object), nil
}

func (s *childStub) applyLocked(r *http.Request, name string, dryRun bool) *http.Response {
	data, err := io.ReadAll(r.Body)
	object := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(data, object)
	}
	if err != nil {
		s.t.Errorf("the child was sent %s: %v", data, err)
	}
	object.SetUID("uid-" + object.GetUID())
	if !dryRun {
		s.version++
		object.SetResourceVersion(fmt.Sprint(s.version))
		s.objects[name] = object
	}
	return answer(http.StatusOK, object)
}

func (s *childStub) watchLocked(r *http.Request) *http.Response {
	if r.URL.Query().Has("sendInitialEvents") {
		return refuse(http.StatusUnprocessableEntity, "Invalid") // the client then lists
	}
	body, events := io.Pipe()
	s.watches = append(s.watches, events)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// endWatches ends all watches, as a server does after some minutes.
func (s *childStub) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, events := range s.watches {
		_ = events.Close()
	}
	s.watches = nil
}

// since returns the requests from the nth on.
func (s *childStub) since(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests[n:])
}

// put makes an object as the Description clusternet-abcde/web would have applied it.
func (s *childStub) put(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = newDescription(of(s.t, "", "", "")).mark(fromJSON(s.t, configMap(name, value)))
	s.objects[name].SetUID("uid-")
}

// values returns the value that each object has.
func (s *childStub) values() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := map[string]string{}
	for name, object := range s.objects {
		values[name], _, _ = unstructured.NestedString(object.Object, "data", "value")
	}
	return values
}

func configMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"value":%q}}`, name, value)
}

func answer(code int, content any) *http.Response {
	data, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)),
	}
}

func refuse(code int, reason string) *http.Response {
	return answer(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
}
