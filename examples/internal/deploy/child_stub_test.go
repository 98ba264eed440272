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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// childStub is a child cluster that has ConfigMaps only. It is the transport of its clients.
type childStub struct {
	t *testing.T

	// during is called within each request before it is answered.
	during func(request string)

	writing  sync.Mutex // held until the event of a write has been sent, so that events are in order
	noKind   bool       // guarded by mu; the CustomResourceDefinition, as it were, is gone
	noDryRun bool       // an admission webhook does not take them

	mu       sync.Mutex // guards the fields below
	requests []string
	objects  map[string]*unstructured.Unstructured // by name
	version  int
	written  *unstructured.Unstructured // by the request that is being answered
	watches  []stubWatch
}

// stubWatch is an open watch.
type stubWatch struct {
	request *http.Request
	events  *io.PipeWriter
}

func newChildStub(t *testing.T) *childStub {
	return &childStub{t: t, during: func(string) {}, objects: map[string]*unstructured.Unstructured{}}
}

// aliasGroup serves the same objects as the core group does, as extensions and
// networking.k8s.io once did.
const aliasGroup = "alias.example.com"

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
	s.mu.Unlock()
	s.during(request)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	response := s.answerLocked(r, request)
	written := s.written
	s.written = nil
	s.mu.Unlock()
	if written != nil {
		s.send("MODIFIED", written)
	}
	return response, nil
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
	if len(object.GetFinalizers()) > 0 {
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
	} else {
		delete(s.objects, name)
	}
	return answer(http.StatusOK, object)
}

func (s *childStub) applyLocked(r *http.Request, name string, dryRun bool) *http.Response {
	data, err := io.ReadAll(r.Body)
	object := &unstructured.Unstructured{}
	merges := r.Header.Get("Content-Type") == string(types.MergePatchType)
	switch {
	case err != nil:
	case merges:
		err = json.Unmarshal(data, &object.Object)
	default:
		err = json.Unmarshal(data, object)
	}
	if err != nil {
		s.t.Errorf("the child was sent %s: %v", data, err)
	}
	if dryRun && s.noDryRun {
		return refuseWith(http.StatusBadRequest, "BadRequest", `admission webhook "x.example.com" does not support dry run`)
	}
	live := s.objects[name]
	if merges {
		return s.mergeLocked(r, live, object)
	}
	fields := fieldsOf(object.Object)
	for _, own := range []string{"f:apiVersion", "f:kind"} {
		delete(fields, own)
	}
	for _, own := range []string{"f:name", "f:namespace"} {
		delete(fields["f:metadata"].(fieldSet), own)
	}
	var managers []any
	if live != nil {
		left := live.DeepCopy()
		for _, entry := range managedFields(live) {
			if !ofDeployer(entry) {
				managers = append(managers, entry)
			}
		}
		remove(left.Object, subtract(appliedFields(live), fields), managers)
		merge(left.Object, object.Object)
		object = left
	}
	managers = append(managers, map[string]any{"manager": FieldManager, "operation": "Apply", "fieldsV1": fields})
	_ = unstructured.SetNestedField(object.Object, managers, "metadata", "managedFields")
	object.SetUID(types.UID("uid-" + name))
	if !dryRun {
		s.version++
		object.SetResourceVersion(fmt.Sprint(s.version))
		s.objects[name], s.written = object, object
	}
	return answer(http.StatusOK, in(r, object))
}

// mergeLocked answers a merge patch of metadata.managedFields.
func (s *childStub) mergeLocked(r *http.Request, live, patch *unstructured.Unstructured) *http.Response {
	if live == nil || patch.GetResourceVersion() != live.GetResourceVersion() {
		return refuse(http.StatusConflict, "Conflict")
	}
	live = live.DeepCopy()
	managers, _, _ := unstructured.NestedFieldNoCopy(patch.Object, "metadata", "managedFields")
	_ = unstructured.SetNestedField(live.Object, managers, "metadata", "managedFields")
	s.version++
	live.SetResourceVersion(fmt.Sprint(s.version))
	s.objects[live.GetName()] = live
	return answer(http.StatusOK, in(r, live))
}

// fieldsOf returns the fields of an object, in which all lists are atomic.
func fieldsOf(content map[string]any) fieldSet {
	fields := fieldSet{}
	for name, value := range content {
		members, _ := value.(map[string]any)
		fields["f:"+name] = fieldsOf(members)
	}
	return fields
}

// remove removes fields that none of these managers has.
func remove(content map[string]any, fields fieldSet, managers []any) {
	for _, manager := range managers {
		fields = subtract(fields, manager.(map[string]any)["fieldsV1"].(fieldSet))
	}
	for key, sub := range fields {
		name := strings.TrimPrefix(key, "f:")
		if members, ok := content[name].(map[string]any); ok && hasMembers(sub.(fieldSet)) {
			remove(members, sub.(fieldSet), nil)
		} else {
			delete(content, name)
		}
	}
}

func merge(content, other map[string]any) {
	for name, value := range other {
		into, isMap := content[name].(map[string]any)
		if members, ok := value.(map[string]any); ok && isMap {
			merge(into, members)
		} else {
			content[name] = value
		}
	}
}

func (s *childStub) watchLocked(r *http.Request) *http.Response {
	if r.URL.Query().Has("sendInitialEvents") {
		return refuse(http.StatusUnprocessableEntity, "Invalid") // the client then lists
	}
	body, events := io.Pipe()
	s.watches = append(s.watches, stubWatch{r, events})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// endWatches ends all watches, as a server does after some minutes.
func (s *childStub) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, watch := range s.watches {
		_ = watch.events.Close()
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
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.version++
	object := s.objects[name].DeepCopy()
	change(object)
	object.SetResourceVersion(fmt.Sprint(s.version))
	s.objects[name] = object
	event := "MODIFIED"
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		delete(s.objects, name)
		event = "DELETED"
	}
	s.mu.Unlock()
	s.send(event, object)
}

// send sends an event to all watches.
func (s *childStub) send(event string, object *unstructured.Unstructured) {
	s.mu.Lock()
	watches := slices.Clone(s.watches)
	s.mu.Unlock()
	for _, watch := range watches {
		data, err := json.Marshal(map[string]any{"type": event, "object": in(watch.request, object)})
		if err != nil {
			panic(err)
		}
		_, _ = watch.events.Write(data) // it may have ended
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
