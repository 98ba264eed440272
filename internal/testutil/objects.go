package testutil

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/internal/api"
)

func keyOf(obj *unstructured.Unstructured) string { return obj.GetNamespace() + "/" + obj.GetName() }

// Create adds an object.
func (s *APIServer) Create(obj *unstructured.Unstructured) { s.put(obj, false) }

// Update replaces an object.
func (s *APIServer) Update(obj *unstructured.Unstructured) { s.put(obj, true) }

func (s *APIServer) put(obj *unstructured.Unstructured, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[keyOf(obj)]
	if (old != nil) != exists {
		panic(fmt.Sprintf("ManagedCluster %s exists: %t", keyOf(obj), old != nil))
	}
	s.storeLocked(old, obj.DeepCopy())
}

// Delete removes an object.
func (s *APIServer) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[namespace+"/"+name]
	if old == nil {
		panic(fmt.Sprintf("ManagedCluster %s/%s does not exist", namespace, name))
	}
	s.storeLocked(old, nil)
}

// storeLocked replaces old by obj and notifies the watches. One of them may be nil.
func (s *APIServer) storeLocked(old, obj *unstructured.Unstructured) {
	s.version++
	if obj == nil {
		delete(s.objects, keyOf(old))
	} else {
		obj.SetResourceVersion(strconv.Itoa(s.version))
		s.objects[keyOf(obj)] = obj
	}
	s.appendLocked(entry{old: old, obj: obj})
}

// Rewrite replaces an object without an event or a new resourceVersion. That is
// what a changed CRD does to the objects that a client reads.
func (s *APIServer) Rewrite(obj *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj = obj.DeepCopy()
	obj.SetResourceVersion(s.objects[keyOf(obj)].GetResourceVersion())
	s.objects[keyOf(obj)] = obj
}

// Get returns the current object, or nil.
func (s *APIServer) Get(namespace, name string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[namespace+"/"+name].DeepCopy()
}

// Events returns the core/v1 Events that were created.
func (s *APIServer) Events() []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// serveObject serves a request for one object, and returns the object to answer.
func (s *APIServer) serveObject(req Request, body io.Reader) (*unstructured.Unstructured, error) {
	in := &unstructured.Unstructured{}
	if req.Verb != Get {
		raw, err := io.ReadAll(body)
		switch {
		case err == nil && req.Verb == Patch:
			err = json.Unmarshal(raw, &in.Object)
		case err == nil:
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
	obj := s.objects[req.Namespace+"/"+req.Name]
	switch version := in.GetResourceVersion(); {
	case obj == nil:
		return nil, apierrors.NewNotFound(api.Resource.GroupResource(), req.Name)
	case req.Verb == Get:
		return obj, nil
	case req.Verb == Patch:
		return s.patchLocked(obj, in.Object), nil
	case version != "" && version != obj.GetResourceVersion():
		return nil, apierrors.NewConflict(api.Resource.GroupResource(), req.Name, errors.New("the object has been modified"))
	case reflect.DeepEqual(in.Object["status"], obj.Object["status"]):
		return obj, nil
	}
	out := obj.DeepCopy()
	out.Object["status"] = in.Object["status"]
	s.storeLocked(obj, out)
	return out, nil
}

// DropFlag makes the server drop spec.syncPaused from patches, as the stock CRD does.
func (s *APIServer) DropFlag() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock = true
}

func (s *APIServer) patchLocked(old *unstructured.Unstructured, patch map[string]any) *unstructured.Unstructured {
	obj := old.DeepCopy()
	merge(obj.Object, patch)
	if spec, _ := obj.Object["spec"].(map[string]any); s.stock {
		delete(spec, "syncPaused")
	}
	if reflect.DeepEqual(obj.Object, old.Object) {
		return old
	}
	if !reflect.DeepEqual(obj.Object["spec"], old.Object["spec"]) {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	s.storeLocked(old, obj)
	return obj
}

// merge applies a merge patch of RFC 7396.
func merge(object, patch map[string]any) {
	for name, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(object, name)
		case map[string]any:
			next, ok := object[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				object[name] = next
			}
			merge(next, value)
		default:
			object[name] = value
		}
	}
}
