package testutil

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusternet/syncgate/internal/api"
)

// Fault is what a request of an APIServer meets instead of its answer. It is for
// all requests, until Heal, unless On or Times say otherwise.
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
	// Refused is a server that does not run.
	Refused = Fault{err: connection("dial", "connect", syscall.ECONNREFUSED)}
	// Reset is a server that ends the connection.
	Reset = Fault{err: connection("read", "read", syscall.ECONNRESET)}
	// EOF is a connection that ends before the answer.
	EOF = Fault{err: io.ErrUnexpectedEOF}
	// Hang is no answer until the request's context ends.
	Hang = Fault{hang: true}
)

// Status is an answer with the HTTP status code, as a real server explains it.
func Status(code int) Fault { return Fault{code: code} }

// InStream is Status, but watches are opened and carry it as an ERROR event.
func InStream(code int) Fault { return Fault{code: code, inStream: true} }

// On returns a fault that only requests with one of these verbs meet.
func (f Fault) On(verbs ...string) Fault {
	f.verbs = verbs
	return f
}

// Times returns a fault that only the next n requests meet.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// RetryAfter returns a Status fault that also says when to come again. Without
// it a client's REST layer does not try again by itself.
func (f Fault) RetryAfter(d time.Duration) Fault {
	f.retryAfter = d
	return f
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
