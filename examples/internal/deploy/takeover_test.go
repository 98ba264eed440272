package deploy

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func count(requests []string, request string) (n int) {
	for _, each := range requests {
		if each == request {
			n++
		}
	}
	return n
}

// Deployers of two parent clusters have one object. One of them gives in, says so, and
// leaves the object to the other.
func TestTwoParents(t *testing.T) {
	child := newChildStub(t)
	first, second := deployTo(t, child), deployTo(t, child)
	first.deployed(configMap("shared", "1"))
	first.awaitWatch()
	second.create("second", configMap("shared", "2"), configMap("own", "2"))
	reason := func() string {
		reason, _, _ := unstructured.NestedString(second.description("second").Object, "status", "reason")
		return reason
	}
	second.await("the conflict", func() bool {
		return second.phaseOf("second") == phaseFailure &&
			strings.Contains(reason(), "another deployer has taken it over again, for Description clusternet-abcde/web")
	})
	if got := count(child.since(0), "PATCH shared"); got != 3 {
		t.Errorf("the shared object was written %d times; want 3: by one, by the other, and taken back", got)
	}
	second.edit("second", configMap("own", "3"))
	want := map[string]string{"shared": "1", "own": "3"}
	second.await("the end of the conflict", func() bool {
		return second.phaseOf("second") == phaseSuccess && second.owns("second", "v1 own") && maps.Equal(child.values(), want)
	})
	second.delete("second")
	second.await("the deletion", func() bool { return second.phaseOf("second") == "released" })
	if got := child.values(); got["shared"] != "1" || first.phase() != phaseSuccess {
		t.Errorf("the child has %v, and the first Description is %s; want it left to that one", got, first.phase())
	}
}

// A cluster that is registered elsewhere is taken over, and so is an object whose mark
// was changed by somebody who does not deploy it.
func TestTakesOver(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("moved", "1"))
	d.awaitWatch()
	for range 3 {
		child.change("moved", func(o *unstructured.Unstructured) {
			value("2")(o)
			annotations := o.GetAnnotations()
			annotations[ownerAnnotation] = "clusternet-fghij.gone"
			o.SetAnnotations(annotations)
			fields := appliedFields(o)
			unstructured.RemoveNestedField(fields, "f:metadata", "f:annotations")
		})
		d.edit("web", configMap("moved", "3"))
		d.await("the takeover", func() bool { return child.values()["moved"] == "3" })
	}
	if phase := d.phase(); phase != phaseSuccess {
		t.Errorf("the phase is %s, want %s", phase, phaseSuccess)
	}
}

// A child may not take dry runs.
func TestNoDryRun(t *testing.T) {
	child := newChildStub(t)
	child.noDryRun = true
	d := deployTo(t, child)
	d.deployed(configMap("changes", "1"), configMap("stays", "1"))
	d.edit("web", configMap("changes", "2"), configMap("stays", "1"))
	d.await("the edit", func() bool { return child.values()["changes"] == "2" })
	d.edit("web", strings.Replace(configMap("changes", "2"), `"value":"2"`, `"other":"2"`, 1), configMap("stays", "1"))
	d.await("a field less", func() bool { return child.values()["changes"] == "" && d.phase() == phaseSuccess })
	if got := count(child.since(0), "PATCH stays"); got != 1 {
		t.Errorf("the object that has not changed was written %d times; want once", got)
	}
	child.change("stays", value("2"))
	d.await("the repair", func() bool { return child.values()["stays"] == "1" })
}

// A field that is removed from the Description is removed from the child, even if
// somebody set it before the object was adopted. The fields of others stay.
func TestAdopts(t *testing.T) {
	for _, same := range []bool{true, false} {
		child := newChildStub(t)
		child.objects["adopted"] = fromJSON(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"adopted","uid":"uid-adopted","resourceVersion":"0",
			"managedFields":[{"manager":"kubectl-client-side-apply","operation":"Update","fieldsV1":{"f:data":{".":{},"f:value":{},"f:foreign":{}}}}]},
			"data":{"value":"1","foreign":"1"}}`)
		d := deployTo(t, child)
		adopted := "2"
		if same {
			adopted = "1"
		}
		d.deployed(configMap("adopted", adopted))
		d.edit("web", strings.Replace(configMap("adopted", "1"), `"value":"1"`, `"other":"1"`, 1))
		d.await("the edit", func() bool {
			child.mu.Lock()
			defer child.mu.Unlock()
			return reflect.DeepEqual(child.objects["adopted"].Object["data"], map[string]any{"foreign": "1", "other": "1"})
		})
	}
}

func TestWithoutOtherClaims(t *testing.T) {
	const deployed = `{"manager":"` + FieldManager + `","operation":"Apply","fieldsV1":{"f:data":{"f:a":{},"f:b":{}}}}`
	for _, test := range []struct{ name, others, want string }{
		{"none", ``, ``},
		{"not applied", `{"manager":"m","operation":"Update","fieldsV1":{"f:data":{"f:a":{}}}}`, ``},
		{"other fields", deployed + `,{"manager":"m","operation":"Update","fieldsV1":{"f:data":{"f:c":{}}}}`, ``},
		{"some", deployed + `,{"manager":"m","operation":"Update","fieldsV1":{"f:data":{".":{},"f:a":{},"f:c":{}}}}`,
			deployed + `,{"manager":"m","operation":"Update","fieldsV1":{"f:data":{".":{},"f:c":{}}}}`},
		{"all", `{"manager":"m","operation":"Update","fieldsV1":{"f:data":{"f:a":{}}}},` + deployed, deployed},
		{"a subresource", deployed + `,{"manager":"m","operation":"Update","subresource":"scale","fieldsV1":{"f:data":{"f:a":{}}}}`, ``},
		{"another that applies", deployed + `,{"manager":"m","operation":"Apply","fieldsV1":{"f:data":{"f:a":{}}}}`, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := fromJSON(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","managedFields":[`+test.others+`]}}`)
			before := object.DeepCopy()
			got, err := json.Marshal(withoutOtherClaims(object))
			if err != nil {
				t.Fatal(err)
			}
			want := "null"
			if test.want != "" {
				want = "[" + test.want + "]"
			}
			var a, b any
			if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || !reflect.DeepEqual(a, b) {
				t.Errorf("withoutOtherClaims() = %s; want %s", got, want)
			}
			if !reflect.DeepEqual(object, before) {
				t.Errorf("the object was changed: %v", object)
			}
		})
	}
}
