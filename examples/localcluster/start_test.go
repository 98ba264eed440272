package localcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/examples/localcluster"
)

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
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("failed starts left %v", left)
	}
}

// TestStartIsCancelled ends the context at any moment of a start.
func TestStartIsCancelled(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	cause := errors.New("no more time")
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
	drainWatch(t, w)
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
	if err := watchFrom(t, old, created.GetResourceVersion(), soon); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from an old resourceVersion after a restart = %v; want 410", err)
	}
	if again.Kubeconfig() != c.Kubeconfig() || again.URL() != c.URL() {
		t.Errorf("restarted at %s with %s; want %s with %s", again.URL(), again.Kubeconfig(), c.URL(), c.Kubeconfig())
	}
}

func TestStopWithOpenWatches(t *testing.T) {
	eachWay(t, func(t *testing.T, opts localcluster.Options) {
		c := start(t, opts)
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
		t.Logf("stopped in %v", time.Since(begin).Round(time.Millisecond))
		for _, w := range watches {
			if end := drainWatch(t, w); strings.HasPrefix(end, string(watch.Error)) {
				t.Errorf("last event of a watch = %s; want no error", end)
			}
		}
	})
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
