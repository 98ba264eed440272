package localcluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/examples/localcluster"
)

const (
	clusterID = "11111111-2222-3333-4444-555555555555"
	otherID   = "99999999-2222-3333-4444-555555555555"
)

var resource = schema.GroupVersionResource{Group: "clusters.clusternet.io", Version: "v1beta1", Resource: "managedclusters"}

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" { // it is ended by the test that started it
		os.Exit(m.Run())
	}
	leaks.Main(m)
}

func TestStartStop(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	for range 3 {
		begin := time.Now()
		c, err := localcluster.Start(t.Context(), localcluster.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("started in %v", time.Since(begin).Round(time.Millisecond))
		if elapsed := time.Since(begin); elapsed > 15*time.Second {
			t.Errorf("Start took %v; want a few seconds at most", elapsed)
		}
		if got, want := c.URL(), fmt.Sprintf("https://127.0.0.1:%d", c.Port()); got != want {
			t.Errorf("URL() = %q; want %q", got, want)
		}
		info, err := os.Stat(c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("mode of the kubeconfig = %v; want 0600", got)
		}
		config := c.Config()
		config.Host = "changed"
		if c.Config().Host == "changed" || c.Config().QPS != -1 {
			t.Errorf("Config() = %v; want a copy without a client-side limit", c.Config())
		}

		begin = time.Now()
		if err := c.Stop(); err != nil {
			t.Errorf("Stop() = %v", err)
		}
		t.Logf("stopped in %v", time.Since(begin).Round(time.Millisecond))
		if err := c.Stop(); err != nil {
			t.Errorf("second Stop() = %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
			t.Errorf("Stop left %v", left)
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port())))
		if err != nil {
			t.Fatalf("the port is not free after Stop: %v", err)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Compact(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "compacting etcd: ") {
			t.Errorf("Compact() after Stop = %v; want an error", err)
		}
	}
}

func TestSeveralAtOnce(t *testing.T) {
	var group sync.WaitGroup
	clusters := make([]*localcluster.Cluster, 3)
	for i := range clusters {
		group.Go(func() { clusters[i] = start(t, localcluster.Options{}) })
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for i, c := range clusters {
		apply(t, c, true)
		create(t, client(t, c), "team-a", "child"+strconv.Itoa(i), clusterID)
	}
	for i, c := range clusters {
		items := list(t, client(t, c), metav1.ListOptions{})
		if want := "child" + strconv.Itoa(i); len(items) != 1 || items[0].GetName() != want {
			t.Errorf("cluster %d has %v; want only %s", i, names(items), want)
		}
	}
	if err := clusters[0].Stop(); err != nil {
		t.Error(err)
	}
	if got := list(t, client(t, clusters[1]), metav1.ListOptions{}); len(got) != 1 {
		t.Errorf("objects after another cluster stopped = %v; want one", names(got))
	}
}

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
		end := drainWatch(t, w, 30*time.Second)
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

func TestRestart(t *testing.T) {
	opts := localcluster.Options{DataDir: filepath.Join(t.TempDir(), "a", "b")}
	c := start(t, opts)
	apply(t, c, true)
	old := client(t, c)
	created := create(t, old, "team-a", "mine", clusterID)
	create(t, old, "team-a", "other", otherID)

	_, err := localcluster.Start(t.Context(), opts)
	if err == nil || !strings.HasPrefix(err.Error(), "locking the data directory ") {
		t.Errorf("Start() on a DataDir in use = %v; want an error about it", err)
	}
	w, err := old.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	drainWatch(t, w, 5*time.Second)
	if _, err := old.List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("list after Stop succeeded; want an error")
	}

	opts.Port = c.Port()
	begin := time.Now()
	again := start(t, opts)
	t.Logf("restarted in %v", time.Since(begin).Round(time.Millisecond))
	items := list(t, old, metav1.ListOptions{FieldSelector: "spec.clusterId=" + clusterID})
	if len(items) != 1 || items[0].GetUID() != created.GetUID() || items[0].GetResourceVersion() != created.GetResourceVersion() {
		t.Errorf("list by the old client = %v; want the object as created", items)
	}
	// The new cache begins with the newest version.
	if err := watchFrom(t, old, created.GetResourceVersion(), 10*time.Second); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old resourceVersion after a restart = %v; want 410", err)
	}
	if again.Kubeconfig() != c.Kubeconfig() || again.URL() != c.URL() {
		t.Errorf("restarted at %s with %s; want %s with %s", again.URL(), again.Kubeconfig(), c.URL(), c.Kubeconfig())
	}
}

