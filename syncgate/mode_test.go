//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// TestModes has every row of the table of who deploys, and every combination of
// modes, known and not.
func TestModes(t *testing.T) {
	const (
		push, pull, dual   = syncgate.Push, syncgate.Pull, syncgate.Dual
		none, other        = syncgate.Mode(""), syncgate.Mode("pull")
		both, nobody       = syncgate.BothDeploy, syncgate.NobodyDeploys
		misleads, unknown  = syncgate.SpecMisleads, syncgate.UnknownMode
		fine               = syncgate.ModeProblem(0)
		withPusher, noPush = true, false
	)
	for _, row := range []struct {
		agent       syncgate.Mode
		appPusher   bool
		spec        syncgate.Mode
		agentIs     bool
		hubIs       bool
		problem     syncgate.ModeProblem
		remedyHolds string // a part of the error
	}{
		{pull, withPusher, push, true, true, both, "set spec.syncMode to Pull, or start the agent with --cluster-sync-mode=Push, or start the agent with --cluster-sync-mode=Dual"},
		{pull, withPusher, dual, true, true, both, "set spec.syncMode to Pull, or start the agent with --cluster-sync-mode=Push, or start the agent with --cluster-sync-mode=Dual"},
		{push, withPusher, pull, false, false, nobody, "set spec.syncMode to Push, or set spec.syncMode to Dual, or start the agent with --cluster-sync-mode=Pull"},
		{dual, withPusher, pull, false, false, nobody, "or start the agent with --cluster-sync-mode=Pull"},
		{push, noPush, push, false, false, nobody, "start the agent with --feature-gates=AppPusher=true"},
		{push, noPush, dual, false, false, nobody, "start the agent with --feature-gates=AppPusher=true"},
		{push, noPush, pull, false, false, nobody, "start the agent with --cluster-sync-mode=Pull"},
		{pull, noPush, push, true, false, misleads, "set spec.syncMode to Pull"},
		{pull, noPush, dual, true, false, misleads, "set spec.syncMode to Pull"},
		{dual, noPush, push, true, false, misleads, "set spec.syncMode to Pull, or set spec.syncMode to Dual"},
		{dual, noPush, pull, true, false, fine, ""},
		{dual, noPush, dual, true, false, fine, ""},
		{pull, withPusher, pull, true, false, fine, ""},
		{pull, noPush, pull, true, false, fine, ""},
		{push, withPusher, push, false, true, fine, ""},
		{push, withPusher, dual, false, true, fine, ""},
		{dual, withPusher, push, false, true, fine, ""},
		{dual, withPusher, dual, false, true, fine, ""},

		// A mode that is none.
		{none, withPusher, push, false, true, unknown, "start the agent with --cluster-sync-mode=Push"},
		{other, withPusher, dual, false, true, unknown, "start the agent with --cluster-sync-mode=Dual"},
		{none, withPusher, pull, false, false, nobody, "start the agent with --cluster-sync-mode=Pull"},
		{none, noPush, push, false, false, nobody, "set both modes to Dual"},
		{other, noPush, dual, false, false, nobody, "start the agent with --cluster-sync-mode=Dual"},
		{other, noPush, pull, false, false, nobody, "start the agent with --cluster-sync-mode=Pull"},
		{push, withPusher, none, false, true, unknown, "set spec.syncMode to Push"},
		{push, noPush, none, false, false, nobody, "set both modes to Dual"},
		{pull, withPusher, none, true, true, both, "set spec.syncMode to Pull"},
		{pull, noPush, none, true, false, unknown, "set spec.syncMode to Pull"},
		{dual, withPusher, other, false, true, unknown, "set spec.syncMode to Push"},
		{dual, noPush, other, true, false, unknown, "set spec.syncMode to Pull"},
		{none, withPusher, none, false, true, unknown, "set both modes to Dual"},
		{none, noPush, other, false, false, nobody, "set both modes to Dual"},
	} {
		t.Run(fmt.Sprintf("agent=%s,appPusher=%t,spec=%s", row.agent, row.appPusher, row.spec), func(t *testing.T) {
			if got := syncgate.AgentDeploys(row.agent, row.appPusher); got != row.agentIs {
				t.Errorf("AgentDeploys(%q, %t) = %t; want %t", row.agent, row.appPusher, got, row.agentIs)
			}
			if got := syncgate.HubDeploys(row.spec, row.appPusher); got != row.hubIs {
				t.Errorf("HubDeploys(%q, %t) = %t; want %t", row.spec, row.appPusher, got, row.hubIs)
			}
			err := syncgate.CheckMode(row.agent, row.appPusher, row.spec)
			if row.problem == fine {
				if err != nil {
					t.Errorf("CheckMode = %v; want nil", err)
				}
				return
			}
			var got *syncgate.ModeError
			if !errors.As(err, &got) {
				t.Fatalf("CheckMode = %v; want a *ModeError", err)
			}
			want := syncgate.ModeError{Problem: row.problem, AgentMode: row.agent, AppPusher: row.appPusher, SpecMode: row.spec}
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Errorf("CheckMode (-want +got):\n%s", diff)
			}
			who := map[[2]bool]string{
				{true, true}: "both the hub and the agent deploy,", {false, false}: "neither the hub nor the agent deploys,",
				{true, false}: "only the agent deploys,", {false, true}: "only the hub deploys,",
			}[[2]bool{row.agentIs, row.hubIs}]
			for _, part := range []string{who, row.remedyHolds, "--cluster-sync-mode=" + string(row.agent) + " "} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Error() = %s; want %q in it", err, part)
				}
			}
		})
	}
}

