package report

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusternet/syncgate/internal/api"
)

// The helpers of apimachinery for conditions need the whole list as []metav1.Condition.
// The list here belongs to others too: what they put there, known to that type or not,
// stays as it is.

// observed is what an object has of the conditions of this package.
type observed struct {
	condition  *metav1.Condition            // the first SyncPaused; nil: there is none
	duplicated bool                         // there is another SyncPaused
	parties    map[string]*metav1.Condition // what each party has reported; nil: in two conditions
}

// conditionsIn returns status.conditions of an object as it is; nil: there is none.
func conditionsIn(object map[string]any) ([]any, error) {
	value, _, err := unstructured.NestedFieldNoCopy(object, "status", "conditions")
	list, ok := value.([]any)
	if err == nil && value != nil && !ok {
		err = fmt.Errorf("status.conditions is a %T, not a list", value)
	}
	if err != nil {
		return nil, fmt.Errorf("read the conditions: %w; correct it", err)
	}
	return list, nil
}

// typeOf returns the type of an element of status.conditions.
func typeOf(element any) string {
	m, _ := element.(map[string]any)
	name, _ := m["type"].(string)
	return name
}

// observedIn returns what an object has of the conditions.
func observedIn(object map[string]any) observed {
	list, _ := conditionsIn(object)
	var o observed // heartbeats allocate nothing
	for _, element := range list {
		name := typeOf(element)
		party, ofParty := api.Party(name)
		if !ofParty && name != ConditionType {
			continue
		}
		c := &metav1.Condition{}
		// Of a malformed one some fields stay empty, the message at least: it is decoded
		// last. So it equals nothing that is to be written, and is replaced.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(element.(map[string]any), c)
		switch {
		case !ofParty && o.condition != nil:
			o.duplicated = true
		case !ofParty:
			o.condition = c
		default:
			if o.parties == nil {
				o.parties = map[string]*metav1.Condition{}
			} else if _, doubled := o.parties[party]; doubled {
				c = nil // one contradicts the other sooner or later
			}
			o.parties[party] = c
		}
	}
	return o
}

func (o *observed) isTrue() bool {
	return o.condition != nil && o.condition.Status == metav1.ConditionTrue
}

// same reports whether there is no difference at all.
func (o *observed) same(p *observed) bool {
	return o.duplicated == p.duplicated && equality.Semantic.DeepEqual(o.condition, p.condition) &&
		equality.Semantic.DeepEqual(o.parties, p.parties)
}

// wanted is what an object should have of the conditions.
type wanted struct {
	condition metav1.Condition
	party     string            // that reports; empty: there is only one
	own       *metav1.Condition // of the party; nil: there is only one
}

// equals reports whether there is nothing to write. Duplicates never equal anything:
// the second contradicts the first sooner or later.
func (o *observed) equals(want *wanted) bool {
	return !o.duplicated && equal(o.condition, &want.condition) && (want.own == nil || equal(o.parties[want.party], want.own))
}

// equal reports whether a condition, which may be nil, is the one that is wanted. The
// time does not matter: two processes that wrote at different times must not fight.
func equal(c, want *metav1.Condition) bool {
	return c != nil && c.Status == want.Status && c.Reason == want.Reason && c.Message == want.Message &&
		c.ObservedGeneration == want.ObservedGeneration
}

// differs reports whether two conditions differ by more than the numbers in flight.
func differs(a, b *metav1.Condition) bool {
	return a.Status != b.Status || a.Reason != b.Reason || a.ObservedGeneration != b.ObservedGeneration ||
		a.Reason != ReasonDraining && a.Message != b.Message
}

// onlyNumbers reports whether what is wanted differs from what there is by numbers in flight
// only.
func (o *observed) onlyNumbers(want *wanted) bool {
	return !o.duplicated && sameButNumbers(o.condition, &want.condition) &&
		(want.own == nil || sameButNumbers(o.parties[want.party], want.own))
}

var numberInFlight = regexp.MustCompile(`"inFlight":\d+|has \d+ in flight|in flight: \d+`)

func sameButNumbers(c, want *metav1.Condition) bool {
	if c == nil || c.Reason != ReasonDraining || want.Reason != ReasonDraining {
		return equal(c, want)
	}
	message := func(c *metav1.Condition) string { return numberInFlight.ReplaceAllString(c.Message, "") }
	return c.Status == want.Status && c.ObservedGeneration == want.ObservedGeneration && message(c) == message(want)
}

// differs is the same for all that is wanted.
func (w *wanted) differs(v *wanted) bool {
	return differs(&w.condition, &v.condition) || (w.own == nil) != (v.own == nil) || w.own != nil && differs(w.own, v.own)
}

// setTransitionTime gives c the time of its last transition: the time of the first of
// these earlier conditions that has the same status, else now.
func setTransitionTime(c *metav1.Condition, earlier ...*metav1.Condition) {
	c.LastTransitionTime = metav1.NewTime(time.Now())
	for _, e := range earlier {
		if e != nil && e.Status == c.Status && !e.LastTransitionTime.IsZero() {
			c.LastTransitionTime = e.LastTransitionTime
			return
		}
	}
}

// setCondition puts c into the status of an object, in place of the first of its type.
// It removes all others of the type, and leaves everything else as it is.
func setCondition(object map[string]any, c *metav1.Condition) error {
	list, err := conditionsIn(object)
	if err != nil {
		return err
	}
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return fmt.Errorf("encode the condition: %w", err)
	}
	sameType := func(element any) bool { return typeOf(element) == c.Type }
	at := slices.IndexFunc(list, sameType)
	if at < 0 {
		at = len(list)
	}
	rest := slices.DeleteFunc(slices.Clone(list), sameType)
	status, _ := object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		object["status"] = status
	}
	status["conditions"] = slices.Insert(rest, at, any(encoded))
	return nil
}
