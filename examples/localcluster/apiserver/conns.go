//go:build !race

package main

import (
	"errors"
	"net"
	"sync"
)

// connTracker is a listener that can close the connections it accepted.
type connTracker struct {
	net.Listener

	mu     sync.Mutex
	conns  map[*trackedConn]struct{} // guarded by mu
	closed bool                      // guarded by mu
}

type trackedConn struct {
	net.Conn
	tracker *connTracker
}

func newConnTracker(listener net.Listener) *connTracker {
	return &connTracker{Listener: listener, conns: map[*trackedConn]struct{}{}}
}

func (t *connTracker) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, tracker: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	t.conns[tracked] = struct{}{}
	return tracked, nil
}

// Close closes the listener only, as the HTTP server expects it; twice is no error.
func (t *connTracker) Close() error {
	if err := t.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// closeConns closes every connection, and those still to be accepted.
func (t *connTracker) closeConns() {
	t.mu.Lock()
	t.closed = true
	conns := make([]*trackedConn, 0, len(t.conns))
	for conn := range t.conns {
		conns = append(conns, conn)
	}
	t.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.conns, c)
	c.tracker.mu.Unlock()
	return c.Conn.Close()
}
