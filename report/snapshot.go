package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/syncgate"
)

// maxText bounds in bytes what a message says of holders and problems. A CRD may refuse
// a message of more than 32 KiB, and the holds of a ManagedCluster can be longer.
const maxText = 4000

// snapshot is a gate at one moment.
type snapshot struct {
	state    syncgate.State
	inFlight int
	objects  map[types.NamespacedName]syncgate.Object
}

// snapshotOf returns a snapshot in which the gate has not opened between the state and
// the count of operations. Otherwise none in flight would not prove that the pause is
// in effect.
func snapshotOf(gate *syncgate.Gate) snapshot {
	for {
		s := snapshot{objects: map[types.NamespacedName]syncgate.Object{}}
		resumes := gate.Stats().Resumes
		for _, o := range gate.Objects() { // before the state, see there
			s.objects[o.NamespacedName] = o
		}
		s.state = gate.State()
		s.inFlight = gate.InFlight()
		if gate.Stats().Resumes == resumes {
			return s
		}
	}
}

// decided reports whether anything is known of the cluster.
func (s *snapshot) decided() bool {
	return s.state.Phase == syncgate.Open || s.state.Phase == syncgate.Paused
}

// covers reports whether the snapshot takes in the hold annotations of these entries,
// which are all of the cluster. Edits of the flag change the generation. What
// cannot be read is not compared.
func (s *snapshot) covers(entries []entry) bool {
	if s.unreadable() {
		return true
	}
	var holds []syncgate.Hold
	for _, e := range entries {
		holds = append(holds, e.holds...)
	}
	got := annotations(s.state.Holds)
	for _, o := range s.objects {
		if !o.Hidden {
			continue
		}
		// Its holds are in the state, and it has no entry.
		got = slices.DeleteFunc(got, func(hold syncgate.Hold) bool { return !slices.Contains(holds, hold) })
	}
	return slices.Equal(annotations(holds), got)
}

// annotations returns the holds that are annotations, sorted.
func annotations(holds []syncgate.Hold) []syncgate.Hold {
	out := make([]syncgate.Hold, 0, len(holds))
	for _, hold := range holds {
		if !hold.Local && hold != (syncgate.Hold{Owner: syncgate.SyncPausedField}) {
			out = append(out, hold)
		}
	}
	slices.SortFunc(out, func(a, b syncgate.Hold) int {
		return cmp.Or(strings.Compare(a.Owner, b.Owner), strings.Compare(a.Reason, b.Reason))
	})
	return out
}

func (s *snapshot) draining() bool {
	return s.state.Phase == syncgate.Paused && !s.unreadable() && s.inFlight > 0
}

func (s *snapshot) unreadable() bool { return isUnreadable(s.state.Reason) }

// isUnreadable reports whether a gate with this reason can't read the pause.
func isUnreadable(reason string) bool {
	return reason == syncgate.ReasonMalformed || reason == syncgate.ReasonFieldNotVisible
}

// statusOf returns what to report of an entry. The snapshot has to be decided. The error
// says that the gate has not read the object yet.
func (s *snapshot) statusOf(e *entry) (partyStatus, error) {
	object, ok := s.objects[e.key]
	if !ok || object.UID != e.uid || object.Generation < e.generation {
		return partyStatus{}, errGateBehind
	}
	p := partyStatus{generation: object.Generation, details: details{Holds: fingerprint(e.holds)}}
	switch {
	case s.state.Phase == syncgate.Open:
		p.reason, p.Text = ReasonSyncing, "nothing holds the cluster"
	case s.unreadable():
		p.reason, p.Text = s.state.Reason, s.state.Message
	case s.inFlight > 0:
		p.reason, p.Text, p.InFlight = ReasonDraining, s.holders(object), s.inFlight
	default:
		p.reason, p.Text = ReasonDrained, s.holders(object)
	}
	p.Text = cut(p.Text)
	return p, nil
}

func cut(text string) string {
	const ellipsis = "..."
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-len(ellipsis)], "") + ellipsis
}

func (s *snapshot) holders(o syncgate.Object) string {
	holds, onServer := make([]string, 0, len(s.state.Holds)), false
	for _, hold := range s.state.Holds {
		holds = append(holds, hold.String())
		onServer = onServer || !hold.Local
	}
	out := "held by " + strings.Join(holds, ", ")
	if onServer && s.state.Object != o.NamespacedName { // another ManagedCluster of the same cluster
		out += fmt.Sprintf(", see ManagedCluster %s", s.state.Object)
	}
	return out
}
