package deploy

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/examples/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const web = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"web"}}`

// fromJSON returns what a client reads, in which all numbers are int64.
func fromJSON(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return object
}

// of returns a Description with the fields of metadata, spec and status given.
func of(t *testing.T, metadata, spec, status string) *unstructured.Unstructured {
	t.Helper()
	if metadata != "" {
		metadata = "," + metadata
	}
	return fromJSON(t, `{"apiVersion":"apps.clusternet.io/v1alpha1","kind":"Description","metadata":{
		"namespace":"clusternet-abcde","name":"web","uid":"u1","resourceVersion":"7","generation":3,
		"labels":{"clusters.clusternet.io/cluster-id":"c1"}`+metadata+`},"spec":{`+spec+`},"status":{`+status+`}}`)
}

func encoded(raw ...string) string {
	list := make([]string, 0, len(raw))
	for _, each := range raw {
		list = append(list, `"`+base64.StdEncoding.EncodeToString([]byte(each))+`"`)
	}
	return `"raw":[` + strings.Join(list, ",") + `]`
}

func TestObjects(t *testing.T) {
	for _, test := range []struct {
		name, spec string
		objects    int // that can be read
		errors     []string
	}{
		{"none", ``, 0, nil},
		{"empty", `"raw":[]`, 0, nil},
		{"one", encoded(web), 1, nil},
		{"no base64", `"raw":["?"]`, 0, []string{"spec.raw[0] of Description clusternet-abcde/web", "illegal base64"}},
		{"no JSON", encoded(web, "{"), 1, []string{"spec.raw[1] of Description clusternet-abcde/web", "unexpected end of JSON"}},
		{"no kind", encoded(`{"apiVersion":"v1"}`, web), 1, []string{"spec.raw[0] of Description clusternet-abcde/web", "Kind"}},
		{"no name", encoded(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default"}}`), 0, []string{"spec.raw[0]", "the ConfigMap has no name; give it one"}},
		{"generateName", encoded(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"web-"}}`), 0, []string{"spec.raw[0]", "generateName web-", "another object"}},
		{"null", `"raw":null`, 0, nil},
		{"null entry", encoded("null\n", web), 1, nil},
		{"metadata null", encoded(`{"apiVersion":"v1","kind":"ConfigMap","metadata":null}`), 0, []string{"the ConfigMap has no name"}},
		{"metadata no object", encoded(`{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}`), 0, []string{"the metadata of the ConfigMap"}},
		{"labels no object", encoded(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":["a"]}}`), 0, []string{"the labels of ConfigMap a"}},
		{"list", encoded(`{"apiVersion":"v1","kind":"List","items":[` + web + `,` + configMap("other", "1") + `]}`), 2, nil},
		{"list of lists", encoded(`{"apiVersion":"v1","kind":"List","metadata":{"name":null},"items":[{"apiVersion":"v1","kind":"ConfigMapList","items":[` + web + `]}]}`), 1, nil},
		{"empty list", encoded(`{"apiVersion":"v1","kind":"List","items":null}`, web), 1, nil},
		{"list with a wrong item", encoded(`{"apiVersion":"v1","kind":"List","items":[` + web + `,{"kind":"ConfigMap"}]}`), 1, []string{"spec.raw[0]", "items[1]"}},
		{"list with an object twice", encoded(`{"apiVersion":"v1","kind":"List","items":[`+web+`]}`, web), 1, []string{"spec.raw[1]", "is in it twice"}},
		{"two wrong", encoded("{", web, "["), 1, []string{"spec.raw[0]", "spec.raw[2]"}},
		{"no list", `"raw":"x"`, 0, []string{"Description clusternet-abcde/web", "raw"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects, err := newDescription(of(t, "", test.spec, "")).objects()
			if len(objects) != test.objects || (err != nil) != (test.errors != nil) {
				t.Errorf("objects() = %v, %v; want %d objects, errors %q", objects, err, test.objects, test.errors)
			}
			for _, text := range test.errors {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("objects() = %v; want an error with %q", err, text)
				}
			}
		})
	}
}

// The list of what a Description owns has an object once, whichever version it is in.
func TestOwned(t *testing.T) {
	object := func(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetAPIVersion(apiVersion)
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	beta, v1 := identity{"example.com/v1beta1", "Thing", "ns", "a"}, identity{"example.com/v1", "Thing", "ns", "a"}
	cluster := identity{"example.com/v1", "Thing", "", "a"}
	before := of(t, "", "", `"manifestStatuses":[{"apiVersion":"example.com/v1beta1","kind":"Thing","namespace":"ns","name":"a","observedStatus":{"x":1}}]`)
	kept := before.DeepCopy()
	d := newDescription(before)
	if !d.owns(beta) || !d.owns(v1) || d.owns(cluster) || d.owns(identity{"other.com/v1", "Thing", "ns", "a"}) {
		t.Errorf("owned() = %v; want the one object, in any version of its group", d.owned())
	}
	d.add([]*unstructured.Unstructured{object(beta.apiVersion, beta.kind, beta.namespace, beta.name)})
	if patch := d.statusPatch(); patch != nil {
		t.Errorf("entered again: statusPatch() = %s; want none", patch)
	}
	d.add([]*unstructured.Unstructured{object("example.com/v1", "Thing", "ns", "a"), object("example.com/v1", "Thing", "", "a")})
	if got, want := d.owned(), []identity{v1, cluster}; !slices.Equal(got, want) {
		t.Errorf("entered in another version: owned() = %v, want %v", got, want)
	}
	if patch := d.statusPatch(); patch == nil {
		t.Error("entered in another version: statusPatch() = nil")
	}
	d.remove(beta)
	if got, want := d.owned(), []identity{cluster}; !slices.Equal(got, want) {
		t.Errorf("left by another version: owned() = %v, want %v", got, want)
	}
	d.remove(beta)
	d.remove(cluster)
	if got := d.owned(); len(got) > 0 {
		t.Errorf("all left: owned() = %v", got)
	}
	var patch struct {
		Status struct{ ManifestStatuses []any }
	}
	if err := json.Unmarshal(d.statusPatch(), &patch); err != nil || patch.Status.ManifestStatuses == nil || len(patch.Status.ManifestStatuses) > 0 {
		t.Errorf("all left: the patch is %s (%v); want an empty list, not none", d.statusPatch(), err)
	}
	if !reflect.DeepEqual(before, kept) {
		t.Errorf("the object of the informer was changed: %v", before)
	}
}

func TestPatches(t *testing.T) {
	const one = `"manifestStatuses":[{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"web","observedStatus":{"x":1}}]`
	finalizers := `"finalizers":["other/finalizer","` + Finalizer + `"]`
	parse := func(patch []byte) map[string]any {
		t.Helper()
		var content map[string]any
		if err := json.Unmarshal(patch, &content); err != nil {
			t.Fatalf("%s: %v", patch, err)
		}
		return content
	}
	checked := map[string]any{"resourceVersion": "7", "uid": "u1"}

	d := newDescription(of(t, finalizers, encoded(web), `"phase":"Success","reason":"",`+one))
	if got := d.statusPatch(); got != nil {
		t.Errorf("statusPatch() = %s; want none, since nothing changes", got)
	}
	if got := d.finalizerPatch(true); got != nil {
		t.Errorf("finalizerPatch(true) = %s; want none, since it is there", got)
	}
	if got, want := parse(d.finalizerPatch(false)), (map[string]any{"metadata": map[string]any{
		"resourceVersion": "7", "uid": "u1", "finalizers": []any{"other/finalizer"},
	}}); !reflect.DeepEqual(got, want) {
		t.Errorf("finalizerPatch(false) = %v, want %v", got, want)
	}
	d.phase, d.reason = phaseFailure, "why"
	if got, want := parse(d.statusPatch()), (map[string]any{"metadata": checked, "status": map[string]any{
		"phase": "Failure", "reason": "why",
		"manifestStatuses": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "web", "observedStatus": map[string]any{"x": 1.0},
		}},
	}}); !reflect.DeepEqual(got, want) {
		t.Errorf("statusPatch() = %v, want %v", got, want)
	}
	d.phase, d.reason = phaseSuccess, "another"
	if d.statusPatch() == nil {
		t.Error("with another reason statusPatch() = nil")
	}

	d = newDescription(of(t, "", encoded(web), ""))
	if got := d.finalizerPatch(false); got != nil {
		t.Errorf("finalizerPatch(false) = %s; want none, since it is not there", got)
	}
	if got, want := parse(d.finalizerPatch(true)), (map[string]any{"metadata": map[string]any{
		"resourceVersion": "7", "uid": "u1", "finalizers": []any{Finalizer},
	}}); !reflect.DeepEqual(got, want) {
		t.Errorf("finalizerPatch(true) = %v, want %v", got, want)
	}
	// What is entered before the first outcome has no phase: the CRD takes no empty one.
	objects, err := d.objects()
	if err != nil {
		t.Fatal(err)
	}
	d.add(objects)
	if got, want := parse(d.statusPatch()), (map[string]any{"metadata": checked, "status": map[string]any{
		"reason": "", "manifestStatuses": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "web"}},
	}}); !reflect.DeepEqual(got, want) {
		t.Errorf("statusPatch() = %v, want %v", got, want)
	}
}

