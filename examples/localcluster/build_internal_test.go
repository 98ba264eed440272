package localcluster

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBuildFails(t *testing.T) {
	path := <-built
	built <- ""
	defer func() {
		<-built
		built <- path
	}()
	t.Setenv(programEnv, "")
	t.Setenv("PATH", t.TempDir())
	err := Build(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "building the API server: ") || !strings.Contains(err.Error(), programEnv) {
		t.Errorf("Build() without the go command = %v; want an error that says what to do", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more time"))
	if err := Build(ended); err == nil || !strings.Contains(err.Error(), "no more time") {
		t.Errorf("Build(ended ctx) = %v; want its cause", err)
	}
	t.Setenv(programEnv, filepath.Join("a", "program"))
	if got, err := program(t.Context()); err != nil || got != filepath.Join("a", "program") {
		t.Errorf("program() with %s = %q, %v; want that", programEnv, got, err)
	}
}

// The time that a build takes does not count.
func TestWithoutDeadline(t *testing.T) {
	cause := errors.New("no more time")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, cause)
		defer cancel()
		patient, resume, release := withoutDeadline(ctx)
		defer release()
		time.Sleep(10 * time.Minute)
		resume()
		time.Sleep(29 * time.Second)
		if err := context.Cause(patient); err != nil {
			t.Errorf("before what was left of the deadline has passed: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := context.Cause(patient); !errors.Is(err, cause) {
			t.Errorf("after it: %v; want %v", err, cause)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		patient, resume, release := withoutDeadline(ctx)
		defer release()
		resume()
		cancel(cause)
		synctest.Wait()
		if err := context.Cause(patient); !errors.Is(err, cause) {
			t.Errorf("after a cancellation: %v; want %v", err, cause)
		}
	})
}
