package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func value(text string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.Object["data"].(map[string]any)["value"] = text }
}

// awaitWatch waits until the objects are watched and the writes so far have been compared.
func (d *deployment) awaitWatch() {
	d.Helper()
	d.await("an open watch", func() bool {
		d.child.mu.Lock()
		defer d.child.mu.Unlock()
		return len(d.child.watches) > 0
	})
}

// Only the fields that were applied are drift, and only the object that has drifted is
// compared.
func TestDrift(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("noisy", "1"), configMap("drifts", "1"), configMap("other", "1"))
	d.awaitWatch()
	for _, name := range []string{"noisy", "drifts", "other"} { // from then on they are watched for sure
		child.change(name, value("2"))
		d.await("the first repair", func() bool { return child.values()[name] == "1" })
	}
	d.await("the end of comparisons", func() bool {
		d.deployer.agenda.mu.Lock()
		defer d.deployer.agenda.mu.Unlock()
		return len(d.deployer.agenda.due) == 0 && len(d.deployer.agenda.idle) == 3
	})
	n := len(child.since(0))
	for i := range 5 {
		child.change("noisy", func(o *unstructured.Unstructured) {
			annotations := o.GetAnnotations()
			annotations["example.com/renewed"] = fmt.Sprint(i)
			o.SetAnnotations(annotations)
			_ = unstructured.SetNestedField(o.Object, fmt.Sprint(i), "data", "foreign")
		})
	}
	child.change("drifts", value("2"))
	d.await("the repair", func() bool { return child.values()["drifts"] == "1" })
	if got, want := child.since(n), []string{"GET drifts", "DRYRUN drifts", "PATCH drifts"}; !slices.Equal(got, want) {
		t.Errorf("the child was sent %q; want %q", got, want)
	}
	if foreign, _, _ := unstructured.NestedString(child.objects["noisy"].Object, "data", "foreign"); foreign != "4" {
		t.Errorf("the field of somebody else is %q; want 4", foreign)
	}
}

// So it is in a group other than the core.
func TestDriftInAGroup(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(inGroup("drifts", "1"))
	d.awaitWatch()
	for range 2 {
		child.change("drifts", value("2"))
		d.await("the repair", func() bool { return child.values()["drifts"] == "1" })
	}
}

// A kind that the child does not serve any more is not watched any more, until it is back.
func TestKindGoes(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(inGroup("one", "1"))
	d.awaitWatch()
	serve := func(serve bool) {
		child.mu.Lock()
		defer child.mu.Unlock()
		child.noKind = !serve
		clear(child.objects)
	}
	watched := func() int {
		c := d.deployer.child
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.watched)
	}
	serve(false)
	child.endWatches()
	d.await("the failure", func() bool {
		return d.phase() == phaseFailure && strings.Contains(d.reason(), "does not serve this kind")
	})
	if got := watched(); got != 0 {
		t.Errorf("%d resources are watched; want none", got)
	}
	n := len(child.since(0))
	d.await("two more tries", func() bool { return count(child.since(n), "GET kinds") > 2 })
	if got := slices.Compact(child.since(n)); !slices.Equal(got, []string{"GET kinds"}) {
		t.Errorf("the child was sent %q; want that it is asked for its kinds alone", got)
	}
	serve(true)
	d.await("the kind", func() bool { return d.phase() == phaseSuccess && child.values()["one"] == "1" })
	d.awaitWatch()
	child.change("one", value("2"))
	d.await("the repair", func() bool { return child.values()["one"] == "1" })
}

// An object that is repaired was removed from its Description, or does not belong to it yet.
func TestDriftOfWhatIsNotWanted(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("kept", "1"), configMap("removed", "1"))
	d.awaitWatch()
	removed := identity{"v1", "ConfigMap", "default", "removed"}
	child.onRequest(func(request string) {
		if request == "PATCH kept" { // the removal is known to the parent, and not done
			d.deployer.schedule("clusternet-abcde/web", removed, 0)
		}
	})
	d.edit("web", configMap("kept", "2"))
	d.await("the edit", func() bool { return d.owns("web", "v1 kept") && d.phase() == phaseSuccess })
	n := len(child.since(0))
	d.deployer.schedule("clusternet-abcde/web", removed, 0)
	d.edit("web", configMap("kept", "3"))
	d.await("the next edit", func() bool { return child.values()["kept"] == "3" })
	if got := child.since(n); slices.ContainsFunc(got, func(r string) bool { return strings.HasSuffix(r, " removed") }) {
		t.Errorf("the child was sent %q; want what was removed left alone", got)
	}
}

