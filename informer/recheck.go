package informer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/internal/api"
)

// A changed CRD ends its watches about a second after the change. Until then the
// server sends objects under the old schema, without the fields that are new, and the
// next watch repeats none of them. The rule that finds a pause in such a field:
//
//  1. What was read in the five seconds before a watch ended early is in doubt.
//  2. A list beside the next watch rechecks it: one at a time, ten seconds apart.
//  3. The same resourceVersion with other content was read under the old schema:
//     the informer relists.
//  4. Another resourceVersion, or no object: it has changed or gone since, and the
//     next watch sends that under the new schema.
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
	recheckTimeout  = time.Minute // an API server's own limit for a list, by default
)

// history has what was read since an initial read began, as far as a recheck may need
// it. The reflector never goes on from before an initial read, so each begins a new
// history. The mutex of the source guards recent, doubtful and fault.
type history struct {
	recent []read // of the last doubtPeriod, and older ones until the next read
	// doubtful has the latest read of each object that a recheck has to confirm.
	doubtful map[cache.ObjectName]*unstructured.Unstructured
	fault    error         // of the last recheck
	stale    chan struct{} // closed by setStale: the informer has to relist
	setStale func()
}

type read struct {
	at  time.Time
	obj *unstructured.Unstructured // trimmed; the store has the same memory
}

func newHistory() *history {
	stale := make(chan struct{})
	return &history{
		doubtful: map[cache.ObjectName]*unstructured.Unstructured{},
		stale:    stale, setStale: sync.OnceFunc(func() { close(stale) }),
	}
}

func (s *source) remember(h *history, obj *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.recent = append(h.recent, read{time.Now(), obj})
	for len(h.recent) > 0 && time.Since(h.recent[0].at) > doubtPeriod {
		h.recent[0] = read{} // release the object before append replaces the array
		h.recent = h.recent[1:]
	}
}

// recordWatchEnd puts in doubt what was read recently, if the watch ended early.
// Those reads stay recent: a watch may end for another reason just before the CRD
// change ends the next one, and then the first recheck is under the old schema too.
func (s *source) recordWatchEnd(h *history, early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range h.recent {
		if early && time.Since(r.at) <= doubtPeriod {
			h.doubtful[cache.MetaObjectToName(r.obj)] = r.obj
		}
	}
}

// startRecheck starts a goroutine that rechecks, if anything is in doubt. It belongs
// to Run, outlives the watch that starts it, and is the only one of the informer.
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
			select {
			case <-ctx.Done():
				return
			case <-time.After(recheckInterval):
			}
		}
	}()
}

// recheck makes one recheck. It returns false when nothing is in doubt.
func (s *source) recheck(ctx context.Context) bool {
	s.mu.Lock()
	h, doubtful := s.history, s.history.doubtful
	h.doubtful = map[cache.ObjectName]*unstructured.Unstructured{} // of watches that end from now on
	s.rechecking = len(doubtful) > 0
	s.mu.Unlock()
	if len(doubtful) == 0 {
		return false
	}
	sel, _, _ := s.state()
	timeout, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	list, err := s.list(timeout, s.withSelector(metav1.ListOptions{Limit: noStream}, sel))
	if err != nil && ctx.Err() == nil { // logged without the lock, because logging may block
		klog.FromContext(ctx).V(4).Info("ManagedClusters can't be rechecked; trying again", "which", s.what, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil { // the end of Run is no fault
		return false
	}
	h.fault = nil
	if err != nil {
		h.fault = fmt.Errorf("%w: %w", api.ErrRecheck, err)
		maps.Copy(doubtful, h.doubtful) // the later reads win
		h.doubtful = doubtful
		return true
	}
	for i := range list.Items {
		obj := &list.Items[i]
		before := doubtful[cache.MetaObjectToName(obj)]
		if before != nil && before.GetResourceVersion() == obj.GetResourceVersion() && !reflect.DeepEqual(before.Object, trim(obj).Object) {
			h.setStale()
		}
	}
	return true
}
