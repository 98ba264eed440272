package testutil

import (
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Source is a cache.SharedIndexInformer whose events the test makes. Each method
// that makes one returns when the handlers have returned. It has no store.
type Source struct {
	cache.SharedIndexInformer // nil: what is not overridden is not for use

	mu       sync.Mutex
	handlers map[*registration]cache.ResourceEventHandler
	synced   bool
	stopped  bool
	contact  time.Time
	err      error
}

// registration has the methods of any client-go's, of which one is for use.
type registration struct {
	cache.ResourceEventHandlerRegistration
	source *Source
}

// HasSynced tells whether the test has called Sync.
func (r *registration) HasSynced() bool {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	return r.source.synced
}

// NewSource returns a source that has not synced.
func NewSource() *Source {
	return &Source{handlers: map[*registration]cache.ResourceEventHandler{}}
}

// AddEventHandler is that of cache.SharedIndexInformer.
func (s *Source) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, errors.New("source: stopped")
	}
	r := &registration{source: s}
	s.handlers[r] = handler
	return r, nil
}

// RemoveEventHandler is that of cache.SharedIndexInformer.
func (s *Source) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.handlers, handle.(*registration))
	return nil
}

// IsStopped is that of cache.SharedIndexInformer.
func (s *Source) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// LastContact returns what SetContact set.
func (s *Source) LastContact() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contact
}

// SetContact sets when the server was last heard.
func (s *Source) SetContact(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = t
}

// Err returns what SetErr set.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// SetErr sets what is wrong with the server.
func (s *Source) SetErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Sync ends the first list.
func (s *Source) Sync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
}

// Stop ends the informer: no handler can be added any more.
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

// Handler returns the handler that was added, where there is one, for calls
// without the source's own cost.
func (s *Source) Handler() cache.ResourceEventHandler {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.handlers {
		return h
	}
	return nil
}

// Add adds objects, as a part of the first list before Sync.
func (s *Source) Add(objs ...any) {
	for _, obj := range objs {
		s.each(func(h cache.ResourceEventHandler, initial bool) { h.OnAdd(obj, initial) })
	}
}

// Update replaces an object.
func (s *Source) Update(old, obj any) {
	s.each(func(h cache.ResourceEventHandler, _ bool) { h.OnUpdate(old, obj) })
}

// Delete removes an object, or a tombstone of one.
func (s *Source) Delete(obj any) {
	s.each(func(h cache.ResourceEventHandler, _ bool) { h.OnDelete(obj) })
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
