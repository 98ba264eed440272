package main

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusternet/syncgate/examples/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience limits every wait. It is far more than any wait needs, so only a hang fails.
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

// waitFor waits until stdout has had all texts, in this order.
func (s *session) waitFor(texts ...string) {
	s.t.Helper()
	late := time.After(patience)
	for at := 0; len(texts) > 0; {
		got, next := s.stdout.snapshot()
		if i := strings.Index(got[at:], texts[0]); i >= 0 {
			at += i + len(texts[0])
			texts, late = texts[1:], time.After(patience)
			continue
		}
		select {
		case <-next:
		case code := <-s.code:
			s.code <- code
			if got, _ := s.stdout.snapshot(); !strings.Contains(got[at:], texts[0]) {
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
	more chan struct{}
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) snapshot() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.more
}

func (o *output) String() string {
	text, _ := o.snapshot()
	return text
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
