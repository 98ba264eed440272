package testutil

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
)

// Source is a fake cache.SharedIndexInformer whose events the test makes. Add,
// Update and Delete return when all handlers have returned. A handler gets only the
// events after it was added.
type Source struct {
	cache.SharedIndexInformer // nil: other methods panic

	store cache.Store

	added chan struct{} // closed when the first handler was added

	mu       sync.Mutex // guards the fields below
	handlers map[*registration]cache.ResourceEventHandler
	synced   bool
	stopped  bool
	contact  time.Time
	err      error
	relists  uint64
}

// registration implements only HasSynced. It embeds the interface, since newer
// versions of client-go add methods to it.
type registration struct {
	cache.ResourceEventHandlerRegistration
	source *Source
}

// HasSynced returns whether the test has called Sync.
func (r *registration) HasSynced() bool {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	return r.source.synced
}

// NewSource returns a source that has not synced.
func NewSource() *Source {
	return &Source{
		store: cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc),
		added: make(chan struct{}), handlers: map[*registration]cache.ResourceEventHandler{},
	}
}

// GetStore implements cache.SharedIndexInformer. What is no object is not in the store.
func (s *Source) GetStore() cache.Store { return s.store }

// AddEventHandler implements cache.SharedIndexInformer.
func (s *Source) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errors.New("source: stopped")
	}
	r := &registration{source: s}
	s.handlers[r] = handler
	select {
	case <-s.added:
	default:
		close(s.added)
	}
	return r, nil
}

// WaitForHandler waits until the first handler was added. Outside of a bubble, call
// it before the first Add: the handler would miss the object.
func (s *Source) WaitForHandler(ctx context.Context) error {
	select {
	case <-s.added:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("source: wait for a handler: %w", context.Cause(ctx))
	}
}

// RemoveEventHandler implements cache.SharedIndexInformer.
func (s *Source) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.handlers, handle.(*registration))
	return nil
}

// IsStopped implements cache.SharedIndexInformer.
func (s *Source) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// LastContact returns the time that SetContact set.
func (s *Source) LastContact() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contact
}

// SetContact sets the time of the last contact with the server.
func (s *Source) SetContact(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = t
}

// Err returns the error that SetErr set.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// SetErr sets the current error of the server; nil: none.
func (s *Source) SetErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Relists returns how often Relist was called.
func (s *Source) Relists() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.relists
}

// Relist begins a relist: the events that follow belong to it.
func (s *Source) Relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.relists++
}

// Sync ends the first list.
func (s *Source) Sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

// Stop ends the informer. After it no handler can be added.
func (s *Source) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// Handlers returns the number of handlers.
func (s *Source) Handlers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.handlers)
}

// Handler returns one of the handlers, or nil. Benchmarks call it directly, without
// the cost of the source.
func (s *Source) Handler() cache.ResourceEventHandler {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.handlers {
		return h
	}
	return nil
}

// Add adds objects. Before Sync they are a part of the first list.
func (s *Source) Add(objs ...any) {
	for _, obj := range objs {
		s.put(obj)
		s.each(func(h cache.ResourceEventHandler, initial bool) { h.OnAdd(obj, initial) })
	}
}

// Update replaces an object.
func (s *Source) Update(old, obj any) {
	s.put(obj)
	s.each(func(h cache.ResourceEventHandler, _ bool) { h.OnUpdate(old, obj) })
}

// Delete removes an object. obj may be a tombstone.
func (s *Source) Delete(obj any) {
	_ = s.store.Delete(obj)
	s.each(func(h cache.ResourceEventHandler, _ bool) { h.OnDelete(obj) })
}

func (s *Source) put(obj any) {
	if !api.IsNil(obj) {
		_ = s.store.Add(obj)
	}
}

func (s *Source) each(call func(h cache.ResourceEventHandler, initial bool)) {
	s.mu.Lock()
	handlers := make([]cache.ResourceEventHandler, 0, len(s.handlers))
	for _, h := range s.handlers {
		handlers = append(handlers, h)
	}
	initial := !s.synced
	s.mu.Unlock()
	for _, h := range handlers {
		call(h, initial)
	}
}