// Each remedy that an error names leaves no problem, and moves no deployments of
// the one who does them.
func TestRemediesOfEveryModeProblem(t *testing.T) {
	modes := []syncgate.Mode{syncgate.Push, syncgate.Pull, syncgate.Dual}
	problems := map[syncgate.ModeProblem]int{}
	for _, agentMode := range modes {
		for _, appPusher := range []bool{true, false} {
			for _, specMode := range modes {
				var modeError *syncgate.ModeError
				err := syncgate.CheckMode(agentMode, appPusher, specMode)
				if !errors.As(err, &modeError) {
					problems[0]++
					continue
				}
				problems[modeError.Problem]++
				_, remedies, _ := strings.Cut(err.Error(), "; ")
				for _, remedy := range strings.Split(remedies, ", or ") {
					a, p, s := agentMode, appPusher, specMode
					name, value, _ := strings.Cut(strings.TrimPrefix(remedy, "start the agent with "), "=")
					switch name {
					case "--cluster-sync-mode":
						a = syncgate.Mode(value)
					case "--feature-gates":
						p = value == "AppPusher=true"
					default:
						s = syncgate.Mode(strings.TrimPrefix(remedy, "set spec.syncMode to "))
					}
					if err := syncgate.CheckMode(a, p, s); err != nil {
						t.Errorf("after %q of %v: CheckMode(%s, %t, %s) = %v; want nil", remedy, modeError.Problem, a, p, s, err)
					}
					if modeError.Problem == syncgate.SpecMisleads && !syncgate.AgentDeploys(a, p) {
						t.Errorf("after %q of %v: the hub deploys; want no move", remedy, modeError.Problem)
					}
				}
			}
		}
	}
	want := map[syncgate.ModeProblem]int{0: 8, syncgate.BothDeploy: 2, syncgate.NobodyDeploys: 5, syncgate.SpecMisleads: 3}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems of the 18 combinations (-want +got):\n%s", diff)
	}
}

// An agent refuses to start, or tells, when it would deploy beside the hub.
func ExampleCheckMode() {
	err := syncgate.CheckMode(syncgate.Pull, true, syncgate.Dual)
	var modeError *syncgate.ModeError
	if errors.As(err, &modeError) {
		fmt.Println(modeError.Problem)
		fmt.Println(err)
	}
	// Output:
	// BothDeploy
	// syncgate: check who deploys: both the hub and the agent deploy, because the agent runs with --cluster-sync-mode=Pull and AppPusher=true, and spec.syncMode is "Dual"; set spec.syncMode to Pull, or start the agent with --cluster-sync-mode=Push, or start the agent with --cluster-sync-mode=Dual
}

