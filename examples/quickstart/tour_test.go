package main

import (
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

// TestTour fixes what a newcomer reads.
func TestTour(t *testing.T) {
	t.Parallel()
	s := start(t)
	steps := []string{
		"starting a parent cluster",
		"serves ManagedClusters",
		"registered clusternet-a1b2c/child-1, ",
		"the gate of the agent of child-1 is in sync", "Open",
		"the gates of the hub are in sync", "child-1 Open, child-2 Open, child-3 Paused",
		"the deployer of child-1 starts",
		"has just begun",
		"patched spec.syncPaused=true on clusternet-a1b2c/child-1: gate closed in ", "ms",
		"measured from sending the request; it closed ",
		"in flight: ",
		"the hub agrees in ", "child-1 Paused, child-2 Open, child-3 Paused",
		"drained ", "none in flight", "acknowledged ", "condition SyncPaused=True",
		"2.0 s later still ", "waiting: ",
		"annotated hold.clusters.clusternet.io/backup=nightly; held by spec.syncPaused, backup (nightly)",
		"later still ",
		"removed that annotation; still Paused, held by spec.syncPaused\n",
		"later still ",
		"patched spec.syncPaused=false on clusternet-a1b2c/child-1: gate open in ",
		"condition SyncPaused=False (Syncing) ",
		"later the held writes are done",
		"so none is lost",
		"the clusters at the end:",
		"NAMESPACE",
		"child-1   Open     SyncAllowed   nobody\n",
		"child-2   Open     SyncAllowed   nobody\n",
		"child-3   Paused   Held          audit (until Friday)\n",
		"-keep\n",
		"stopped, nothing is left behind; it took ",
	}
	s.waitFor(steps...)
	s.ends(0)
	checkLines(t, s.stdout.String())
	if got := s.stderr.String(); got != "" {
		t.Errorf("stderr = %q; want nothing", got)
	}
}

// The tests that set TMPDIR run alone, before the parallel ones.

func TestInterruptLeavesNothing(t *testing.T) {
	tour := []string{"starting a parent cluster", "registered", "starts (simulated)", "has just begun", "drained"}
	for _, moment := range tour {
		t.Run(moment, func(t *testing.T) { interruptAt(t, moment) })
	}
	fleet := []string{
		"starting a parent cluster", "started the deployers", "creating a Description", "acknowledged after", "somebody changes",
	}
	for _, moment := range fleet {
		t.Run("fleet/"+moment, func(t *testing.T) { interruptAt(t, moment, "-fleet") })
	}
}

func interruptAt(t *testing.T, moment string, args ...string) {
	temp := useTempDir(t)
	s := start(t, args...)
	s.waitFor(moment)
	began := time.Now()
	s.interrupt()
	s.ends(130)
	t.Logf("it ended after %v", time.Since(began))
	if got := s.stderr.String(); got != "quickstart: interrupted\n" {
		t.Errorf("stderr = %q; want that it was interrupted", got)
	}
	checkEmpty(t, temp)
}

func TestOutputFails(t *testing.T) {
	for _, args := range [][]string{nil, {"-fleet"}} {
		temp := useTempDir(t)
		stdout := &brokenPipe{lines: 4}
		stderr := newOutput()
		if got := run(t.Context(), args, stdout, stderr); got != 1 {
			t.Errorf("run(%q): exit status = %d; want 1", args, got)
		}
		if got, want := stderr.String(), "quickstart: writing the output: "+io.ErrClosedPipe.Error()+"\n"; got != want {
			t.Errorf("run(%q): stderr = %q; want %q", args, got, want)
		}
		checkEmpty(t, temp)
	}
}

type brokenPipe struct {
	mu    sync.Mutex
	lines int
}

func (b *brokenPipe) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines--; b.lines < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// useTempDir is not t.TempDir, since the path of etcd's socket in it must be short.
func useTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}
