package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/syncgate"
)

// maxMessage bounds a message in bytes. A CRD may refuse more than 32 KiB; the
// holds of a ManagedCluster can say more.
const maxMessage = 4096

// condition is a condition in status.conditions, of which the type is known.
type condition struct {
	status, reason, message string
	observedGeneration      int64
	lastTransitionTime      string
	doubled                 bool // there is another one of the type
}

// conditionOf returns the condition SyncPaused of an object, the first where there
// are several. Nil: it has none.
func conditionOf(object map[string]any) *condition {
	status, _ := object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	var c *condition
	for _, each := range conditions {
		if each, ok := each.(map[string]any); ok && each["type"] == ConditionType {
			if c != nil {
				c.doubled = true
				break
			}
			c = &condition{}
			c.status, _ = each["status"].(string)
			c.reason, _ = each["reason"].(string)
			c.message, _ = each["message"].(string)
			c.observedGeneration, _ = each["observedGeneration"].(int64)
			c.lastTransitionTime, _ = each["lastTransitionTime"].(string)
		}
	}
	return c
}

// says tells whether c is what d is, but for the time: two processes that wrote at
// different times must not fight over it. One of two says nothing, since the other
// contradicts it sooner or later.
func (c *condition) says(d *condition) bool {
	return c != nil && !c.doubled && c.status == d.status && c.reason == d.reason && c.message == d.message &&
		c.observedGeneration == d.observedGeneration
}

// isNews tells whether c tells more than d, apart from what is counted.
func (c *condition) isNews(d *condition) bool {
	return c.status != d.status || c.reason != d.reason || c.observedGeneration != d.observedGeneration ||
		c.reason != ReasonDraining && c.message != d.message
}

func (c *condition) equal(d *condition) bool {
	return c == d || c != nil && d != nil && *c == *d
}

// timed returns c with the time of its last transition: that of the first of these
// earlier conditions which has the same status, else now.
func (c condition) timed(earlier ...*condition) *condition {
	c.lastTransitionTime = time.Now().UTC().Format(time.RFC3339)
	for _, e := range earlier {
		if e != nil && e.status == c.status && e.lastTransitionTime != "" {
			c.lastTransitionTime = e.lastTransitionTime
			break
		}
	}
	return &c
}

// put writes c into the status of an object, in place of all that are there of its
// type, and leaves all else as it is.
func (c *condition) put(object map[string]any) error {
	status, ok := object["status"].(map[string]any)
	if !ok && object["status"] != nil {
		return fmt.Errorf("status is a %T, not an object; correct it", object["status"])
	}
	conditions, ok := status["conditions"].([]any)
	if !ok && status["conditions"] != nil {
		return fmt.Errorf("status.conditions is a %T, not a list; correct it", status["conditions"])
	}
	own := map[string]any{
		"type": ConditionType, "status": c.status, "reason": c.reason, "message": c.message,
		"observedGeneration": c.observedGeneration, "lastTransitionTime": c.lastTransitionTime,
	}
	out := make([]any, 0, len(conditions)+1)
	done := false
	for _, each := range conditions {
		if m, ok := each.(map[string]any); !ok || m["type"] != ConditionType {
			out = append(out, each)
		} else if !done {
			out = append(out, own)
			done = true
		}
	}
	if !done {
		out = append(out, own)
	}
	if status == nil {
		status = map[string]any{}
		object["status"] = status
	}
	status["conditions"] = out
	return nil
}

// view is what a gate says at one moment.
type view struct {
	state    syncgate.State
	inFlight int
	objects  map[types.NamespacedName]syncgate.Object
}

// look returns a view of a gate. Operations are counted only if the gate has not
// opened between the state and the count: else none in flight would be no proof
// that the pause took hold.
func look(gate *syncgate.Gate) view {
	for {
		v := view{objects: map[types.NamespacedName]syncgate.Object{}}
		resumes := gate.Stats().Resumes
		for _, o := range gate.Objects() { // before the state, see there
			v.objects[o.NamespacedName] = o
		}
		v.state = gate.State()
		v.inFlight = gate.InFlight()
		if gate.Stats().Resumes == resumes {
			return v
		}
	}
}

// known tells whether there is anything to be said of the cluster.
func (v *view) known() bool {
	return v.state.Phase == syncgate.Open || v.state.Phase == syncgate.Paused
}

// answers tells whether the view takes in the holds of these ManagedClusters, which
// are all of the cluster. The field is told apart by generations; what can't be read
// is not compared.
func (v *view) answers(records []record) bool {
	if v.unreadable() {
		return true
	}
	var seen []syncgate.Hold
	for _, rec := range records {
		seen = append(seen, rec.holds...)
	}
	return slices.Equal(annotations(seen), annotations(v.state.Holds))
}

// annotations returns the holds that are not the field, in an order.
func annotations(holds []syncgate.Hold) []syncgate.Hold {
	out := make([]syncgate.Hold, 0, len(holds))
	for _, hold := range holds {
		if hold != (syncgate.Hold{Owner: syncgate.SyncPausedField}) {
			out = append(out, hold)
		}
	}
	slices.SortFunc(out, func(a, b syncgate.Hold) int {
		return cmp.Or(strings.Compare(a.Owner, b.Owner), strings.Compare(a.Reason, b.Reason))
	})
	return out
}

// of returns what the view is for a ManagedCluster, see condition. The gate may not
// have read it yet.
func (v *view) of(rec *record) (condition, error) {
	object, ok := v.objects[rec.key]
	if !ok || object.UID != rec.uid || object.Generation < rec.generation {
		return condition{}, errGateBehind
	}
	return v.condition(object), nil
}

func (v *view) draining() bool {
	return v.state.Phase == syncgate.Paused && !v.unreadable() && v.inFlight > 0
}

func (v *view) unreadable() bool {
	return v.state.Reason == syncgate.ReasonMalformed || v.state.Reason == syncgate.ReasonFieldNotVisible
}

// condition returns what the view is for an object, but for the time. It is for a
// view that is known.
func (v *view) condition(o syncgate.Object) condition {
	c := condition{status: "False", observedGeneration: o.Generation}
	switch {
	case v.state.Phase == syncgate.Open:
		c.reason, c.message = ReasonSyncing, "nothing holds the cluster"
	case v.unreadable():
		c.status, c.reason, c.message = "Unknown", v.state.Reason, v.state.Message
	case v.inFlight > 0:
		c.reason = ReasonDraining
		c.message = fmt.Sprintf("%s; operations still in flight: %d", v.holders(o), v.inFlight)
	default:
		c.status, c.reason = "True", ReasonPaused
		c.message = v.holders(o) + "; nothing is in flight"
	}
	if len(c.message) > maxMessage {
		const ellipsis = "..."
		c.message = strings.ToValidUTF8(c.message[:maxMessage-len(ellipsis)], "") + ellipsis
	}
	return c
}

func (v *view) holders(o syncgate.Object) string {
	holds := make([]string, 0, len(v.state.Holds))
	for _, hold := range v.state.Holds {
		holds = append(holds, hold.String())
	}
	out := "held by " + strings.Join(holds, ", ")
	if v.state.Object != o.NamespacedName { // of the same cluster
		out += fmt.Sprintf(", see ManagedCluster %s", v.state.Object)
	}
	return out
}
