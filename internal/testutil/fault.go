package testutil

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusternet/syncgate/internal/api"
)

// Fault is a failure that requests to an APIServer get instead of their answer. It
// applies to all requests until Heal, unless On or Times limit it.
type Fault struct {
	verbs      []string
	times      int
	code       int
	inStream   bool
	retryAfter time.Duration
	hang       bool
	err        error
}

var (
	// Refused is the error of a server that does not run.
	Refused = Fault{err: connection("dial", "connect", syscall.ECONNREFUSED)}
	// Reset is a connection that the server resets.
	Reset = Fault{err: connection("read", "read", syscall.ECONNRESET)}
	// EOF is a connection that ends before the answer.
	EOF = Fault{err: io.ErrUnexpectedEOF}
	// Hang gives no answer until the request's context ends.
	Hang = Fault{hang: true}
)

// Status is an answer with an HTTP status code, and the Status object that a real
// server sends with it.
func Status(code int) Fault { return Fault{code: code} }

// InStream is Status, but a watch opens and then sends it as an ERROR event.
func InStream(code int) Fault { return Fault{code: code, inStream: true} }

// On returns f for requests with one of these verbs only.
func (f Fault) On(verbs ...string) Fault {
	f.verbs = verbs
	return f
}

// Times returns f for the next n requests only.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// RetryAfter returns a Status fault with a Retry-After header. Without it a
// client's REST layer does not retry by itself.
func (f Fault) RetryAfter(d time.Duration) Fault {
	f.retryAfter = d
	return f
}

// Fail adds a fault. Each request gets the first fault that applies to it.
func (s *APIServer) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// Heal removes all faults. Requests that hang continue to hang.
func (s *APIServer) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFaultLocked returns the fault for a request with a verb, and counts it.
func (s *APIServer) takeFaultLocked(verb string) Fault {
	for i, f := range s.faults {
		if len(f.verbs) > 0 && !slices.Contains(f.verbs, verb) {
			continue
		}
		if f.times == 1 {
			s.faults = slices.Delete(s.faults, i, i+1)
		} else if f.times > 1 {
			s.faults[i].times--
		}
		return f
	}
	return Fault{}
}

// serve answers a request with the fault. It returns false when there is none.
func (f Fault) serve(w http.ResponseWriter, r *http.Request, req Request) bool {
	switch {
	case f.hang:
		<-r.Context().Done()
	case f.err != nil:
		abort(w, f.err)
	case f.inStream && (req.Verb == Watch || req.Verb == WatchList):
		respond(w, http.StatusOK, event{watch.Error, status(f.code)})
	case f.code != 0:
		if f.retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(f.retryAfter.Seconds())))
		}
		reply(w, &apierrors.StatusError{ErrStatus: *status(f.code)})
	default:
		return false
	}
	return true
}

func connection(op, call string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(call, errno)}
}

func status(code int) *metav1.Status {
	var of *apierrors.StatusError
	resource := api.Resource.GroupResource()
	switch code {
	case http.StatusUnauthorized:
		of = apierrors.NewUnauthorized("Unauthorized")
	case http.StatusForbidden:
		of = apierrors.NewForbidden(resource, "", errors.New(`the user "agent" cannot list resource "managedclusters"`))
	case http.StatusNotFound:
		of = apierrors.NewGenericServerResponse(code, "GET", resource, "", "404 page not found", 0, true)
	case http.StatusGone:
		of = apierrors.NewResourceExpired("too old resource version: 1 (100)")
	case http.StatusTooManyRequests:
		of = apierrors.NewTooManyRequestsError("too many requests, please try again later")
	case http.StatusInternalServerError:
		of = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	default:
		of = apierrors.NewGenericServerResponse(code, "GET", resource, "", fmt.Sprintf("status %d", code), 0, true)
	}
	answer := of.Status()
	answer.APIVersion, answer.Kind = "v1", "Status"
	return &answer
}
