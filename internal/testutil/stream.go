package testutil

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Stream is a client of a server without objects, whose one watch sends what the test
// sends. It is faster than APIServer, so that events pile up in the informer.
type Stream struct {
	dynamic.NamespaceableResourceInterface // nil: other methods panic

	events *watch.FakeWatcher
	sent   int
}

// NewStream returns a stream to which size events can be sent ahead of the informer.
func NewStream(size int) *Stream {
	return &Stream{events: watch.NewFakeWithChanSize(size, false)}
}

// Send sends an event of an object, at the next resourceVersion, which it returns. It
// changes obj.
func (s *Stream) Send(event watch.EventType, obj *unstructured.Unstructured) string {
	s.sent++
	obj.SetResourceVersion(strconv.Itoa(s.sent + 1))
	s.events.Action(event, obj)
	return obj.GetResourceVersion()
}

// Resource implements dynamic.Interface.
func (s *Stream) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}

// IsWatchListSemanticsUnSupported makes informers of any client-go list first.
func (s *Stream) IsWatchListSemanticsUnSupported() bool { return true }

// List implements dynamic.ResourceInterface.
func (s *Stream) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	list.SetResourceVersion("1")
	return list, nil
}

// Watch implements dynamic.ResourceInterface.
func (s *Stream) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return s.events, nil
}