func TestAgenda(t *testing.T) {
	a, b := identity{name: "a"}, identity{name: "b"}
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda()
		if !g.add("x", whole, time.Minute) || !g.add("x", a, time.Second) || g.add("x", a, 2*time.Second) || !g.add("y", b, 0) {
			t.Error("add() is wrong about what was not due by then")
		}
		check := func(wantAll bool, wantNext time.Duration, want ...identity) {
			t.Helper()
			all, objects, next := g.take("x")
			until := time.Duration(0)
			if !next.IsZero() {
				until = time.Until(next)
			}
			if all != wantAll || until != wantNext || !slices.Equal(objects, want) {
				t.Errorf("take() = %t, %v, in %v; want %t, %v, in %v", all, objects, until, wantAll, want, wantNext)
			}
		}
		check(false, time.Second)
		time.Sleep(time.Second)
		check(false, 59*time.Second, a)
		time.Sleep(59 * time.Second)
		check(true, 0)
		check(false, 0)

		// Comparisons that find nothing slow those of their object alone.
		for _, want := range []time.Duration{1, 1, 2, 4, 8, 16, 32, 60, 60} {
			if got := g.delay(a); got != want*time.Second {
				t.Errorf("delay() = %v; want %v", got, want*time.Second)
			}
			g.compared(a, false)
		}
		if got := g.delay(b); got != repairDelay {
			t.Errorf("the delay of another object is %v; want %v", got, repairDelay)
		}
		g.compared(a, true)
		if got := g.delay(a); got != repairDelay {
			t.Errorf("after one that has found something delay() = %v; want %v", got, repairDelay)
		}
		for range 5 {
			g.compared(a, false)
		}
		time.Sleep(2*maxRepairDelay + 1)
		if got := g.delay(a); got != repairDelay {
			t.Errorf("after a quiet time delay() = %v; want %v", got, repairDelay)
		}
		g.compared(b, false)
		if len(g.idle) != 1 {
			t.Errorf("%d objects are remembered; want those that were compared of late", len(g.idle))
		}
	})
}

func TestEqualOfAppliedFields(t *testing.T) {
	const object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","uid":"u","annotations":{"own":"1","foreign":"1"},
		"managedFields":[{"manager":"kubectl","operation":"Update","fieldsV1":{"f:metadata":{"f:annotations":{"f:foreign":{}}}}},
			{"manager":"` + FieldManager + `","operation":"Apply","fieldsV1":{"f:metadata":{"f:annotations":{"f:own":{}}},"f:spec":{
			"f:containers":{"k:{\"name\":\"a\",\"port\":1}":{".":{},"f:image":{}}},"f:set":{"v:\"x\"":{}},"f:atomic":{}}}}]},
		"spec":{"containers":[{"name":"b","port":1,"image":"b1"},{"name":"a","port":1,"image":"a1","foreign":"2"}],"set":["x","z"],"atomic":{"k":"v"},"foreign":3}}`
	for _, test := range []struct {
		name, old, new string
		equal          bool
	}{
		{"foreign annotation", `"foreign":"1"`, `"foreign":"2"`, true},
		{"foreign field", `"foreign":3`, `"foreign":4`, true},
		{"foreign item", `"image":"b1"`, `"image":"b2"`, true},
		{"foreign field of an item", `"foreign":"2"`, `"foreign":"3"`, true},
		{"foreign value of a set", `"z"`, `"y"`, true},
		{"own annotation", `"own":"1"`, `"own":"2"`, false},
		{"own field of an item", `"image":"a1"`, `"image":"a2"`, false},
		{"own item", `"name":"a","port":1,"image"`, `"name":"a","port":2,"image"`, false},
		{"own value of a set", `["x",`, `["y",`, false},
		{"own atomic", `"k":"v"`, `"k":"v","l":"w"`, false},
		{"own fields", `"f:atomic":{}`, `"f:more":{}`, false},
		{"no own fields", `"Apply"`, `"Update"`, false},
		{"UID", `"uid":"u"`, `"uid":"w"`, false},
		{"being deleted", `"uid":"u"`, `"uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z"`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := fromJSON(t, object), fromJSON(t, strings.Replace(object, test.old, test.new, 1))
			if got := equal(a, b); got != test.equal {
				t.Errorf("equal() = %t, want %t", got, test.equal)
			}
			if got := equal(b, a); got != test.equal {
				t.Errorf("equal() the other way = %t, want %t", got, test.equal)
			}
		})
	}
}
