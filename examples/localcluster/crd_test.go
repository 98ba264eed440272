package localcluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusternet/syncgate/examples/localcluster"
)

func TestManagedClusterCRD(t *testing.T) {
	c := start(t, localcluster.Options{})
	apply(t, c, true)
	mcls := client(t, c)
	create(t, mcls, "no-namespace-object", "mine", clusterID)
	create(t, mcls, "another", "other", otherID)

	items := list(t, mcls, metav1.ListOptions{FieldSelector: "spec.clusterId=" + clusterID})
	if len(items) != 1 || items[0].GetName() != "mine" {
		t.Errorf("list by spec.clusterId = %v; want [mine]", names(items))
	}
	if paused, found, err := unstructured.NestedBool(items[0].Object, "spec", "syncPaused"); !paused || !found || err != nil {
		t.Errorf("spec.syncPaused = %v, %v, %v; want true", paused, found, err)
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(items[0].Object, "spec", "unknown"); found {
		t.Error("spec.unknown is kept; want it pruned")
	}

	// The status has its own endpoint.
	items[0].Object["status"] = map[string]any{"appPusher": true, "capacity": map[string]any{"cpu": "4"}}
	updated, err := mcls.Namespace("no-namespace-object").UpdateStatus(t.Context(), &items[0], metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cpu, _, _ := unstructured.NestedString(updated.Object, "status", "capacity", "cpu"); cpu != "4" {
		t.Errorf("status.capacity.cpu = %q; want 4", cpu)
	}

	for name, spec := range map[string]map[string]any{
		"no clusterId":         {"syncMode": "Dual"},
		"no syncMode":          {"clusterId": clusterID},
		"clusterId is no UUID": {"clusterId": "x", "syncMode": "Dual"},
		"unknown syncMode":     {"clusterId": clusterID, "syncMode": "Both"},
		"syncPaused is text":   {"clusterId": clusterID, "syncMode": "Dual", "syncPaused": "true"},
	} {
		_, err := mcls.Namespace("x").Create(t.Context(), object("bad", spec), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: Create() = %v; want it refused as invalid", name, err)
		}
	}
}

func TestStockManagedClusterCRD(t *testing.T) {
	c := start(t, localcluster.Options{})
	apply(t, c, false)
	mcls := client(t, c)
	created := create(t, mcls, "team-a", "mine", clusterID)
	if _, found, _ := unstructured.NestedFieldNoCopy(created.Object, "spec", "syncPaused"); found {
		t.Error("spec.syncPaused is kept; want it pruned")
	}
	_, err := mcls.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.clusterId=" + clusterID})
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "field label not supported") {
		t.Errorf("list by spec.clusterId = %v; want 400 field label not supported", err)
	}
}

func TestChangeOfTheCRD(t *testing.T) {
	c := start(t, localcluster.Options{})
	apply(t, c, false)
	mcls := client(t, c)
	create(t, mcls, "team-a", "mine", clusterID)

	for _, full := range []bool{true, false, true} {
		w, err := mcls.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		apply(t, c, full)
		applied := time.Since(begin)

		_, err = mcls.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.clusterId=" + clusterID})
		if got := err == nil; got != full {
			t.Errorf("list by spec.clusterId after Apply(full: %v) = %v", full, err)
		}
		patch := fmt.Appendf(nil, `{"spec":{"clusterType":"%v","syncPaused":%v}}`, full, full)
		_, err = mcls.Namespace("team-a").Patch(t.Context(), "mine", "application/merge-patch+json", patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		end := drainWatch(t, w)
		t.Logf("full: %v: applied in %v; the watch ended %v after the change began; last event: %v", full,
			applied.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), end)
		// Until then the old watch has shown changes as the old schema has them, and the next watch, from the
		// version it has shown last, does not repeat them.
		if !strings.HasPrefix(end, "MODIFIED") || strings.Contains(end, "syncPaused") {
			t.Errorf("last event of the old watch = %s; want MODIFIED without syncPaused", end)
		}
		version := list(t, mcls, metav1.ListOptions{})[0].GetResourceVersion()
		if err := watchFrom(t, mcls, version, time.Second); !errors.Is(err, errNoEvent) {
			t.Errorf("next watch from %s = %v; want no event", version, err)
		}

		_, found, _ := unstructured.NestedBool(list(t, mcls, metav1.ListOptions{})[0].Object, "spec", "syncPaused")
		if found != full {
			t.Errorf("spec.syncPaused is there: %v; want %v", found, full)
		}
	}
}

func TestApplyFails(t *testing.T) {
	c := start(t, localcluster.Options{})
	if err := c.Apply(t.Context(), nil); err == nil {
		t.Error("Apply(nil) succeeded")
	}
	bad := localcluster.ManagedClusterCRD()
	bad.Spec.Versions[0].SelectableFields[0].JSONPath = ".spec.absent"
	if err := c.Apply(t.Context(), bad); !apierrors.IsInvalid(err) || !strings.HasPrefix(err.Error(), "applying the CRD ") {
		t.Errorf("Apply() of an invalid CRD = %v; want the refusal", err)
	}
	apply(t, c, true)
	rival := localcluster.ManagedClusterCRD()
	rival.Name, rival.Spec.Names.Plural = "rivals.clusters.clusternet.io", "rivals"
	if err := c.Apply(t.Context(), rival); err == nil || !strings.Contains(err.Error(), "its names are refused") {
		t.Errorf("Apply() of a CRD with taken names = %v; want the refusal", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more time"))
	if err := c.Apply(ended, localcluster.ManagedClusterCRD()); err == nil || !strings.Contains(err.Error(), "no more time") {
		t.Errorf("Apply(ended ctx) = %v; want its cause", err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	short, cancelShort := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancelShort()
	if err := c.Apply(short, localcluster.ManagedClusterCRD()); err == nil {
		t.Error("Apply() after Stop succeeded")
	}
}

func TestKubectl(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl in PATH")
	}
	c := start(t, localcluster.Options{})
	apply(t, c, true)
	create(t, client(t, c), "team-a", "mine", clusterID)
	home := t.TempDir() // of kubectl's discovery cache
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
		return string(out)
	}
	header := strings.Fields(strings.ReplaceAll(strings.SplitN(run("get", "mcls", "-A"), "\n", 2)[0], "CLUSTER ID", "ID"))
	if got := strings.Join(header, " "); got != "NAMESPACE NAME ID SYNC MODE KUBERNETES STATUS PAUSED AGE" {
		t.Errorf("columns = %q", got)
	}
	run("patch", "mcls", "mine", "-n", "team-a", "--type=merge", "-p", `{"spec":{"syncPaused":false}}`)
	if out := run("get", "mcls", "-A", "--field-selector", "spec.clusterId="+clusterID); !strings.Contains(out, "false") {
		t.Errorf("kubectl get after resume = %q; want PAUSED false", out)
	}
	manifest := filepath.Join(home, "child.yaml")
	text := "apiVersion: clusters.clusternet.io/v1beta1\nkind: ManagedCluster\nmetadata: {name: applied, namespace: team-b}\n" +
		"spec: {clusterId: " + otherID + ", syncMode: Pull, syncPaused: true}\n"
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run("apply", "-f", manifest)
	run("apply", "--server-side", "--force-conflicts", "-f", manifest)
	run("explain", "mcls.spec.syncPaused")
	run("delete", "mcls", "applied", "-n", "team-b")
}
