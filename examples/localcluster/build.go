package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	programPackage = "github.com/clusternet/syncgate/examples/localcluster/apiserver"
	programEnv     = "LOCALCLUSTER_APISERVER"
)

// noticeAfter is longer than it takes to find that there is nothing to build.
const noticeAfter = 10 * time.Second

// built holds the program's path, "" until it is built. Who receives from it builds, or gives the path back.
var built = make(chan string, 1)

func init() { built <- "" }

// Build builds the API server's program, unless it is built. The first time on a machine this takes
// minutes, later a moment. [Start] does it too, and does not count the time, but whoever uses a context
// with a deadline for more than Start calls Build before.
//
// Go's build cache keeps the program, so it is never older than its source. The environment variable
// LOCALCLUSTER_APISERVER names a program to use instead.
func Build(ctx context.Context) error {
	_, err := program(ctx)
	return err
}

func program(ctx context.Context) (string, error) {
	if path := os.Getenv(programEnv); path != "" {
		return path, nil
	}
	var path string
	select {
	case path = <-built:
	case <-ctx.Done():
		return "", fmt.Errorf("building the API server: %w", context.Cause(ctx))
	}
	defer func() { built <- path }()
	if path != "" {
		return path, nil
	}

	// Go keeps results of tests, and looks at these files again to know whether they hold.
	for _, pattern := range []string{"apiserver/*.go", "internal/control/*.go"} {
		sources, _ := filepath.Glob(filepath.Join(sourceDir(), pattern))
		for _, source := range sources {
			_, _ = os.Stat(source)
		}
	}
	notice := time.AfterFunc(noticeAfter, func() {
		fmt.Fprintln(os.Stderr, "localcluster: building the API server; this happens once and can take minutes")
	})
	defer notice.Stop()
	// The go command builds the tool if need be, and prints where it is.
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", programPackage)
	cmd.Dir = sourceDir()
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil && !filepath.IsAbs(strings.TrimSpace(string(out))) {
		err = fmt.Errorf("go tool -n printed %q, no path", out)
	}
	if err != nil {
		err = fmt.Errorf("building the API server: %w; it needs the go command and the module of the examples "+
			"(start in its directory, or set %s to what go build %s has built)", err, programEnv, programPackage)
		if stderr.Len() > 0 {
			err = fmt.Errorf("%w:\n%s", err, bytes.TrimSpace(stderr.Bytes()))
		}
		return "", err
	}
	path = strings.TrimSpace(string(out))
	return path, nil
}

// sourceDir is where this file was compiled, or "", the working directory, when it is no longer there.
func sourceDir() string {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if _, err := os.Stat(file); err == nil {
			return filepath.Dir(file)
		}
	}
	return ""
}

// withoutDeadline returns a context that ends when ctx is cancelled. Its deadline, if any, counts only from
// when resume is called: what was left of it at the beginning.
func withoutDeadline(ctx context.Context) (_ context.Context, resume func(), cancel context.CancelFunc) {
	began := time.Now()
	patient, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			end(context.Cause(ctx))
		}
	})
	var timer *time.Timer
	resume = func() {
		if deadline, ok := ctx.Deadline(); ok {
			timer = time.AfterFunc(deadline.Sub(began), func() {
				<-ctx.Done() // it was due before; now its cause is known
				end(context.Cause(ctx))
			})
		}
	}
	return patient, resume, func() {
		stop()
		if timer != nil {
			timer.Stop()
		}
		end(nil)
	}
}
