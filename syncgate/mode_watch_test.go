//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check WatchMode, which checks the modes again when they change.

// modeWatch is a WatchMode that runs. It records the problem, "fine", or the error.
type modeWatch struct {
	recorder
	stop func() error // ends it and returns its error
	wait func() error // waits for its end
}

// watchMode watches with the agent's flag Dual and AppPusher: the modes that fit the
// ManagedClusters of testutil. fn, unless nil, is called in each callback.
func watchMode(g *syncgate.Gate, fn func()) *modeWatch {
	w := &modeWatch{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	w.wait = sync.OnceValue(func() error { return <-ended })
	w.stop = func() error { cancel(); return w.wait() }
	go func() {
		ended <- g.WatchMode(ctx, syncgate.Dual, true, func(err error) {
			var modeError *syncgate.ModeError
			switch {
			case err == nil:
				w.add("fine")
			case errors.As(err, &modeError):
				w.add(modeError.Problem.String())
			default:
				w.add(err.Error())
			}
			if fn != nil {
				fn()
			}
		})
	}()
	return w
}

func mode(m syncgate.Mode) tu.Option {
	return func(object map[string]any) {
		spec := object["spec"].(map[string]any)
		spec["syncMode"] = string(m)
	}
}

// modeAgent is the gate of an agent with two watches of its mode. early started
// before Run, late after it. log has the log of Run.
type modeAgent struct {
	*agent
	early, late *modeWatch
	log         recorder
	obj         *unstructured.Unstructured
}

func newModeAgent(t *testing.T) *modeAgent {
	t.Helper()
	obj := cluster()
	server := tu.NewAPIServer(obj, tu.ManagedCluster(ns, "neighbour", "another", mode(syncgate.Pull)))
	t.Cleanup(server.Close)
	gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &modeAgent{agent: &agent{T: t, server: server, gate: gate}, obj: obj}
	a.early = watchMode(gate, nil)
	a.early.want(t)
	a.stop = start(logTo(context.Background(), 0, a.log.add), t, gate.Run)
	time.Sleep(time.Second)
	a.early.want(t, "fine")
	a.late = watchMode(gate, nil)
	time.Sleep(time.Second)
	a.late.want(t, "fine")
	return a
}

// update changes the ManagedCluster and waits until the watches have it.
func (a *modeAgent) update(opts ...tu.Option) {
	a.obj = tu.With(a.obj, opts...)
	a.server.Update(a.obj)
	time.Sleep(time.Second)
}

// With a real informer, from before Run until its end.
func TestWatchMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newModeAgent(t)
		a.update(mode(syncgate.Pull))
		a.early.want(t, "NobodyDeploys")
		if err := a.late.stop(); err != nil {
			t.Errorf("WatchMode = %v after its ctx ended; want nil", err)
		}
		a.late.want(t, "NobodyDeploys")
		for i := range 5 {
			a.update(tu.Heartbeat(time.Now().Add(time.Duration(i))))
		}
		a.update(tu.Paused(true))
		a.server.CutWatches()
		time.Sleep(time.Minute)
		a.early.want(t)
		a.update(mode(syncgate.Push))
		a.early.want(t, "fine")
		a.update(mode(syncgate.Dual))
		a.early.want(t) // another mode with the same result
		a.server.Delete(ns, "child")
		time.Sleep(time.Second)
		a.early.want(t)
		a.server.Create(cluster(mode(syncgate.Pull), tu.UID("new")))
		time.Sleep(time.Second)
		a.early.want(t, "NobodyDeploys")
		a.late.want(t)
		lines := slices.DeleteFunc(a.log.take(), func(line string) bool { return !strings.Contains(line, "Sync modes ") })
		// Both watches have logged the first problem.
		if len(lines) != 4 || !strings.Contains(lines[0], "ManagedCluster "+ns+"/child: ") ||
			!strings.HasPrefix(lines[0], "E") || !strings.Contains(lines[2], "Sync modes no longer conflict") {
			t.Errorf("logged %q; want a line for each problem and one for the end of the first", lines)
		}
	})
}

func TestWatchModeEndsWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newModeAgent(t)
		if err := a.late.stop(); err != nil {
			t.Errorf("WatchMode = %v after its ctx ended; want nil", err)
		}
		a.stop()
		for range 20 { // select chooses at random
			for _, w := range []*modeWatch{a.early, watchMode(a.gate, nil)} {
				if err := w.wait(); !errors.Is(err, syncgate.ErrStopped) {
					t.Errorf("WatchMode = %v after the end of Run; want ErrStopped", err)
				}
				w.want(t)
			}
		}
		over, cancel := context.WithCancel(context.Background())
		cancel()
		if err := a.gate.WatchMode(over, syncgate.Dual, true, nil); err != nil {
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
		w.want(t) // there is no ManagedCluster with a mode
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

// An informer that has stopped takes no handler.
func TestWatchModeOfAStoppedInformer(t *testing.T) {
	inBubble(t, syncgate.Options{}, nil, func(t *testing.T, f *fixture) {
		f.Stop()
		err := f.gate.WatchMode(context.Background(), syncgate.Dual, true, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "syncgate: watch the mode of cluster "+id) {
			t.Errorf("WatchMode = %v; want what was attempted", err)
		}
	})
}
