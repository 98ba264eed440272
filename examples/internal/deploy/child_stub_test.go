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
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// childStub is a child cluster that has ConfigMaps only. It is the transport of its clients.
type childStub struct {
	t *testing.T

	noKind   bool // guarded by mu; the CustomResourceDefinition, as it were, is gone
	noDryRun bool // an admission webhook does not take them

	mu       sync.Mutex           // guards the fields below
	during   func(request string) // called within each request before it is answered
	requests []string
	objects  map[string]*unstructured.Unstructured // by name
	version  int
	watches  []stubWatch
}

// stubWatch is an open watch.
type stubWatch struct {
	request *http.Request
	events  chan<- []byte
}

func newChildStub(t *testing.T) *childStub {
	return &childStub{t: t, during: func(string) {}, objects: map[string]*unstructured.Unstructured{}}
}

// aliasGroup serves the same objects as the core group does, as extensions and
// networking.k8s.io once did.
const aliasGroup = "alias.example.com"

// onRequest has a function called within each request before it is answered.
func (s *childStub) onRequest(during func(request string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.during = during
}

// describeRequest names a request, for example "GET web".
func describeRequest(r *http.Request) string {
	switch query := r.URL.Query(); {
	case r.URL.Path == "/api/v1", r.URL.Path == "/apis/"+aliasGroup+"/v1":
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
	during := s.during
	s.mu.Unlock()
	during(request)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answerLocked(r, request), nil
}

func (s *childStub) answerLocked(r *http.Request, request string) *http.Response {
	method, name, _ := strings.Cut(request, " ")
	if s.noKind && name != "kinds" {
		return refuse(http.StatusNotFound, "NotFound")
	}
	switch method {
	case "WATCH":
		return s.watchLocked(r)
	case "LIST":
		return answer(http.StatusOK, map[string]any{
			"kind": "ConfigMapList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)},
			"items": slices.Collect(maps.Values(s.objects)),
		})
	case http.MethodPatch, "DRYRUN":
		return s.applyLocked(r, name, method == "DRYRUN")
	}
	if name == "kinds" && s.noKind {
		return refuse(http.StatusNotFound, "NotFound")
	}
	if name == "kinds" {
		return answer(http.StatusOK, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/apis/"), "/api/"),
			"resources": []any{map[string]any{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}},
		})
	}
	object := s.objects[name]
	if object == nil {
		return refuse(http.StatusNotFound, "NotFound")
	}
	if method == http.MethodDelete {
		return s.deleteLocked(r, name)
	}
	return answer(http.StatusOK, in(r, object))
}

// in returns an object in the group of a request.
func in(r *http.Request, object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.SetAPIVersion("v1")
	if strings.HasPrefix(r.URL.Path, "/apis/"+aliasGroup) {
		object.SetAPIVersion(aliasGroup + "/v1")
	}
	return object
}

func (s *childStub) deleteLocked(r *http.Request, name string) *http.Response {
	object := s.objects[name]
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		s.t.Errorf("DELETE %s: %v", name, err)
	}
	if only := options.Preconditions; only != nil && (only.UID != nil && *only.UID != object.GetUID() ||
		only.ResourceVersion != nil && *only.ResourceVersion != object.GetResourceVersion()) {
		return refuse(http.StatusConflict, "Conflict")
	}
	s.version++
	object = object.DeepCopy()
	object.SetResourceVersion(fmt.Sprint(s.version))
	if len(object.GetFinalizers()) > 0 {
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
		s.objects[name] = object
		s.sendLocked("MODIFIED", object)
	} else {
		delete(s.objects, name)
		s.sendLocked("DELETED", object)
	}
	return answer(http.StatusOK, object)
}

func (s *childStub) watchLocked(r *http.Request) *http.Response {
	if r.URL.Query().Has("sendInitialEvents") {
		return refuse(http.StatusUnprocessableEntity, "Invalid") // the client then lists
	}
	body, writer := io.Pipe()
	events := make(chan []byte, 10000) // more than any test makes
	go func() {
		for event := range events {
			_, _ = writer.Write(event) // the client may have gone
		}
		_ = writer.Close()
	}()
	watch := stubWatch{r, events}
	s.watches = append(s.watches, watch)
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	for _, object := range s.objects {
		if version, _ := strconv.Atoi(object.GetResourceVersion()); version > since {
			watch.send("MODIFIED", object)
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// send sends an event.
func (w stubWatch) send(event string, object *unstructured.Unstructured) {
	data, err := json.Marshal(map[string]any{"type": event, "object": in(w.request, object)})
	if err != nil {
		panic(err)
	}
	w.events <- data
}

// sendLocked sends an event to all watches.
func (s *childStub) sendLocked(event string, object *unstructured.Unstructured) {
	for _, watch := range s.watches {
		watch.send(event, object)
	}
}

// endWatches ends all watches, as a server does after some minutes.
func (s *childStub) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, watch := range s.watches {
		close(watch.events)
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
	s.objects[name].SetUID(types.UID("uid-" + name))
}

// change changes an object as somebody else than the deployer does.
func (s *childStub) change(name string, change func(*unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object := s.objects[name].DeepCopy()
	change(object)
	object.SetResourceVersion(fmt.Sprint(s.version))
	s.objects[name] = object
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		delete(s.objects, name)
		s.sendLocked("DELETED", object)
	} else {
		s.sendLocked("MODIFIED", object)
	}
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

func refuse(code int, reason string) *http.Response { return refuseWith(code, reason, "") }

func refuseWith(code int, reason, message string) *http.Response {
	return answer(code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message,
	})
}