func TestStopWithOpenWatches(t *testing.T) {
	c := start(t, localcluster.Options{})
	apply(t, c, true)
	mcls := client(t, c)
	var watches []watch.Interface
	for range 20 {
		w, err := mcls.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, w)
	}
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	elapsed := time.Since(begin)
	t.Logf("stopped in %v", elapsed.Round(time.Millisecond))
	if elapsed > 5*time.Second {
		t.Errorf("Stop took %v; want a few seconds at most", elapsed)
	}
	for i, w := range watches {
		if end := drainWatch(t, w, 5*time.Second); i == 0 {
			t.Logf("last event of the watch: %v", end)
		}
	}
}

func TestCompact(t *testing.T) {
	opts := localcluster.Options{DataDir: t.TempDir()}
	c := start(t, opts)
	apply(t, c, true)
	mcls := client(t, c)
	old := create(t, mcls, "team-a", "first", clusterID).GetResourceVersion()
	create(t, mcls, "team-a", "second", otherID)
	create(t, mcls, "team-a", "third", otherID)
	if err := c.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Compact(t.Context()); err != nil {
		t.Errorf("second Compact() = %v; want none: nothing was written", err)
	}
	exact := metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	_, err := mcls.List(t.Context(), exact)
	t.Logf("exact list from the warm cache: %v", err)
	_, err = mcls.List(t.Context(), metav1.ListOptions{ResourceVersion: old})
	t.Logf("list not older than: %v", err)
	if err := watchFrom(t, mcls, old, 10*time.Second); err != nil {
		t.Errorf("watch from an old resourceVersion, the cache being warm = %v; want events", err)
	}

	apply(t, c, false)
	if err := watchFrom(t, mcls, old, 10*time.Second); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old resourceVersion after compaction and a change of the CRD = %v; want 410", err)
	}
	if _, err = mcls.List(t.Context(), exact); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("exact list at an old resourceVersion after compaction and a change of the CRD = %v; want 410", err)
	}

	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	opts.Port = c.Port()
	again := start(t, opts)
	if err := watchFrom(t, mcls, old, 10*time.Second); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old resourceVersion after compaction and restart = %v; want 410", err)
	}
	if _, err = mcls.List(t.Context(), exact); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("exact list at an old resourceVersion after compaction and restart = %v; want 410", err)
	}

	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more time"))
	if err := again.Compact(ended); err == nil || err.Error() != "compacting etcd: no more time" {
		t.Errorf("Compact(ended ctx) = %v; want its cause", err)
	}
}

func TestHandler(t *testing.T) {
	var (
		seen, refuse atomic.Int64
		hold         = make(chan struct{})
	)
	c := start(t, localcluster.Options{Handler: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen.Add(1)
			switch {
			case refuse.Load() > 0:
				http.Error(w, "refused by the test", http.StatusServiceUnavailable)
			case strings.Contains(r.URL.RawQuery, "hold"):
				close(hold)
				<-r.Context().Done()
			default:
				next.ServeHTTP(w, r)
			}
		})
	}})
	apply(t, c, true)
	if got := seen.Load(); got != 0 {
		t.Errorf("the handler saw %d requests of Start and Apply; want none", got)
	}
	mcls := client(t, c)
	create(t, mcls, "team-a", "mine", clusterID)
	w, err := mcls.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: nil})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Errorf("first event through the handler = %v; want ADDED", event.Type)
	}
	w.Stop()
	if got := seen.Load(); got != 2 {
		t.Errorf("the handler saw %d requests; want 2", got)
	}
	refuse.Store(1)
	if _, err := mcls.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("list while the handler refuses = %v; want 503", err)
	}
	apply(t, c, false) // not affected
	refuse.Store(0)

	var group sync.WaitGroup
	group.Go(func() {
		if _, err := mcls.List(t.Context(), metav1.ListOptions{LabelSelector: "hold"}); err == nil {
			t.Error("list held back until Stop succeeded; want an error")
		}
	})
	<-hold
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if elapsed := time.Since(begin); elapsed > 8*time.Second {
		t.Errorf("Stop with a request held back took %v", elapsed)
	} else {
		t.Logf("stopped with a request held back in %v", elapsed.Round(time.Millisecond))
	}
	group.Wait()
}

