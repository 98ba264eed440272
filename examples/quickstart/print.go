package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/clusternet/syncgate/syncgate"
)

// printer writes lines with the time since the start. Its methods may be called from any goroutine.
type printer struct {
	start  time.Time
	failed context.CancelCauseFunc // called when a line can't be written: there is no use in going on then

	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func newPrinter(w io.Writer, failed context.CancelCauseFunc) *printer {
	return &printer{start: time.Now(), failed: failed, w: w}
}

func (p *printer) step(format string, args ...any) {
	p.write(fmt.Sprintf("%6.2fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...)))
}

// block writes lines as they are, below a step.
func (p *printer) block(text string) {
	p.write("         " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n         ") + "\n")
}

func (p *printer) write(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.w, text); err != nil {
		p.failed(fmt.Errorf("writing the output: %w", err))
	}
}

// took prints a duration as precisely as it matters here.
func took(d time.Duration) string {
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

// number is "1 write", "2 writes".
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// holders tells who holds a cluster and why.
func holders(s syncgate.State) string {
	owners := make([]string, 0, len(s.Holds))
	for _, hold := range s.Holds {
		owners = append(owners, hold.String())
	}
	if len(owners) == 0 {
		return "nobody"
	}
	return strings.Join(owners, ", ")
}
