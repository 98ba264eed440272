package localcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/clusternet/syncgate/examples/localcluster/internal/control"
)

// stopTime is how long the server process may take to end when it is told to: longer than it gives itself.
const stopTime = 20 * time.Second

var errStopped = errors.New("the cluster is stopped; start it again")

// process is the server process. It ends when its standard input does, so also when this process dies.
type process struct {
	cmd    *exec.Cmd
	input  io.Closer
	stderr tail
	done   chan struct{} // closed when it has ended
	err    error         // of its end; read after done

	mu      sync.Mutex
	stopped bool // guarded by mu; stop or kill was called
}

// startProcess starts the program. The listener and the lock stay open in this process too.
//
// Two go commands that build at once write the same file. Who comes first waits for the other one.
func startProcess(ctx context.Context, program string, config control.Config, listener net.Listener, lock *os.File) (*process, error) {
	for {
		p, err := tryStartProcess(program, config, listener, lock)
		if !errors.Is(err, syscall.ETXTBSY) {
			return p, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (at last: %w)", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

func tryStartProcess(program string, config control.Config, listener net.Listener, lock *os.File) (*process, error) {
	line, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	p := &process{cmd: exec.Command(program), done: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	p.cmd.ExtraFiles = make([]*os.File, 2)
	p.cmd.ExtraFiles[control.ListenerFD-3] = file
	p.cmd.ExtraFiles[control.LockFD-3] = lock
	input, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.input = input
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	_, writeErr := input.Write(append(line, '\n')) // it fails when the process has ended; the end says more
	go func() {
		defer close(p.done)
		p.err = errors.Join(p.cmd.Wait(), writeErr)
	}()
	return p, nil
}

// during returns a context that ends with ctx or with the process; its cause says so.
func (p *process) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.done:
			cancel(p.ended())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// ended says why the process has ended. Call it after done.
func (p *process) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errStopped
	}
	return p.unexpected()
}

func (p *process) unexpected() error {
	err := p.err
	if err == nil {
		err = errors.New("exit status 0")
	}
	if lines := p.stderr.String(); lines != "" {
		return fmt.Errorf("the API server's process has ended: %w; it wrote last:\n%s", err, lines)
	}
	return fmt.Errorf("the API server's process has ended: %w", err)
}

// explain adds to the error of a request that the process has ended, if it has.
func (p *process) explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	select {
	case <-p.done:
		return fmt.Errorf("%w (%w)", p.ended(), err)
	case <-time.After(pollInterval): // connections end a moment before the process
		return err
	}
}

// stop ends the process and waits for its end. The error says how it ended, if not as it should.
func (p *process) stop() error {
	p.mu.Lock()
	before := p.stopped
	p.stopped = true
	p.mu.Unlock()
	if before { // killed
		<-p.done
		return nil
	}
	select {
	case <-p.done:
		return p.unexpected()
	default:
	}
	_ = p.input.Close()
	select {
	case <-p.done:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("still running after %v, so it was killed; it wrote last:\n%s", stopTime, &p.stderr)
	}
	if p.err != nil {
		return p.unexpected()
	}
	return nil
}

// kill ends the process at once, and waits for its end.
func (p *process) kill() {
	p.mu.Lock()
	select {
	case <-p.done: // by itself, which stop reports
	default:
		p.stopped = true
	}
	p.mu.Unlock()
	_ = p.cmd.Process.Kill()
	<-p.done
}

// tail keeps the last lines written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte // guarded by mu
}

const (
	tailBytes = 16 << 10
	tailLines = 10
)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append([]byte(nil), t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(string(bytes.TrimSpace(t.buf)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