func TestAuthentication(t *testing.T) {
	c := start(t, localcluster.Options{})
	apply(t, c, true)
	for name, token := range map[string]string{"none": "", "wrong": "wrong"} {
		config := c.Config()
		config.BearerToken = token
		mcls, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mcls.Resource(resource).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s token: list = %v; want 401", name, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	partly := t.TempDir()
	if err := os.MkdirAll(filepath.Join(partly, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(partly, "pki", "token"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no more time")
	cancel(cause)

	for name, test := range map[string]struct {
		ctx  context.Context //nolint:containedctx // a column of the table
		opts localcluster.Options
		want string
	}{
		"port taken":        {t.Context(), localcluster.Options{Port: taken.Addr().(*net.TCPAddr).Port}, "listening on 127.0.0.1:"},
		"port out of range": {t.Context(), localcluster.Options{Port: 65536}, "starting a local cluster: port 65536"},
		"DataDir is a file": {t.Context(), localcluster.Options{DataDir: file}, "creating the data directory: "},
		"half a pki":        {t.Context(), localcluster.Options{DataDir: partly}, "preparing the certificate and token: "},
		"ctx ended":         {ended, localcluster.Options{}, "starting a local cluster: no more time"},
		"nil ctx":           {nil, localcluster.Options{}, "starting a local cluster: the context is nil"},
	} {
		c, err := localcluster.Start(test.ctx, test.opts)
		if c != nil || err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: Start() = %v, %v; want an error that starts with %q", name, c, err, test.want)
		}
	}

	// At any moment of a start.
	for _, after := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond, 90 * time.Millisecond, 120 * time.Millisecond, 150 * time.Millisecond} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), after, cause)
		c, err := localcluster.Start(ctx, localcluster.Options{})
		cancel()
		switch {
		case err == nil:
			t.Logf("ready within %v", after)
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, cause):
			t.Errorf("Start() with %v = %v; want the cause of the context", after, err)
		default:
			t.Logf("after %v: %v", after, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("failed starts left %v", left)
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

const helperEnv = "LOCALCLUSTER_TEST_HELPER"

// TestQuiet runs itself as another process, to see all of its stderr.
func TestQuiet(t *testing.T) {
	if os.Getenv(helperEnv) != "" {
		c := start(t, localcluster.Options{})
		apply(t, c, false)
		w, err := client(t, c).Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, c, true)
		drainWatch(t, w, 10*time.Second)
		klog.Infof("plain %d", 1)
		klog.InfoS("structured", "n", 2)
		klog.FromContext(t.Context()).Info("contextual", "n", 3)
		klog.V(9).Info("too verbose")
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		return
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestQuiet$")
	cmd.Env = append(os.Environ(), helperEnv+"=1")
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	want := []string{`] plain 1`, `] "structured" n=2`, `] "contextual" n=3`}
	ok := len(lines) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasSuffix(lines[i], want[i]) && strings.Contains(lines[i], " localcluster_test.go:")
	}
	if !ok {
		t.Errorf("stderr =\n%s\nwant three lines of this file, ending in %q", &stderr, want)
	}
}

func start(t *testing.T, opts localcluster.Options) *localcluster.Cluster {
	t.Helper()
	c, err := localcluster.Start(t.Context(), opts)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func apply(t *testing.T, c *localcluster.Cluster, full bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	crd := localcluster.StockManagedClusterCRD()
	if full {
		crd = localcluster.ManagedClusterCRD()
	}
	if err := c.Apply(ctx, crd); err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, c *localcluster.Cluster) dynamic.NamespaceableResourceInterface {
	t.Helper()
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{} // about the unknown fields that some tests send
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(resource)
}

func object(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// create creates a paused ManagedCluster with a field that no CRD has.
func create(t *testing.T, mcls dynamic.NamespaceableResourceInterface, namespace, name, id string) *unstructured.Unstructured {
	t.Helper()
	created, err := mcls.Namespace(namespace).Create(t.Context(), object(name, map[string]any{
		"clusterId": id, "syncMode": "Dual", "syncPaused": true, "unknown": "x",
	}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func list(t *testing.T, mcls dynamic.NamespaceableResourceInterface, opts metav1.ListOptions) []unstructured.Unstructured {
	t.Helper()
	got, err := mcls.List(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return got.Items
}

func names(items []unstructured.Unstructured) []string {
	var names []string
	for _, item := range items {
		names = append(names, item.GetName())
	}
	return names
}

// drainWatch reads until the watch ends and returns the last event, "" for none.
func drainWatch(t *testing.T, w watch.Interface, limit time.Duration) string {
	t.Helper()
	defer w.Stop()
	timeout := time.After(limit)
	last := ""
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return last
			}
			last = string(event.Type)
			if u, ok := event.Object.(*unstructured.Unstructured); ok {
				last += fmt.Sprint(" ", u.Object["spec"])
			}
			if event.Type == watch.Error {
				last += ": " + apierrors.FromObject(event.Object).Error()
			}
		case <-timeout:
			t.Errorf("the watch has not ended in %v", limit)
			return last
		}
	}
}

var errNoEvent = errors.New("no event")

// watchFrom returns the error that a watch from the version starts with, nil when events come, errNoEvent when none come.
func watchFrom(t *testing.T, mcls dynamic.NamespaceableResourceInterface, version string, limit time.Duration) error {
	t.Helper()
	w, err := mcls.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case event := <-w.ResultChan():
		if event.Type == watch.Error {
			return fmt.Errorf("ERROR event: %w", apierrors.FromObject(event.Object))
		}
		return nil
	case <-time.After(limit):
		return errNoEvent
	}
}
