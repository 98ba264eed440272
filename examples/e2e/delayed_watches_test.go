package e2e

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// delayedWatches wraps the connection to the parent. It can hold up the events of watches
// of ManagedClusters.
type delayedWatches struct {
	mu     sync.Mutex
	listed int           // how often they were listed
	held   chan struct{} // closed when the delay ends
}

func (l *delayedWatches) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/managedclusters") {
			return answer, err
		}
		if r.URL.Query().Has("watch") {
			answer.Body = &delayedBody{ReadCloser: answer.Body, watches: l, ended: r.Context().Done()}
			return answer, nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.listed++
		return answer, nil
	})
}

func (l *delayedWatches) lists() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listed
}

// hold holds up events until release is called.
func (l *delayedWatches) hold() (release func()) {
	held := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	return func() { close(held) }
}

type delayedBody struct {
	io.ReadCloser
	watches *delayedWatches
	ended   <-chan struct{}
}

func (b *delayedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.watches.mu.Lock()
	held := b.watches.held
	b.watches.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-b.ended:
		}
	}
	return n, err
}
