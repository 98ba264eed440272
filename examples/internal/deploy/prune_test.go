package deploy

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// inGroup returns a ConfigMap in the other group that serves it.
func inGroup(name, value string) string {
	return strings.Replace(configMap(name, value), `"v1"`, `"`+aliasGroup+`/v1"`, 1)
}

func finalizers(names ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetFinalizers(names) }
}

// of a Description of these objects, which has been deployed.
func (d *deployment) deployed(raw ...string) {
	d.Helper()
	d.create("web", raw...)
	d.await("the Description", func() bool { return d.phase() == phaseSuccess })
}

// One object may be served by several groups. It is not deleted when only its group changes.
func TestGroupChanges(t *testing.T) {
	never := func(t *testing.T, child *childStub, request string) {
		t.Helper()
		if got := child.since(0); slices.Contains(got, request) {
			t.Errorf("the child was sent %q; want no %s", got, request)
		}
	}
	t.Run("edited", func(t *testing.T) {
		child := newChildStub(t)
		d := deployTo(t, child)
		d.deployed(configMap("same", "1"), configMap("removed", "1"))
		d.edit("web", inGroup("same", "2"))
		d.await("the edit", func() bool {
			return d.owns("web", aliasGroup+"/v1 same") && d.phase() == phaseSuccess
		})
		never(t, child, "DELETE same")
	})
	t.Run("paused in between", func(t *testing.T) {
		child := newChildStub(t)
		d := deployTo(t, child)
		d.deployed(configMap("same", "1"))
		d.setPaused(true)
		d.edit("web", inGroup("same", "2"))
		d.await("the parked edit", func() bool { return d.phase() == phasePending })
		d.setPaused(false)
		d.await("the edit", func() bool {
			return d.owns("web", aliasGroup+"/v1 same") && d.phase() == phaseSuccess
		})
		never(t, child, "DELETE same")
	})
	t.Run("taken over", func(t *testing.T) {
		child := newChildStub(t)
		d := deployTo(t, child)
		d.deployed(configMap("same", "1"), configMap("own", "1"))
		d.create("other", inGroup("same", "2"))
		d.await("the other Description", func() bool { return d.phaseOf("other") == phaseSuccess })
		d.edit("web", configMap("own", "2"))
		d.await("the edit", func() bool {
			return child.values()["own"] == "2" && d.owns("web", "v1 own") && d.phase() == phaseSuccess
		})
		never(t, child, "DELETE same")
	})
	t.Run("in one Description twice", func(t *testing.T) {
		child := newChildStub(t)
		d := deployTo(t, child)
		d.create("web", configMap("same", "1"))
		d.await("the Description", func() bool { return d.phase() == phaseSuccess })
		d.edit("web", configMap("same", "1"), inGroup("same", "2"))
		d.await("the refusal", func() bool {
			return strings.Contains(d.reason(), "it is the same object as ConfigMap default/same of v1")
		})
		never(t, child, "DELETE same")
	})
}

// A Description that wants an object in another group is its heir.
func TestGroupOfTheHeir(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("same", "1"), configMap("own", "1"))
	child.onRequest(func(request string) { // the other Description comes just before the prune
		if request == "PATCH own" {
			d.create("other", inGroup("same", "2"), configMap("later", "1"))
			d.await("the informer", func() bool { return len(d.deployer.wantedByOthers(newDescription(d.description("web")))) > 0 })
		}
	})
	d.edit("web", configMap("own", "2"))
	d.await("both", func() bool {
		return d.owns("web", "v1 own") && d.phaseOf("other") == phaseSuccess && child.values()["same"] == "2"
	})
	if got := child.since(0); slices.Contains(got, "DELETE same") {
		t.Errorf("the child was sent %q; want the object left to its heir", got)
	}
}

// A Description is released, and says Success, only when what it had is gone.
func TestWaitsForTheEndOfADeletion(t *testing.T) {
	for _, removed := range []bool{true, false} {
		child := newChildStub(t)
		d := deployTo(t, child)
		d.deployed(configMap("kept", "1"), configMap("slow", "1"))
		child.change("slow", finalizers("example.com/a", "example.com/b"))
		end := phaseSuccess
		if removed {
			d.edit("web", configMap("kept", "2"))
		} else {
			end = "released"
			d.delete("web")
		}
		d.await("a deletion that waits", func() bool {
			return d.phase() == phasePending && strings.Contains(d.reason(), "waiting until ConfigMap default/slow is deleted: it has the finalizers example.com/a, example.com/b")
		})
		child.change("slow", finalizers("example.com/b"))
		d.await("the reason", func() bool { return strings.HasSuffix(d.reason(), "finalizers example.com/b") })
		child.change("slow", finalizers())
		d.await("the end", func() bool { return d.phase() == end })
		if _, there := child.values()["slow"]; there {
			t.Errorf("removed %t: the phase is %s before the object is gone", removed, end)
		}
	}
}

func TestDeletesInReverseOrder(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("a", "1"), configMap("c", "1"), configMap("b", "1"))
	n := len(child.since(0))
	d.delete("web")
	d.await("the deletion", func() bool { return d.phase() == "released" })
	got := slices.DeleteFunc(child.since(n), func(request string) bool { return !strings.HasPrefix(request, "DELETE") })
	if want := []string{"DELETE b", "DELETE c", "DELETE a"}; !slices.Equal(got, want) {
		t.Errorf("the child was sent %q; want %q", got, want)
	}
}

// What others write all the time is deleted all the same.
func TestDeletesWhatIsBusy(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("busy", "1"), configMap("kept", "1"))
	child.onRequest(func(request string) {
		if request == "DELETE busy" {
			child.change("busy", func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"busy": o.GetResourceVersion()}) })
		}
	})
	n := len(child.since(0))
	d.edit("web", configMap("kept", "1"))
	d.await("the deletion", func() bool { _, there := child.values()["busy"]; return !there && d.phase() == phaseSuccess })
	deletions := 0
	for _, request := range child.since(n) {
		if request == "DELETE busy" {
			deletions++
		}
	}
	if deletions != deleteAttempts+1 {
		t.Errorf("%d deletions; want %d", deletions, deleteAttempts+1)
	}
}

// What others create again all the time is reported.
func TestDeletesWhatComesBack(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.deployed(configMap("busy", "1"), configMap("kept", "1"))
	child.onRequest(func(request string) {
		if request == "DELETE busy" {
			child.change("busy", func(o *unstructured.Unstructured) { o.SetUID(o.GetUID() + "'") })
		}
	})
	d.edit("web", configMap("kept", "1"))
	d.await("the failure", func() bool {
		return d.phase() == phaseFailure && strings.Contains(d.reason(), "others create it again")
	})
}

// A Description that others write all the time is deployed all the same.
func TestBusyDescription(t *testing.T) {
	child := newChildStub(t)
	d := deployTo(t, child)
	d.conflicts.Store(deleteAttempts)
	d.create("web", configMap("new", "1"))
	d.await("the Description", func() bool { return d.phase() == phaseSuccess })
	if got := slices.Compact(child.since(0)); strings.Count(strings.Join(got, " "), "GET new") > 1 {
		t.Errorf("the child was sent %q; want it read once", got)
	}
}
