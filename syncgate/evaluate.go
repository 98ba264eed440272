package syncgate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusternet/syncgate/internal/api"
)

// evaluate decides on a cluster by its ManagedClusters: any that is paused pauses
// it. There is at least one object; they are sorted by key.
func evaluate(objects []*object) State {
	notVisible := firstWith(objects, func(o *observation) bool { return o.flag == flagNotVisible })
	malformed := firstWith(objects, func(o *observation) bool { reason, _ := o.problem(); return reason == ReasonMalformed })
	flagged := firstWith(objects, func(o *observation) bool { return o.flag == flagTrue })
	held := firstWith(objects, func(o *observation) bool { return len(o.holds) > 0 })

	s := State{Phase: Paused, Paused: true, Holds: holdsOf(objects, flagged != nil)}
	var decisive *object
	switch {
	case notVisible != nil:
		decisive, s.Reason = notVisible, ReasonFieldNotVisible
	case malformed != nil:
		decisive, s.Reason = malformed, ReasonMalformed
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
	for _, o := range objects {
		for _, name := range o.nearMisses {
			s.Message += fmt.Sprintf("; annotation %s of ManagedCluster %s looks like a hold but is none; rename it to %sOWNER", name, o.key, HoldPrefix)
		}
		if o.hidden {
			s.Message += fmt.Sprintf("; ManagedCluster %s counts as it was last read, because its label %s names another cluster and selecting by label does not find it; correct the label, or restart this program if the ManagedCluster is deleted",
				o.key, api.ClusterIDLabel)
		}
	}
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
		_, problem := decisive.problem()
		return fmt.Sprintf("ManagedCluster %s: %s", s.Object, problem)
	}
	holds := make([]string, 0, len(s.Holds))
	for _, hold := range s.Holds {
		holds = append(holds, hold.String())
	}
	var held []string
	for _, o := range objects {
		if o.pauses() {
			held = append(held, o.key.String())
		}
	}
	if len(held) == 1 {
		return fmt.Sprintf("ManagedCluster %s is held by %s", held[0], strings.Join(holds, ", "))
	}
	return fmt.Sprintf("ManagedClusters %s are held by %s", strings.Join(held, " and "), strings.Join(holds, ", "))
}
