package report

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The helpers of apimachinery for conditions need the whole list as []metav1.Condition.
// The list here belongs to others too: what they put there, known to that type or not,
// stays as it is.

// observed is what an object has of the condition SyncPaused.
type observed struct {
	condition  *metav1.Condition // the first one; nil: there is none
	duplicated bool              // there are more
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

// isOwn reports whether an element of status.conditions is the condition SyncPaused.
func isOwn(element any) bool {
	m, ok := element.(map[string]any)
	return ok && m["type"] == ConditionType
}

// observedIn returns what an object has of the condition.
func observedIn(object map[string]any) observed {
	list, _ := conditionsIn(object)
	first := slices.IndexFunc(list, isOwn)
	if first < 0 {
		return observed{}
	}
	c := &metav1.Condition{}
	// Of a malformed one some fields stay empty, the message at least: it is decoded
	// last. So it equals nothing that is to be written, and is replaced.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(list[first].(map[string]any), c)
	return observed{c, slices.ContainsFunc(list[first+1:], isOwn)}
}

// same reports whether there is no difference at all.
func (o observed) same(p observed) bool {
	return o.duplicated == p.duplicated && equality.Semantic.DeepEqual(o.condition, p.condition)
}

// equals reports whether there is nothing to write. Duplicates never equal anything:
// the second contradicts the first sooner or later.
func (o observed) equals(want *metav1.Condition) bool {
	return !o.duplicated && equal(o.condition, want)
}

// equal reports whether a condition, which may be nil, is the one that is wanted. The
// time does not matter: two processes that wrote at different times must not fight.
func equal(c, want *metav1.Condition) bool {
	return c != nil && c.Status == want.Status && c.Reason == want.Reason && c.Message == want.Message &&
		c.ObservedGeneration == want.ObservedGeneration
}

// differs reports whether two conditions differ by more than the number in flight.
func differs(a, b *metav1.Condition) bool {
	return a.Status != b.Status || a.Reason != b.Reason || a.ObservedGeneration != b.ObservedGeneration ||
		a.Reason != ReasonDraining && a.Message != b.Message
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
	own, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return fmt.Errorf("encode the condition: %w", err)
	}
	at := slices.IndexFunc(list, isOwn)
	if at < 0 {
		at = len(list)
	}
	rest := slices.DeleteFunc(slices.Clone(list), isOwn)
	status, _ := object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		object["status"] = status
	}
	status["conditions"] = slices.Insert(rest, at, any(own))
	return nil
}