func TestModeProblemString(t *testing.T) {
	for problem, want := range map[syncgate.ModeProblem]string{
		syncgate.BothDeploy: "BothDeploy", syncgate.NobodyDeploys: "NobodyDeploys",
		syncgate.UnknownMode: "UnknownMode", syncgate.SpecMisleads: "SpecMisleads", 9: "ModeProblem(9)",
	} {
		if got := problem.String(); got != want {
			t.Errorf("String() = %s; want %s", got, want)
		}
	}
}

// modeWatch is a WatchMode that runs, and what it told.
type modeWatch struct {
	stop func() error // ends it and returns its error
	wait func() error // waits for its end

	mu   sync.Mutex
	told []string // the problem, "fine", or the error
}

// watchMode watches with the agent's flag Dual and AppPusher, as the ManagedClusters of testutil have it.
func watchMode(g *syncgate.Gate, during func()) *modeWatch {
	w := &modeWatch{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	w.wait = sync.OnceValue(func() error { return <-ended })
	w.stop = func() error { cancel(); return w.wait() }
	go func() {
		ended <- g.WatchMode(ctx, syncgate.Dual, true, func(err error) {
			var modeError *syncgate.ModeError
			text := "fine"
			if errors.As(err, &modeError) {
				text = modeError.Problem.String()
			} else if err != nil {
				text = err.Error()
			}
			w.mu.Lock()
			w.told = append(w.told, text)
			w.mu.Unlock()
			if during != nil {
				during()
			}
		})
	}()
	return w
}

func (w *modeWatch) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(want, w.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	w.told = nil
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// with returns the lines that contain text.
func (l *lines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var with []string
	for _, line := range l.all {
		if strings.Contains(line, text) {
			with = append(with, line)
		}
	}
	return with
}

func mode(m syncgate.Mode) tu.Option {
	return func(object map[string]any) {
		spec := object["spec"].(map[string]any)
		spec["syncMode"] = string(m)
	}
}

// The agent of a real informer: from before Run to after it.
func TestWatchMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := tu.NewAPIServer(cluster(), tu.ManagedCluster(ns, "neighbour", "another", mode(syncgate.Pull)))
		defer server.Close()
		gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		early := watchMode(gate, nil)
		synctest.Wait()
		early.want(t)

		log := &lines{}
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
		ended := make(chan error, 1)
		go func() { ended <- gate.Run(ctx) }()
		time.Sleep(time.Second)
		early.want(t, "fine")
		late := watchMode(gate, nil)
		time.Sleep(time.Second)
		late.want(t, "fine")

		obj := cluster()
		update := func(opts ...tu.Option) {
			obj = tu.With(obj, opts...)
			server.Update(obj)
			time.Sleep(time.Second)
		}
		update(mode(syncgate.Pull))
		early.want(t, "NobodyDeploys")
		if err := late.stop(); err != nil {
			t.Errorf("WatchMode = %v after its ctx ended; want nil", err)
		}
		late.want(t, "NobodyDeploys")
		for i := range 5 {
			update(tu.Heartbeat(time.Now().Add(time.Duration(i))))
		}
		update(tu.Paused(true))
		server.CutWatches()
		time.Sleep(time.Minute)
		early.want(t)
		update(mode(syncgate.Push))
		early.want(t, "fine")
		update(mode(syncgate.Dual))
		early.want(t) // other, and as good
		server.Delete(ns, "child")
		time.Sleep(time.Second)
		early.want(t)
		server.Create(cluster(mode(syncgate.Pull), tu.UID("new")))
		time.Sleep(time.Second)
		early.want(t, "NobodyDeploys")
		late.want(t)
		// The late watch has logged the first problem too.
		if got := log.with("Modes "); len(got) != 4 || !strings.Contains(got[0], "ManagedCluster "+ns+"/child: ") ||
			!strings.HasPrefix(got[0], "E") || !strings.Contains(got[2], "Modes fit together again") {
			t.Errorf("logged %q; want a line for each problem and one for the end of the first", got)
		}

		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		for range 20 { // select chooses at random
			for _, w := range []*modeWatch{early, watchMode(gate, nil)} {
				if err := w.wait(); !errors.Is(err, syncgate.ErrStopped) {
					t.Errorf("WatchMode = %v after the end of Run; want ErrStopped", err)
				}
				w.want(t)
			}
		}
		over, cancelled := context.WithCancel(context.Background())
		cancelled()
		if err := gate.WatchMode(over, syncgate.Dual, true, nil); err != nil {
			t.Errorf("WatchMode = %v with a ctx that has ended; want nil", err)
		}
	})
}

