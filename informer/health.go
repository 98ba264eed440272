package informer

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// answerTimeout is how long a request may go without an answer before Err reports it.
const answerTimeout = 30 * time.Second

var (
	errNotRun     = errors.New("not run yet; call Run of the *Informer, or of the Gate or Hub that it belongs to")
	errNoAnswer   = errors.New("the server has not answered the first request yet")
	errSilent     = errors.New("the server has not answered a request for over thirty seconds")
	errRelisting  = errors.New("the informer lists again, and the server has not answered yet")
	errNoWatch    = errors.New("the connection timed out or was closed (EOF, reset) before the watch began")
	errNoBookmark = errors.New("the server has not sent the bookmark that ends the initial events of a WatchList; " +
		"after ten silent seconds LIST and WATCH are used instead")
)

// recordSuccess records an answer of the server. Contact is true if the answer
// brought the state of the server up to date: a watch that opens brings none.
func (s *source) recordSuccess(contact bool) {
	s.mu.Lock()
	ctx, fault := s.ctx, s.fault
	s.fault = nil
	if contact {
		s.contact = time.Now()
	}
	s.mu.Unlock()
	if fault != nil && !isPending(fault) {
		klog.FromContext(ctx).V(2).Info("ManagedClusters can be read again", "which", s.what)
	}
}

// recordRelist records that an initial read is complete, before it is passed on: so no
// handler gets a part of it earlier.
func (s *source) recordRelist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.relists++
}

// recordRelisting records that what was read is no longer followed, until a relist is
// complete.
func (s *source) recordRelisting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = errRelisting
}

// recordFailure records that a request failed. The informer tries again by itself.
func (s *source) recordFailure(err error) {
	s.mu.Lock()
	ctx, before := s.ctx, s.fault
	if ctx.Err() != nil { // the end of Run is no fault
		s.mu.Unlock()
		return
	}
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // without the URL, which is long and says no more than what
	}
	s.fault = err
	err = s.errLocked()
	s.mu.Unlock()
	level := 4
	if before == nil || isPending(before) {
		level = 2
	}
	klog.FromContext(ctx).V(level).Info("ManagedClusters can't be read; the last known state is kept", "which", s.what, "err", err)
}

// isPending reports whether err says only that an answer is still to come.
func isPending(err error) bool {
	return errors.Is(err, errNoAnswer) || errors.Is(err, errNoBookmark) || errors.Is(err, errRelisting)
}

// recordPending records that a request has no answer yet, until answered is called.
func (s *source) recordPending(since time.Time) (answered func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, since)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.pending, since); i >= 0 {
			s.pending = slices.Delete(s.pending, i, i+1)
		}
	}
}

func (s *source) errLocked() error {
	err := s.fault
	switch {
	case s.ctx == nil:
		err = errNotRun
	case err == nil && len(s.pending) > 0 && time.Since(s.pending[0]) > answerTimeout:
		err = errSilent
	case err == nil:
		err = s.history.fault
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("informer: read %s: %w%s", s.what, err, s.advice(err))
}

func (s *source) advice(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("; allow this client to list and watch %s %s", Resource.GroupResource(), s.where)
	case apierrors.IsUnauthorized(err):
		return "; renew the credentials of this client"
	case apierrors.IsNotFound(err):
		return "; install Clusternet's CRDs in the parent cluster"
	case notSelectable(err):
		return "; declare .spec.clusterId in selectableFields of the CRD, or use Selection Auto or ByLabel"
	}
	return ""
}
