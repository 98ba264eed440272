package histories

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"time"
)

// watchBody is the answer to a watch. It feels the fault of its link at each moment.
type watchBody struct {
	io.ReadCloser
	link  *link
	ctx   context.Context //nolint:containedctx // of the request
	lines *bufio.Reader   // nil: all of the answer gets through
	rest  []byte          // of the line that is being read
	lost  bool            // a bookmark that was withheld; guarded by link.mu
	stock bool            // it is for an informer of client-go, not of package informer
}

func (l *link) watchBody(ctx context.Context, body io.ReadCloser, f fault, stock bool) io.ReadCloser {
	w := &watchBody{ReadCloser: body, link: l, ctx: ctx, stock: stock}
	if f == withheldBookmarks {
		w.lines = bufio.NewReader(body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches[w] = struct{}{}
	return w
}

func (w *watchBody) Close() error {
	w.link.mu.Lock()
	delete(w.link.watches, w)
	w.link.mu.Unlock()
	return w.ReadCloser.Close()
}

func (w *watchBody) Read(p []byte) (int, error) {
	n, err := w.read(p)
	switch f, ended := w.link.current(); f {
	case cut:
		return 0, errCut
	case stalled:
		wait(w.ctx, ended)
	case halfOpen: // it looks alive until something ends it
		wait(w.ctx, ended)
		return 0, errCut
	case slow:
		sleep(w.ctx, rand.N(60*time.Millisecond))
	default:
	}
	return n, err
}

// read withholds the bookmarks, if it has to.
func (w *watchBody) read(p []byte) (int, error) {
	if w.lines == nil {
		return w.ReadCloser.Read(p)
	}
	for len(w.rest) == 0 {
		line, err := w.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if f, _ := w.link.current(); f != withheldBookmarks || !bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			w.rest = line
		} else {
			w.link.mu.Lock()
			w.lost = true
			w.link.mu.Unlock()
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}