// Several ManagedClusters, tombstones and objects of other clusters.
func TestWatchModeOfSeveral(t *testing.T) {
	inBubble(t, syncgate.Options{}, nil, func(t *testing.T, f *fixture) {
		w := watchMode(f.gate, nil)
		synctest.Wait()
		if n := f.Handlers(); n != 2 {
			t.Fatalf("%d handlers; want 2", n)
		}
		w.want(t) // there is no ManagedCluster
		f.Add(42, tu.ManagedCluster(ns, "neighbour", "another", mode("")))
		w.want(t)
		b, a := tu.ManagedCluster(ns, "b", id), tu.ManagedCluster(ns, "a", id)
		f.Add(b)
		w.want(t, "fine")
		f.Add(a)
		w.want(t)
		f.Update(b, tu.With(b, mode(syncgate.Pull)))
		w.want(t, "NobodyDeploys")
		f.Update(a, tu.With(a, mode("")))
		w.want(t, "UnknownMode") // of the first by name
		f.Update(a, tu.With(a, mode(""), tu.ClusterID("another")))
		w.want(t, "NobodyDeploys")
		f.Delete(b)
		w.want(t) // nothing is known any more
		f.Add(a, b)
		w.want(t, "fine")
		f.Update(b, tu.With(b, mode(syncgate.Pull)))
		w.want(t, "NobodyDeploys")
		f.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/b"})
		w.want(t, "fine")
		f.Add(b)
		if err := w.stop(); err != nil {
			t.Errorf("WatchMode = %v; want nil", err)
		}
		if n := f.Handlers(); n != 1 {
			t.Errorf("%d handlers after the end; want 1", n)
		}
		f.Update(b, tu.With(b, mode(syncgate.Pull)))
		w.want(t)
	})
}

// While fn blocks, changes are merged; it may use the gate, and end the watch.
func TestWatchModeCallback(t *testing.T) {
	inBubble(t, syncgate.Options{}, nil, func(t *testing.T, f *fixture) {
		resume := make(chan struct{})
		w := watchMode(f.gate, func() { f.gate.State(); <-resume })
		obj := cluster()
		synctest.Wait()
		f.Add(obj)
		synctest.Wait()
		for range 100 {
			f.Update(obj, tu.With(obj, mode(syncgate.Pull)))
			f.Update(obj, tu.With(obj, mode(syncgate.Push)))
		}
		f.Update(obj, tu.With(obj, mode(syncgate.Pull)))
		close(resume)
		w.want(t, "fine", "NobodyDeploys")
		if err := w.stop(); err != nil {
			t.Errorf("WatchMode = %v; want nil", err)
		}

		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- f.gate.WatchMode(ctx, syncgate.Pull, true, func(error) { cancel() })
		}()
		synctest.Wait()
		f.Update(obj, tu.With(obj, mode(syncgate.Push)))
		if err := <-ended; err != nil {
			t.Errorf("WatchMode = %v; want nil", err)
		}
	})
}

// An informer that has ended by itself takes no handler.
func TestWatchModeOfAStoppedInformer(t *testing.T) {
	inBubble(t, syncgate.Options{}, nil, func(t *testing.T, f *fixture) {
		f.Stop()
		err := f.gate.WatchMode(context.Background(), syncgate.Dual, true, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "syncgate: watch the mode of cluster "+id) {
			t.Errorf("WatchMode = %v; want what was attempted", err)
		}
	})
}
