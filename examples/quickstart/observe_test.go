package main

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/clusternet/syncgate/examples/localcluster"
)

// requests records those of the command, and answers them otherwise if it is told to.
type requests struct {
	mu    sync.Mutex
	all   []string
	after func(http.Handler) http.Handler
}

func (r *requests) wrap(next http.Handler) http.Handler {
	answer := next
	if r.after != nil {
		answer = r.after(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.UserAgent() != "syncgate-quickstart" {
			next.ServeHTTP(w, req)
			return
		}
		r.mu.Lock()
		r.all = append(r.all, req.Method+" "+req.URL.Path)
		r.mu.Unlock()
		answer.ServeHTTP(w, req)
	})
}

// realParent is a parent cluster that the command did not start itself.
func realParent(t *testing.T, r *requests) *localcluster.Cluster {
	t.Helper()
	cluster, err := localcluster.Start(t.Context(), localcluster.Options{Handler: r.wrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.Apply(t.Context(), localcluster.ManagedClusterCRD()); err != nil {
		t.Fatal(err)
	}
	if err := register(t.Context(), newOperator(t, cluster.Kubeconfig()).client, own); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func observing(kubeconfig string, args ...string) []string {
	return append([]string{"-kubeconfig", kubeconfig, "-namespace", own.namespace, "-cluster-id", string(own.id)}, args...)
}

// TestKubeconfig also shows that it writes nothing.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	var r requests
	cluster := realParent(t, &r)
	op := newOperator(t, cluster.Kubeconfig())
	s := start(t, observing(cluster.Kubeconfig())...)
	s.waitFor("child-1 is Open; 0 writes counted")
	if err := op.setPaused(t.Context(), own, true); err != nil {
		t.Fatal(err)
	}
	s.waitFor("child-1 is Paused by spec.syncPaused; ", "drained")
	if err := op.setPaused(t.Context(), own, false); err != nil {
		t.Fatal(err)
	}
	s.waitFor("drained", "child-1 is Open; ")
	s.interrupt()
	s.ends(0)
	if got := s.stderr.String(); got != "" {
		t.Errorf("stderr = %q; want nothing", got)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		t.Error("no request was recorded")
	}
	want := "GET /apis/clusters.clusternet.io/v1beta1/namespaces/" + own.namespace + "/managedclusters"
	for _, got := range r.all {
		if got != want {
			t.Errorf("it requested %s; want nothing but %s", got, want)
		}
	}
}

func TestKubeconfigForbidden(t *testing.T) {
	t.Parallel()
	r := requests{after: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no right to that", http.StatusForbidden)
		})
	}}
	s := start(t, observing(realParent(t, &r).Kubeconfig(), "-timeout", "1s")...)
	s.ends(1)
	checkError(t, s, "no answer within 1s", "no right to that", "allow this client to list and watch")
}

func TestKubeconfigUnreachable(t *testing.T) {
	t.Parallel()
	cluster := realParent(t, &requests{})
	data, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	s := start(t, observing(copied, "-timeout", "1500ms")...)
	s.waitFor("fault, it keeps trying: ")
	s.ends(1)
	checkError(t, s, "no answer within 1.5s", "connection refused")
}

func TestKubeconfigUnusable(t *testing.T) {
	t.Parallel()
	s := start(t, observing(filepath.Join(t.TempDir(), "none"))...)
	s.ends(1)
	checkError(t, s, "loading -kubeconfig", "no such file")
}
