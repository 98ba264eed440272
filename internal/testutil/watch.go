package testutil

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusternet/syncgate/internal/api"
)

// entry is something that open watches send: a change of an object, an event for
// all watches, or their end.
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

func (s *APIServer) appendLocked(e entry) {
	e.version = s.version
	s.log = append(s.log, e)
	s.wakeLocked()
}

// ForgetLog drops the changes so far. All watches must have read them, and no client must
// go on from an earlier version.
func (s *APIServer) ForgetLog() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten += len(s.log)
	s.log = nil
}

// wakeLocked makes the watches read the log.
func (s *APIServer) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// CutWatches ends all watches, as a real server does from time to time.
func (s *APIServer) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appendLocked(entry{end: true})
}

// Bookmark sends a bookmark to all watches.
func (s *APIServer) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appendLocked(entry{event: bookmark(s.version, nil)})
}

// SendError sends an ERROR event with the status of code to all watches, and ends
// them.
func (s *APIServer) SendError(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appendLocked(entry{event: &event{watch.Error, status(code)}})
	s.appendLocked(entry{end: true})
}

// WithholdInitialBookmark changes whether WatchLists lack the bookmark that ends
// their initial events. withheld = false sends it to open watches too.
func (s *APIServer) WithholdInitialBookmark(withheld bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld = withheld
	s.wakeLocked()
}

// Watches returns the number of open watches.
func (s *APIServer) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// list answers with one page. The continue token is the resourceVersion of the
// first page and the last key. Unlike a real server, a later page has the objects
// of its own time.
func (s *APIServer) list(w http.ResponseWriter, req Request, selects selector) {
	s.mu.Lock()
	version := strconv.Itoa(s.version)
	objs := s.selectLocked(selects)
	s.mu.Unlock()
	if token := req.Query.Get("continue"); token != "" {
		first, last, _ := strings.Cut(token, " ")
		version = first
		objs = slices.DeleteFunc(objs, func(obj *unstructured.Unstructured) bool { return keyOf(obj) <= last })
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": api.Resource.GroupVersion().String(), "kind": "ManagedClusterList",
	}}
	list.SetResourceVersion(version)
	if limit, _ := strconv.Atoi(req.Query.Get("limit")); limit > 0 && len(objs) > limit {
		remaining := int64(len(objs) - limit)
		objs = objs[:limit]
		list.SetContinue(version + " " + keyOf(objs[limit-1]))
		list.SetRemainingItemCount(&remaining)
	}
	for _, obj := range objs {
		list.Items = append(list.Items, *obj)
	}
	respond(w, http.StatusOK, list)
}

// selectLocked returns the selected objects in the order of their keys.
func (s *APIServer) selectLocked(selects selector) []*unstructured.Unstructured {
	var objs []*unstructured.Unstructured
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if selects(s.objects[key]) {
			objs = append(objs, s.objects[key])
		}
	}
	return objs
}

// watch sends events until ctx, the timeout of the watch, or an entry ends it.
func (s *APIServer) watch(ctx context.Context, w http.ResponseWriter, req Request, selects selector) {
	from, err := strconv.Atoi(cmp.Or(req.Query.Get("resourceVersion"), "0"))
	if err != nil {
		reply(w, apierrors.NewBadRequest("invalid resource version"))
		return
	}
	if seconds, _ := strconv.Atoi(req.Query.Get("timeoutSeconds")); seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
	}
	stream := s.openStream(req, from, selects)
	defer stream.close()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for encoder := json.NewEncoder(w); ; {
		events, changed := stream.next()
		for _, e := range events {
			if encoder.Encode(e) != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		if changed == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// stream is one open watch. The goroutine of its request uses it.
type stream struct {
	server    *APIServer
	selects   selector
	bookmarks bool    // whether the client allows bookmarks
	initial   bool    // whether the bookmark that ends the initial events is still to be sent
	unsent    []event // the events of the start
	position  int     // of the first entry in the log that was not read
}

func (s *APIServer) openStream(req Request, from int, selects selector) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	out := &stream{
		server: s, selects: selects, position: s.forgotten + len(s.log),
		bookmarks: req.Query.Get("allowWatchBookmarks") == "true", initial: req.Verb == WatchList,
	}
	if from == 0 || out.initial { // starts with the current state
		for _, obj := range s.selectLocked(selects) {
			out.unsent = append(out.unsent, event{watch.Added, obj})
		}
		return out
	}
	for _, e := range s.log {
		if e.version > from {
			out.unsent = append(out.unsent, e.changes(selects)...)
		}
	}
	return out
}

func (s *stream) close() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.watches--
}

// next returns the events to send, and the channel that announces more. A nil
// channel means that the watch has ended.
func (s *stream) next() (events []event, changed <-chan struct{}) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	events, s.unsent = s.unsent, nil
	for ; s.position < s.server.forgotten+len(s.server.log); s.position++ {
		e := s.server.log[s.position-s.server.forgotten]
		if e.end {
			return events, nil
		}
		if e.event != nil && (e.event.Type != watch.Bookmark || s.bookmarks) {
			events = append(events, *e.event)
		}
		events = append(events, e.changes(s.selects)...)
	}
	if s.initial && !s.server.withheld {
		s.initial = false
		events = append(events, *bookmark(s.server.version, map[string]any{metav1.InitialEventsAnnotationKey: "true"}))
	}
	return events, s.server.changed
}

// changes returns the event of e for a watch with a selector. An object that
// leaves the selection is deleted, and one that enters it is added.
func (e entry) changes(selects selector) []event {
	was, is := selects(e.old), selects(e.obj)
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

func bookmark(version int, annotations map[string]any) *event {
	metadata := map[string]any{"resourceVersion": strconv.Itoa(version)}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	return &event{watch.Bookmark, map[string]any{
		"apiVersion": api.Resource.GroupVersion().String(), "kind": "ManagedCluster", "metadata": metadata,
	}}
}
