package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusternet/syncgate/examples/internal/leaks"
	"github.com/clusternet/syncgate/examples/localcluster"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience bounds every wait: far more than any takes, so that a hang ends in a failure.
const patience = time.Minute

// session is a run of the command.
type session struct {
	t              *testing.T
	stdout, stderr *output
	interrupt      context.CancelFunc
	code           chan int
}

func start(t *testing.T, args ...string) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{t: t, stdout: newOutput(), stderr: newOutput(), interrupt: cancel, code: make(chan int, 1)}
	go func() { s.code <- run(ctx, args, s.stdout, s.stderr) }()
	t.Cleanup(func() {
		cancel()
		s.code <- <-s.code // whatever happened, it removes its files
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", s.stdout, s.stderr)
		}
	})
	return s
}

// sees waits until stdout has had all texts, in this order.
func (s *session) sees(texts ...string) {
	s.t.Helper()
	late := time.After(patience)
	for at := 0; len(texts) > 0; {
		got, next := s.stdout.look()
		if i := strings.Index(got[at:], texts[0]); i >= 0 {
			at += i + len(texts[0])
			texts = texts[1:]
			continue
		}
		select {
		case <-next:
		case code := <-s.code:
			s.code <- code
			if got, _ := s.stdout.look(); !strings.Contains(got[at:], texts[0]) {
				s.t.Fatalf("ended with %d before it printed %q", code, texts[0])
			}
		case <-late:
			s.t.Fatalf("has not printed %q after %v", texts[0], patience)
		}
	}
}

func (s *session) ends(want int) {
	s.t.Helper()
	select {
	case got := <-s.code:
		s.code <- got
		if got != want {
			s.t.Errorf("exit status = %d; want %d", got, want)
		}
	case <-time.After(patience):
		s.t.Fatalf("has not ended after %v", patience)
	}
}

// output keeps what is written and tells when there is more.
type output struct {
	mu   sync.Mutex
	text strings.Builder
	news chan struct{}
}

func newOutput() *output { return &output{news: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.news)
	o.news = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) look() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.news
}

func (o *output) String() string {
	text, _ := o.look()
	return text
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown":                 {[]string{"-foo"}, "-foo"},
		"argument":                {[]string{"tour"}, `"tour"`},
		"argument after flags":    {[]string{"-keep", "yes"}, `"yes"`},
		"bad value":               {[]string{"-keep=maybe"}, "maybe"},
		"bad duration":            {[]string{"-kubeconfig", "f", "-timeout", "soon"}, "soon"},
		"no timeout":              {[]string{"-kubeconfig", "f", "-namespace", "n", "-cluster-id", "i", "-timeout", "0s"}, "-timeout"},
		"missing value":           {[]string{"-kubeconfig"}, "-kubeconfig"},
		"empty kubeconfig":        {[]string{"-kubeconfig", ""}, "-kubeconfig is empty"},
		"no namespace":            {[]string{"-kubeconfig", "f", "-cluster-id", "i"}, "-namespace"},
		"no cluster ID":           {[]string{"-kubeconfig", "f", "-namespace", "n"}, "-cluster-id"},
		"keep and kubeconfig":     {[]string{"-keep", "-kubeconfig", "f", "-namespace", "n", "-cluster-id", "i"}, "-keep"},
		"namespace without file":  {[]string{"-namespace", "n"}, "-namespace goes with -kubeconfig"},
		"cluster ID without file": {[]string{"-keep", "-cluster-id", "i"}, "-cluster-id goes with -kubeconfig"},
		"timeout without file":    {[]string{"-timeout", "1s"}, "-timeout goes with -kubeconfig"},
		"fleet and keep":          {[]string{"-fleet", "-keep"}, "-fleet and -keep exclude each other"},
		"fleet and kubeconfig":    {[]string{"-fleet", "-kubeconfig", "f", "-namespace", "n", "-cluster-id", "i"}, "-fleet and -kubeconfig"},
		"fleet and an empty file": {[]string{"-fleet", "-kubeconfig", ""}, "-fleet and -kubeconfig"},
		"fleet and a namespace":   {[]string{"-fleet", "-namespace", "n"}, "-namespace goes with -kubeconfig"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, test.args...)
			s.ends(2)
			got := s.stderr.String()
			if strings.Count(got, "\n") != 1 || !strings.Contains(got, test.want) || !strings.Contains(got, "-h") {
				t.Errorf("run(%q): stderr = %q; want one line with %q and a hint at -h", test.args, got, test.want)
			}
			if got := s.stdout.String(); got != "" {
				t.Errorf("run(%q): stdout = %q; want nothing", test.args, got)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	s := start(t, "-h")
	s.ends(0)
	checkLines(t, s.stdout.String())
	for _, want := range []string{"-keep", "-fleet", "-kubeconfig", "-namespace", "-cluster-id", "-timeout", "130"} {
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("the help does not mention %s", want)
		}
	}
}

