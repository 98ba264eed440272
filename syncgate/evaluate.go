package syncgate

import (
	"fmt"
	"slices"
	"strings"
)

// evaluate decides on a cluster by its ManagedClusters: any that is paused pauses
// it. There is at least one object; they are sorted by key.
func evaluate(objects []*object) State {
	unreadable := firstWith(objects, func(o *observation) bool { return o.fault == ReasonFieldNotVisible })
	if unreadable == nil {
		unreadable = firstWith(objects, func(o *observation) bool { return o.fault == ReasonMalformed })
	}
	flagged := firstWith(objects, func(o *observation) bool { return o.flag })
	held := firstWith(objects, func(o *observation) bool { return len(o.holds) > 0 })

	s := State{Phase: Paused, Paused: true, Holds: holdsOf(objects, flagged != nil)}
	var decisive *object
	switch {
	case unreadable != nil:
		decisive, s.Reason = unreadable, unreadable.fault
	case flagged != nil:
		decisive, s.Reason = flagged, ReasonSyncPaused
	case held != nil:
		decisive, s.Reason = held, ReasonHeld
	default:
		decisive = objects[0]
		s.Phase, s.Paused, s.Reason = Open, false, ReasonSyncAllowed
	}
	s.Object = decisive.key
	s.UID = decisive.uid
	s.Generation = decisive.generation
	s.SyncMode = decisive.syncMode
	if decisive.appPusher != 0 {
		appPusher := decisive.appPusher == yes
		s.AppPusher = &appPusher
	}
	s.Message = messageOf(&s, decisive, objects)
	return s
}

// holdsOf returns the holds of all objects: the flag first, then by owner.
func holdsOf(objects []*object, flagged bool) []Hold {
	var holds []Hold
	for _, o := range objects {
		holds = append(holds, o.holds...)
	}
	if len(objects) > 1 { // those of one object are sorted already
		slices.SortStableFunc(holds, func(a, b Hold) int { return strings.Compare(a.Owner, b.Owner) })
	}
	if flagged {
		holds = slices.Insert(holds, 0, Hold{Owner: SyncPausedField})
	}
	return holds
}

func firstWith(objects []*object, has func(*observation) bool) *object {
	for _, o := range objects {
		if has(&o.observation) {
			return o
		}
	}
	return nil
}

func messageOf(s *State, decisive *object, objects []*object) string {
	switch s.Reason {
	case ReasonSyncAllowed:
		return fmt.Sprintf("nothing holds ManagedCluster %s", s.Object)
	case ReasonMalformed, ReasonFieldNotVisible:
		return fmt.Sprintf("ManagedCluster %s: %s", s.Object, decisive.problem)
	}
	holds := make([]string, 0, len(s.Holds))
	for _, hold := range s.Holds {
		holds = append(holds, hold.String())
	}
	var held []string
	for _, o := range objects {
		if o.flag || len(o.holds) > 0 {
			held = append(held, o.key.String())
		}
	}
	if len(held) == 1 {
		return fmt.Sprintf("ManagedCluster %s is held by %s", held[0], strings.Join(holds, ", "))
	}
	return fmt.Sprintf("ManagedClusters %s are held by %s", strings.Join(held, " and "), strings.Join(holds, ", "))
}
