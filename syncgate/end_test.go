//go:build go1.25

package syncgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check the end of Run: every gate is closed for ever, and Run returns
// promptly whatever the server and the client do.

func TestEndOfRunClosesForEver(t *testing.T) {
	obj := cluster()
	inBubble(t, syncgate.Options{FailOpen: true}, []any{obj}, func(t *testing.T, f *fixture) {
		f.want(false, syncgate.Open, syncgate.ReasonSyncAllowed)
		f.stop()
		f.want(true, syncgate.Unknown, syncgate.ReasonStopped)
		f.Update(obj, tu.With(obj, tu.Annotated("late", "event")))
		for _, g := range []*syncgate.Gate{f.gate, f.hub.Gate("made after the end")} {
			err := g.Do(t.Context(), func(context.Context) error { t.Error("ran after the end"); return nil })
			if !errors.Is(err, syncgate.ErrStopped) || !errors.Is(err, syncgate.ErrPaused) {
				t.Errorf("Do = %v; want ErrStopped and ErrPaused", err)
			}
			if !g.Paused() || g.State().Reason != syncgate.ReasonStopped {
				t.Errorf("State() = %+v; want Stopped", g.State())
			}
			if err := g.Check(nil); !errors.Is(err, syncgate.ErrStopped) {
				t.Errorf("Check() = %v; want ErrStopped", err)
			}
			if err := g.WaitForSync(t.Context()); !errors.Is(err, syncgate.ErrStopped) {
				t.Errorf("WaitForSync() = %v; want ErrStopped", err)
			}
			if err := g.Run(t.Context()); !errors.Is(err, syncgate.ErrDrivenByHub) {
				t.Errorf("Run of a hub's gate = %v; want ErrDrivenByHub", err)
			}
		}
		if err := f.hub.Run(t.Context()); !errors.Is(err, syncgate.ErrAlreadyRun) {
			t.Errorf("second Run = %v; want ErrAlreadyRun", err)
		}
		if f.Handlers() != 0 {
			t.Errorf("%d handlers are left on the informer; want none", f.Handlers())
		}
	})
}

// Run waits for a callback that blocks, but closes the gate before.
func TestClosedBeforeCallbacksAreWaitedFor(t *testing.T) {
	inBubble(t, syncgate.Options{}, []any{cluster()}, func(_ *testing.T, f *fixture) {
		block := make(chan struct{})
		f.gate.OnChange(func(syncgate.Change) { <-block })
		synctest.Wait()
		go f.stop()
		synctest.Wait()
		f.want(true, syncgate.Unknown, syncgate.ReasonStopped)
		close(block)
	})
}

func TestRunWithAContextThatIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHub(t, syncgate.Options{FailOpen: true})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.hub.Run(ctx); err != nil {
			t.Errorf("Run = %v; want nil", err)
		}
		f.want(true, syncgate.Unknown, syncgate.ReasonStopped)
	})
}

func TestRunOfAStoppedInformer(t *testing.T) {
	f := newHub(t, syncgate.Options{FailOpen: true})
	f.Stop()
	if err := f.hub.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "make a new informer") {
		t.Errorf("Run = %v; want an error with the remedy", err)
	}
	f.want(true, syncgate.Unknown, syncgate.ReasonStopped)
}

// A hub whose informer has stopped gets no more events, so its gates must close.
func TestRunEndsWhenTheInformerStops(t *testing.T) {
	for _, synced := range []bool{false, true} {
		t.Run(fmt.Sprintf("synced=%v", synced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newHub(t, syncgate.Options{FailOpen: true})
				ended := make(chan error, 1)
				go func() { ended <- f.hub.Run(t.Context()) }()
				synctest.Wait()
				if synced {
					f.Add(cluster())
					f.sync()
				}
				f.Stop()
				if err := <-ended; err == nil || !strings.Contains(err.Error(), "it has stopped") {
					t.Errorf("Run = %v; want that the informer has stopped", err)
				}
				f.want(true, syncgate.Unknown, syncgate.ReasonStopped)
			})
		})
	}
}

func TestRunReturnsWhateverTheServerDoes(t *testing.T) {
	for name, fault := range map[string]tu.Fault{
		"hanging": tu.Hang, "list hangs": tu.Hang.On(tu.List), "watch hangs": tu.Hang.On(tu.Watch, tu.WatchList),
		"refused": tu.Refused, "watch refused": tu.Refused.On(tu.Watch), "429": tu.Status(429).RetryAfter(time.Minute),
		"500": tu.Status(500), "healthy": tu.Hang.Times(0).On("none"),
	} {
		for _, after := range []time.Duration{0, time.Second, time.Hour} {
			t.Run(fmt.Sprintf("%s, after %v", name, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAgent(t, syncgate.Options{}, cluster())
					a.server.Fail(fault)
					time.Sleep(after)
					synctest.Wait()
					a.wantStop(stopBound)
					if !a.gate.Paused() {
						t.Error("open after the end")
					}
					// client-go 0.32 sleeps for the whole Retry-After.
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// stopBound is the time of the bubble in which Run must return.
const stopBound = 2 * time.Second

// deafClient ignores the end of a context.
type deafClient struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface
	wake chan struct{}
}

func (c deafClient) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}

func (c deafClient) Namespace(string) dynamic.ResourceInterface { return c }

func (c deafClient) IsWatchListSemanticsUnSupported() bool { return true }

func (c deafClient) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	<-c.wake
	return nil, errors.New("woken")
}

func TestRunReturnsWhateverTheClientDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := deafClient{wake: make(chan struct{})}
		gate, err := syncgate.New(client, ns, id, syncgate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := gate.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start) - time.Minute; took > stopBound {
			t.Errorf("Run returned %v after its context ended; want %v at most", took, stopBound)
		}
		close(client.wake)
	})
}
