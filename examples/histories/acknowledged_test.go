package histories

import (
	"slices"
	"time"
)

// checkAcknowledged: from when somebody has observed that the pause of a ManagedCluster
// is acknowledged until somebody begins to end it, no write starts. The ManagedCluster
// must be held itself: an acknowledgement on another one of the cluster may be outdated
// without a sign, which package report admits.
func checkAcknowledged(h *History, violate func(string, ...Event)) (checked int) {
	writes := h.of(Write)
	versions := versionsOf(h)
	until := map[string]time.Duration{} // up to here all writes are checked, by object
	for _, v := range h.of(Observed) {
		if !v.Acknowledged || v.Deleted && h.Objects > 1 || !v.Hold && !(v.Field && fieldCounts(h, &v)) {
			continue
		}
		end := pauseEnds(h, &v, versions[v.Object])
		if end <= max(v.End, until[v.Object]) {
			continue
		}
		checked++
		at, _ := slices.BinarySearchFunc(writes, max(v.End, until[v.Object]), func(w Event, from time.Duration) int {
			return int(min(max(w.Start-from, -1), 1))
		})
		for _, w := range writes[at:] {
			if w.Start >= end {
				break
			}
			if w.Start > v.End {
				violate("a write started although the pause was acknowledged", v, w)
				break
			}
		}
		until[v.Object] = end
	}
	return checked
}

// pauseEnds returns when the pause that v shows may have ended at the earliest.
func pauseEnds(h *History, v *Event, versions []Event) time.Duration {
	end := forever
	// From fieldOnly on, nothing but the field may hold the object.
	fieldOnly := forever
	if !v.Hold {
		fieldOnly = v.End
	}
	for _, c := range h.of(Commit) {
		if c.Object != v.Object || c.Version <= v.Version {
			continue
		}
		if c.Deleted && h.Objects == 1 {
			continue // the last decision stays
		}
		if !c.Hold {
			fieldOnly = min(fieldOnly, c.Start)
		}
		if !c.held() {
			end = min(end, c.Start)
		}
	}
	// The stock CRD has no field.
	for _, s := range h.of(Swap) {
		if s.Stock && s.End > v.End {
			end = min(end, max(s.Start, fieldOnly))
		}
	}
	return min(end, vanishes(h, v, versions))
}

// vanishes returns when a version was observed last before one that is not held without
// a client's doing. While the CRD is replaced, a write of the status can prune the field.
func vanishes(h *History, v *Event, versions []Event) time.Duration {
	last := v.End
	for i := range versions {
		w := &versions[i]
		switch {
		case w.Version <= v.Version:
		case w.held():
			last = w.End
		case w.Deleted && h.Objects == 1:
		default:
			for _, c := range h.of(Commit) {
				if c.Object == v.Object && c.Version > v.Version && c.Version <= w.Version && !c.held() {
					return forever // pauseEnds knows
				}
			}
			return last
		}
	}
	return forever
}

// fieldCounts reports whether the field was set under a CRD that has it: since the CRD
// was stock at last, or was about to be, a client has set it again.
func fieldCounts(h *History, v *Event) bool {
	counts := true
	var patched time.Duration // when the CRD had the field again
	for _, s := range h.of(Swap) {
		switch {
		case s.Start > v.End:
		case s.Stock:
			counts = false
		default:
			counts, patched = true, s.End
		}
	}
	if !counts || patched == 0 {
		return counts
	}
	return slices.ContainsFunc(h.Events, func(c Event) bool {
		return c.Kind == Commit && c.Object == v.Object && c.Field && c.Start > patched && c.Version <= v.Version && c.Generation == v.Generation
	})
}

// versionsOf returns what was observed of each ManagedCluster, by version.
func versionsOf(h *History) map[string][]Event {
	versions := map[string][]Event{}
	for _, v := range h.of(Observed) {
		versions[v.Object] = append(versions[v.Object], v)
	}
	for _, all := range versions {
		slices.SortStableFunc(all, func(a, b Event) int { return int(min(max(int64(a.Version)-int64(b.Version), -1), 1)) })
	}
	return versions
}

// checkNames: when a True is written, it is for the generation and the holds
// that the object has in this version. If it is the only ManagedCluster of its cluster,
// it is held.
func checkNames(h *History, violate func(string, ...Event)) (checked int) {
	swaps := h.of(Swap)
	for _, versions := range versionsOf(h) {
		for i := 1; i < len(versions); i++ {
			before, v := versions[i-1], versions[i]
			if !v.True || v.Condition == before.Condition || before.Deleted || v.Gap || before.Version == v.Version {
				continue
			}
			checked++
			if !v.Acknowledged {
				violate("a True is for another generation or for other holds", before, v)
			}
			swapped := slices.ContainsFunc(swaps, func(s Event) bool { return s.Start < v.End })
			if h.Objects == 1 && !v.held() && !swapped {
				violate("a True is for an object that is not held", before, v)
			}
		}
	}
	return checked
}
