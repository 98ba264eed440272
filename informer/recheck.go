package informer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
)

// A changed CRD ends its watches about a second after the change. Until then the
// server sends objects under the old schema, without the fields that are new, and the
// next watch repeats none of them. The rule that finds a pause in such a field:
//
//  1. What was read in the five seconds before a watch ended early is in doubt.
//  2. A list beside the next watch rechecks it: one at a time, one in ten seconds.
//  3. The same resourceVersion with other content was read under the old schema:
//     the informer relists.
//  4. Another resourceVersion, or none: the object has changed since, and the next
//     watch sends that change under the new schema.
//  5. Doubt ends with a recheck that succeeds, or when an initial read begins.
//
// On 4: the next watch begins at the last resourceVersion that was passed on. Doubt
// is about the latest read of each object, so a later change comes after that.
//
// A pause is still missed in two cases. A list is answered under the old schema and
// the watch after it is opened under the new one, so that no watch ends early. Or a
// recheck is answered by another API server, which has not noticed the change yet.
// Such a pause is found by the next change of the object or the next relist.
const (
	doubtPeriod     = 5 * time.Second
	recheckInterval = 10 * time.Second
	// recheckTimeout is what an API server takes for a list by default, at most.
	recheckTimeout = time.Minute
)

const staleReason = "objects were read under an old schema of the CRD"

// history has what was read since an initial read began, as far as a recheck may need
// it. The reflector never goes on from before an initial read, so each begins a new
// history. The mutex of the source guards it, but for stale itself.
type history struct {
	recent []read // those of the last doubtPeriod, and older ones still to be removed
	// doubtful has the latest read of each object that a recheck has to confirm.
	doubtful map[string]*unstructured.Unstructured
	fault    error         // of the last recheck
	stale    chan struct{} // closed when the informer has to relist
}

type read struct {
	at  time.Time
	obj *unstructured.Unstructured // trimmed; the store has the same memory
}

func newHistory() *history {
	return &history{doubtful: map[string]*unstructured.Unstructured{}, stale: make(chan struct{})}
}

func (h *history) isStale() bool {
	select {
	case <-h.stale:
		return true
	default:
		return false
	}
}

func (h *history) rememberLocked(obj *unstructured.Unstructured) {
	now := time.Now()
	h.recent = append(h.recent, read{now, obj})
	h.pruneLocked(now)
}

func (h *history) pruneLocked(now time.Time) {
	for len(h.recent) > 0 && now.Sub(h.recent[0].at) > doubtPeriod {
		h.recent[0] = read{} // append copies the rest some day; free the object now
		h.recent = h.recent[1:]
	}
}

func (s *source) currentHistory() *history {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history
}

// recordWatchEnd puts in doubt what was read recently, if the watch ended early.
// Those reads stay recent: a recheck may be answered under the old schema as well,
// if the CRD has ended another watch than this one.
func (s *source) recordWatchEnd(h *history, early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.pruneLocked(time.Now())
	if early {
		for _, r := range h.recent {
			h.doubtful[keyOf(r.obj)] = r.obj
		}
	}
}

// startRecheck starts the goroutine that rechecks, if anything is in doubt. At most
// one runs at a time. It belongs to Run, and outlives the watch that starts it.
func (s *source) startRecheck(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rechecking || len(s.history.doubtful) == 0 {
		return
	}
	s.rechecking = true
	s.requests.Add(1) // safe beside Wait: the request of the watch is still counted
	go func() {
		defer s.requests.Done()
		for s.recheck(ctx) {
		}
	}()
}

// recheck makes one recheck when it is due. It returns false when nothing is in doubt
// or ctx has ended.
func (s *source) recheck(ctx context.Context) bool {
	s.mu.Lock()
	due := s.nextRecheck
	s.rechecking = len(s.history.doubtful) > 0
	again := s.rechecking
	s.mu.Unlock()
	if !again {
		return false
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	s.mu.Lock()
	h := s.history
	doubtful := h.doubtful
	h.doubtful = map[string]*unstructured.Unstructured{} // of watches that end from now on
	if len(doubtful) > 0 {
		s.nextRecheck = time.Now().Add(recheckInterval)
	}
	s.mu.Unlock()
	if len(doubtful) == 0 { // an initial read has begun meanwhile
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	list, err := s.list(ctx, s.withSelector(metav1.ListOptions{Limit: noStream}, s.currentSelection()))
	s.recordRecheck(ctx, h, doubtful, list, err)
	return true
}

func (s *source) recordRecheck(ctx context.Context, h *history, doubtful map[string]*unstructured.Unstructured, list *unstructured.UnstructuredList, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		h.fault = fmt.Errorf("recheck after a watch ended early: %w", withoutURL(err))
		maps.Copy(doubtful, h.doubtful) // the later reads win
		h.doubtful = doubtful
		klog.FromContext(ctx).V(4).Info("ManagedClusters can't be rechecked; trying again", "which", s.what, "err", h.fault)
		return
	}
	h.fault = nil
	for i := range list.Items {
		obj := &list.Items[i]
		before := doubtful[keyOf(obj)]
		if before != nil && before.GetResourceVersion() == obj.GetResourceVersion() && !reflect.DeepEqual(before.Object, trim(obj).Object) {
			if !h.isStale() {
				close(h.stale)
			}
			return
		}
	}
}

func keyOf(obj metav1.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }
