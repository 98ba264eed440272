//go:build go1.25

package report_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

func TestPartyNames(t *testing.T) {
	server := tu.NewAPIServer()
	defer server.Close()
	gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := func(syncgate.State) []string { return nil }
	for _, opts := range []report.Options{{Party: "a b", Parties: all}, {Party: "a/b", Parties: all}, {Party: "-", Parties: all}, {Parties: all}, {Party: "x"}} {
		if _, err := report.New(server.Client(), gate, opts); err == nil {
			t.Errorf("New(%+v) = nil; want an error", opts)
		}
	}
	for _, opts := range []report.Options{{Party: "hub"}, {Party: "SyncPaused", Parties: all}, {Party: "My.deployer_1", Parties: all}} {
		if _, err := report.New(server.Client(), gate, opts); err != nil {
			t.Errorf("New(%+v) = %v; want no error", opts, err)
		}
	}
	if report.Acknowledged(&unstructured.Unstructured{}) || report.Acknowledged(nil) {
		t.Error("Acknowledged = true for nothing; want false")
	}
}

func TestAcknowledgedObjects(t *testing.T) {
	drained := own("True", "Paused", "held by spec.syncPaused; nothing is in flight", 2)
	held := func(message string) *unstructured.Unstructured {
		return child(tu.Held("ops", "x"), withConditions(own("True", "Paused", message, 1)))
	}
	got := map[string]bool{}
	for name, object := range map[string]*unstructured.Unstructured{
		"paused":               child(tu.Paused(true), withConditions(drained)),
		"of a generation ago":  child(tu.Paused(true), edited, withConditions(drained)),
		"twice":                child(tu.Paused(true), withConditions(drained, drained)),
		"False":                child(tu.Paused(true), withConditions(own("False", "Draining", "", 2))),
		"no condition":         child(tu.Paused(true)),
		"held, not named":      held("held by ops (x); nothing is in flight"),
		"held, others named":   held("held by ops (x); nothing is in flight (holds 0123456789ab)"),
		"not held, but named":  child(tu.Paused(true), withConditions(own("True", "Paused", "held by spec.syncPaused; nothing is in flight (holds 0123456789ab)", 2))),
		"an owner who cheats":  child(tu.Paused(true), withConditions(own("True", "Paused", "held by a ( (holds 0123456789ab)); nothing is in flight", 2))),
		"status of other type": child(func(object map[string]any) { object["status"] = "x" }),
	} {
		if report.Acknowledged(object) {
			got[name] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"paused": true, "an owner who cheats": true}, got); diff != "" {
		t.Errorf("acknowledged (-want +got):\n%s", diff)
	}
}