func TestMark(t *testing.T) {
	d := newDescription(of(t, "", "", ""))
	before := fromJSON(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"web","resourceVersion":"5",
		"uid":"u2","generation":2,"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[],"labels":{"a":"b"}},"data":{"k":"v"},"status":{"x":1}}`)
	kept := before.DeepCopy()
	want := fromJSON(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"web",
		"labels":{"a":"b","`+deployedLabel+`":"true"},"annotations":{"`+ownerAnnotation+`":"clusternet-abcde.web"}},"data":{"k":"v"}}`)
	got := d.mark(before)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("mark() = %v, want %v", got, want)
	}
	if !reflect.DeepEqual(before, kept) {
		t.Errorf("mark() has changed its argument: %v", before)
	}
	if got := ownerOf(got); got != d.key() {
		t.Errorf("ownerOf() = %q, want %q", got, d.key())
	}
	dotted := &unstructured.Unstructured{Object: map[string]any{}}
	dotted.SetAnnotations(map[string]string{ownerAnnotation: "clusternet-abcde.web.v1"})
	if got, want := ownerOf(dotted), "clusternet-abcde/web.v1"; got != want {
		t.Errorf("ownerOf() = %q, want %q: a name may have dots", got, want)
	}
}

// Null is none, as a server has it.
func TestNull(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"}}`
	for _, field := range []string{"labels", "annotations", "namespace", "finalizers", "ownerReferences", "generateName"} {
		d := newDescription(of(t, "", encoded(strings.Replace(object, `{"name"`, `{"`+field+`":null,"name"`, 1)), ""))
		objects, err := d.objects()
		if err != nil || len(objects) != 1 {
			t.Errorf("%s: objects() = %v, %v; want one", field, objects, err)
			continue
		}
		if got, want := d.mark(objects[0]), d.mark(fromJSON(t, object)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: mark() = %v; want %v", field, got, want)
		}
	}
	d := newDescription(of(t, "", encoded(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","labels":{"a":null,"b":"c"}},"data":{"k":null}}`), ""))
	objects, err := d.objects()
	if err != nil || len(objects) != 1 {
		t.Fatalf("objects() = %v, %v; want one", objects, err)
	}
	if got := objects[0].Object; !reflect.DeepEqual(got["metadata"], map[string]any{"name": "web", "labels": map[string]any{"b": "c"}}) ||
		!reflect.DeepEqual(got["data"], map[string]any{"k": nil}) {
		t.Errorf("the object is %v; want no null in its metadata, and the rest left to the server", got)
	}
}

func TestEqual(t *testing.T) {
	const object = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"web","resourceVersion":"5","generation":1,
		"managedFields":[{"manager":"a"}],"labels":{"a":"b"}},"data":{"k":"v"},"status":{"x":1}}`
	for _, test := range []struct {
		name, old, new string
		equal          bool
	}{
		{"nothing", "", "", true},
		{"resourceVersion", `"resourceVersion":"5"`, `"resourceVersion":"6"`, true},
		{"generation", `"generation":1`, `"generation":2`, true},
		{"managedFields", `"manager":"a"`, `"manager":"b"`, true},
		{"status", `"x":1`, `"x":2`, true},
		{"no status", `,"status":{"x":1}`, ``, true},
		{"data", `"k":"v"`, `"k":"w"`, false},
		{"label", `"a":"b"`, `"a":"c"`, false},
		{"annotation", `"labels"`, `"annotations":{"a":"b"},"labels"`, false},
		{"finalizer", `"labels"`, `"finalizers":["a"],"labels"`, false},
		{"apiVersion", `"v1"`, `"v2"`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := fromJSON(t, object), fromJSON(t, strings.Replace(object, test.old, test.new, 1))
			kept := a.DeepCopy()
			if got := equal(a, b); got != test.equal {
				t.Errorf("equal() = %t, want %t", got, test.equal)
			}
			if got := equal(b, a); got != test.equal {
				t.Errorf("equal() the other way = %t, want %t", got, test.equal)
			}
			if !reflect.DeepEqual(a, kept) {
				t.Errorf("equal() has changed its argument: %v", a)
			}
		})
	}
}