// TestTour pins what a newcomer is shown.
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
		"counted from sending the request, ",
		"in flight: ",
		"the hub agrees in ", "child-1 Paused, child-2 Open, child-3 Paused",
		"drained ", "none in flight", "acknowledged ", "condition SyncPaused=True",
		"2.0 s later still ", "held: ",
		"annotated hold.clusters.clusternet.io/backup=nightly; held by spec.syncPaused, backup (nightly)",
		"later still ",
		"removed that annotation; still Paused, held by spec.syncPaused\n",
		"later still ",
		"patched spec.syncPaused=false on clusternet-a1b2c/child-1: gate open in ",
		"condition SyncPaused=False (Syncing) ",
		"later the held writes are done",
		"none lost",
		"the clusters at the end:",
		"NAMESPACE",
		"child-1   Open     SyncAllowed   nobody\n",
		"child-2   Open     SyncAllowed   nobody\n",
		"child-3   Paused   Held          audit (until Friday)\n",
		"-keep\n",
		"stopped, nothing is left behind; it took ",
	}
	s.sees(steps...)
	s.ends(0)
	checkLines(t, s.stdout.String())
	if got := s.stderr.String(); got != "" {
		t.Errorf("stderr = %q; want nothing", got)
	}
}

// checkLines checks that lines fit a terminal.
func checkLines(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); len(line) > 110 || regexp.MustCompile(`[^ -~]`).MatchString(line) {
			t.Errorf("not ASCII in 110 columns: %q (%d)", line, len(line))
		}
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
	s.sees(moment)
	began := time.Now()
	s.interrupt()
	s.ends(130)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to end; want about a second", took)
	}
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

// operatorOf is an operator with the kubeconfig that -keep prints.
func operatorOf(t *testing.T, s *session) (operator, string) {
	t.Helper()
	s.sees("watching; Ctrl-C ends it")
	found := regexp.MustCompile(`--kubeconfig (\S+)`).FindStringSubmatch(s.stdout.String())
	if found == nil {
		t.Fatal("it prints no --kubeconfig")
	}
	return newOperator(t, found[1]), found[1]
}

func newOperator(t *testing.T, kubeconfig string) operator {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return operator{client}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	s := start(t, "-keep")
	op, kubeconfig := operatorOf(t, s)
	seen := []string{"child-1 is Open; "}
	expect := func(err error, texts ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, texts...)
		s.sees(seen...)
	}
	ctx := t.Context()
	expect(nil)
	expect(op.setPaused(ctx, own, true), "child-1 is Paused by spec.syncPaused; ", "drained", "held from now on: ")
	expect(op.hold(ctx, own, "nightly"), "child-1 is Paused by spec.syncPaused, backup (nightly); ", " held\n")
	expect(op.setPaused(ctx, own, false), "child-1 is Paused by backup (nightly); ")
	expect(op.hold(ctx, own, nil), "child-1 is Open; ", "caught up: ")
	expect(op.setPaused(ctx, children[1], true), "hub: child-2 is Paused by spec.syncPaused\n")
	s.interrupt()
	s.ends(0)
	expect(nil, "nothing is left behind")
	checkLines(t, s.stdout.String())
	if got := s.stderr.String(); got != "" {
		t.Errorf("stderr = %q; want nothing", got)
	}
	if _, err := os.Stat(kubeconfig); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("os.Stat(%q) = %v; want that it is gone", kubeconfig, err)
	}
}

// TestKeepCommands runs the commands as they are printed.
func TestKeepCommands(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl")
	}
	s := start(t, "-keep")
	_, kubeconfig := operatorOf(t, s)
	script := regexp.MustCompile(`(?m)^         (.*)$`).FindAllStringSubmatch(s.stdout.String(), -1)
	var commands strings.Builder
	for _, line := range script {
		commands.WriteString(line[1] + "\n")
	}
	shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands.String())
	shell.Env = append(os.Environ(), "HOME="+t.TempDir()) // kubectl keeps a cache there
	got, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, got, commands.String())
	}
	for _, want := range []string{"PAUSED", "child-1 patched", "child-1 annotated"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("kubectl printed %q; want %q in it", got, want)
		}
	}
	s.sees("child-1 is Paused by spec.syncPaused; ", "child-1 is Open; ",
		"child-1 is Paused by backup (nightly backup); ", "child-1 is Open; ")
	s.interrupt()
	s.ends(0)
	if _, err := os.Stat(kubeconfig); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("os.Stat(%q) = %v; want that it is gone", kubeconfig, err)
	}
}

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
	s.sees("child-1 is Open; 0 writes counted")
	if err := op.setPaused(t.Context(), own, true); err != nil {
		t.Fatal(err)
	}
	s.sees("child-1 is Paused by spec.syncPaused; ", "drained")
	if err := op.setPaused(t.Context(), own, false); err != nil {
		t.Fatal(err)
	}
	s.sees("drained", "child-1 is Open; ")
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
	s.sees("fault, it goes on trying: ")
	s.ends(1)
	checkError(t, s, "no answer within 1.5s", "connection refused")
}

func TestKubeconfigUnusable(t *testing.T) {
	t.Parallel()
	s := start(t, observing(filepath.Join(t.TempDir(), "none"))...)
	s.ends(1)
	checkError(t, s, "loading -kubeconfig", "no such file")
}

func checkError(t *testing.T, s *session, wants ...string) {
	t.Helper()
	got := s.stderr.String()
	if strings.Count(got, "\n") != 1 {
		t.Errorf("stderr = %q; want one line", got)
	}
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("stderr = %q; want %q in it", got, want)
		}
	}
}
