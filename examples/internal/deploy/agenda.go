package deploy

import (
	"sync"
	"time"
)

const (
	// repairDelay limits how often an object is compared that somebody else keeps
	// changing in the child. Comparisons that find nothing slow the next ones of this
	// object, up to maxRepairDelay.
	repairDelay    = time.Second
	maxRepairDelay = time.Minute
)

// whole stands for the whole Description among its objects.
var whole identity

// agenda has what is due for each Description: the whole of it, or the objects of it that
// others have changed in the child.
type agenda struct {
	mu    sync.Mutex // guards the fields below
	due   map[string]map[identity]time.Time
	idle  map[identity]idleness // by object, in any version
	swept time.Time             // when idle was
}

// idleness is how often in a row the comparison of an object has found nothing.
type idleness struct {
	times int
	last  time.Time
}

func newAgenda() *agenda {
	return &agenda{due: map[string]map[identity]time.Time{}, idle: map[identity]idleness{}, swept: time.Now()}
}

// add makes an object due after a delay, and reports whether it was not due by then.
func (a *agenda) add(key string, id identity, delay time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Now().Add(delay)
	if before, ok := a.due[key][id]; ok && !at.Before(before) {
		return false
	}
	if a.due[key] == nil {
		a.due[key] = map[identity]time.Time{}
	}
	a.due[key][id] = at
	return true
}

// take removes what is due now, and returns when something else is due, if anything. A
// workqueue knows only the next time of a key.
func (a *agenda) take(key string) (all bool, objects []identity, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for id, at := range a.due[key] {
		switch {
		case at.After(now):
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		case id == whole:
			all = true
		default:
			objects = append(objects, id)
		}
		delete(a.due[key], id)
	}
	if len(a.due[key]) == 0 {
		delete(a.due, key)
	}
	return all, objects, next
}

// delay returns how long to wait before an object is compared that has changed.
func (a *agenda) delay(id identity) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	idle := a.idle[id.unversioned()]
	if time.Since(idle.last) > 2*maxRepairDelay {
		return repairDelay
	}
	delay := repairDelay
	for i := 1; i < idle.times && delay < maxRepairDelay; i++ { // the first one is due to the deployer's own write
		delay *= 2
	}
	return min(delay, maxRepairDelay)
}

// compared notes what a comparison has found.
func (a *agenda) compared(id identity, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	id = id.unversioned()
	if now.Sub(a.swept) > maxRepairDelay {
		for id, idle := range a.idle {
			if now.Sub(idle.last) > 2*maxRepairDelay {
				delete(a.idle, id)
			}
		}
		a.swept = now
	}
	if found {
		delete(a.idle, id)
		return
	}
	a.idle[id] = idleness{a.idle[id].times + 1, now}
}
