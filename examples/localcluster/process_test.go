package localcluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/localcluster"
)

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
		drainWatch(t, w)
		klog.Infof("plain %d", 1)
		klog.InfoS("structured", "n", 2)
		klog.FromContext(t.Context()).Info("contextual", "n", 3)
		klog.V(9).Info("too verbose")
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		return
	}
	program, err := localcluster.Program(t.Context()) // to build is no line either
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestQuiet$")
	cmd.Env = append(os.Environ(), helperEnv+"=1", "LOCALCLUSTER_APISERVER="+program)
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	want := []string{`] plain 1`, `] "structured" n=2`, `] "contextual" n=3`}
	ok := len(lines) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.HasSuffix(lines[i], want[i]) && strings.Contains(lines[i], " process_test.go:")
	}
	if !ok {
		t.Errorf("stderr =\n%s\nwant three lines of this file, ending in %q", &stderr, want)
	}
}

// TestEndsWithItsParent starts a cluster in another process and kills that.
func TestEndsWithItsParent(t *testing.T) {
	if dir := os.Getenv(helperEnv); dir != "" {
		c := start(t, localcluster.Options{DataDir: dir})
		apply(t, c, true)
		create(t, client(t, c), "team-a", "mine", clusterID)
		fmt.Println(c.Port())
		select {} // until it is killed
	}
	dir, temp := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndsWithItsParent$")
	cmd.Env = append(os.Environ(), helperEnv+"="+dir, "TMPDIR="+temp)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Fscanln(stdout, &port); err != nil {
		t.Errorf("reading the port: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	if t.Failed() {
		return
	}
	// The server holds the lock of the directory as long as it lives.
	var again *localcluster.Cluster
	eventually(t, "a start on the directory of the killed process", func() (err error) {
		again, err = localcluster.Start(t.Context(), localcluster.Options{DataDir: dir, Port: port})
		return err
	})
	defer func() {
		if err := again.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if got := list(t, client(t, again), metav1.ListOptions{}); len(got) != 1 {
		t.Errorf("objects after the restart = %v; want one", names(got))
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("the server process left %v", left)
	}
}

// TestServerProcessDies kills the server process behind the cluster's back.
func TestServerProcessDies(t *testing.T) {
	eachWay(t, func(t *testing.T, opts localcluster.Options) {
		temp := t.TempDir()
		t.Setenv("TMPDIR", temp)
		c, err := localcluster.Start(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		apply(t, c, true)
		mcls := client(t, c)
		w, err := mcls.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(c.ServerPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		drainWatch(t, w)
		if _, err := mcls.List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Error("list after the server's death succeeded")
		}
		for what, err := range map[string]error{
			"Apply": c.Apply(t.Context(), localcluster.ManagedClusterCRD()), "Compact": c.Compact(t.Context()),
			"Stop": c.Stop(), "second Stop": c.Stop(),
		} {
			if err == nil || !strings.Contains(err.Error(), "the API server's process has ended: signal: killed") {
				t.Errorf("%s() after the server's death = %v; want an error about it", what, err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
			t.Errorf("Stop left %v", left)
		}
	})
}

// TestServerProcessFails starts programs that are no server.
func TestServerProcessFails(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho first >&2\necho no server here >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOCALCLUSTER_APISERVER", program)
	_, err := localcluster.Start(t.Context(), localcluster.Options{})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no server here") {
		t.Errorf("Start() of a program that fails = %v; want its status and its last lines", err)
	}
	// Somebody still writes it.
	file, err := os.OpenFile(program, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = file.Close() })
	_, err = localcluster.Start(t.Context(), localcluster.Options{})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Start() of a program that is still written = %v; want its status", err)
	}
	t.Setenv("LOCALCLUSTER_APISERVER", program+"-absent")
	_, err = localcluster.Start(t.Context(), localcluster.Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "starting the API server: ") {
		t.Errorf("Start() of an absent program = %v; want an error", err)
	}
}

func TestKill(t *testing.T) {
	eachWay(t, func(t *testing.T, opts localcluster.Options) {
		opts.DataDir = t.TempDir()
		c := start(t, opts)
		apply(t, c, true)
		mcls := client(t, c)
		created := create(t, mcls, "team-a", "mine", clusterID)
		w, err := mcls.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Kill(); err != nil {
			t.Errorf("Kill() = %v", err)
		}
		drainWatch(t, w)
		if err := errors.Join(c.Stop(), c.Kill()); err != nil {
			t.Errorf("Stop(), Kill() after Kill() = %v", err)
		}
		if err := c.Compact(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "compacting etcd: ") {
			t.Errorf("Compact() after Kill() = %v; want an error", err)
		}
		opts.Port = c.Port()
		start(t, opts)
		if got := list(t, mcls, metav1.ListOptions{}); len(got) != 1 || got[0].GetUID() != created.GetUID() {
			t.Errorf("objects after Kill and Start = %v; want the one as created", names(got))
		}
	})
}

// TestProcessesBuildAtOnce starts clusters in several processes, each of which builds first.
func TestProcessesBuildAtOnce(t *testing.T) {
	if os.Getenv(helperEnv) != "" {
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() { start(t, localcluster.Options{}) })
		}
		group.Wait()
		return
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesBuildAtOnce$")
			cmd.Env = append(os.Environ(), helperEnv+"=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	group.Wait()
}

// TestBusyMachine has more to do than the machine can.
func TestBusyMachine(t *testing.T) {
	var (
		group sync.WaitGroup
		ended atomic.Bool
	)
	defer group.Wait()
	defer ended.Store(true)
	for range 2 * runtime.NumCPU() {
		group.Go(func() {
			for !ended.Load() {
			}
		})
	}
	eachWay(t, func(t *testing.T, opts localcluster.Options) {
		c := start(t, opts)
		apply(t, c, true)
		mcls := client(t, c)
		create(t, mcls, "team-a", "mine", clusterID)
		w, err := mcls.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(); err != nil {
			t.Errorf("Stop() = %v", err)
		}
		drainWatch(t, w)
	})
}
