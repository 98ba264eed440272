package informer

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// probeTimeout bounds the probe for the field. The informer can do without it.
const probeTimeout = 10 * time.Second

// Selection is how the informer selects ManagedClusters on the server.
type Selection int

const (
	// Auto selects by field where the CRD allows it and by label elsewhere.
	Auto Selection = iota
	// ByField selects by spec.clusterId and by nothing else.
	ByField
	// ByLabel selects by the label clusters.clusternet.io/cluster-id.
	ByLabel
)

// String returns the name of s.
func (s Selection) String() string {
	if names := [...]string{"Auto", "ByField", "ByLabel"}; s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("Selection(%d)", int(s))
}

// withSelector returns opts with the selector of sel.
func (s *source) withSelector(opts metav1.ListOptions, sel Selection) metav1.ListOptions {
	switch sel {
	case ByField:
		opts.FieldSelector = s.byField
	case ByLabel:
		opts.LabelSelector = s.byLabel
	default: // a hub selects every cluster
	}
	return opts
}

// initialRead makes an initial read: the first page of a list, or a WatchList. Only
// an initial read may change the selection. A watch that goes on with another
// selection would miss the objects that the old selection left out.
func (s *source) initialRead(read func(Selection) error) error {
	s.mu.Lock()
	s.history = newHistory()
	s.mu.Unlock()
	sel := s.requested
	if sel == Auto && s.byField != "" {
		sel = ByField
	}
	err := read(sel)
	if s.requested == Auto && notSelectable(err) {
		sel = ByLabel
		err = read(sel)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	before, ctx := s.inForce, s.ctx
	s.inForce, s.justProbed = sel, true
	s.mu.Unlock()
	if before != sel { // under Auto, ByLabel means that the field is not selectable
		klog.FromContext(ctx).V(2).Info("Selecting ManagedClusters", "which", s.what, "selection", sel, "requested", s.requested)
	}
	return nil
}

// probeField checks, before a watch by label starts again, whether the field has
// become selectable. A changed CRD ends its watches, and client-go starts them again
// without a relist.
func (s *source) probeField(ctx context.Context) error {
	s.mu.Lock()
	probe := s.requested == Auto && s.inForce == ByLabel && !s.justProbed
	s.justProbed = false
	s.mu.Unlock()
	if !probe {
		return nil
	}
	// Only the kind of the answer matters. The limit keeps older client-go (0.32)
	// from making a WatchList of this list; see noStream.
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := s.list(ctx, s.withSelector(metav1.ListOptions{Limit: 1}, ByField)); err == nil {
		return s.relist(ctx, "spec.clusterId is now a selectable field of the CRD")
	}
	return nil // not selectable yet, or a fault that the watch will meet too
}

// notSelectable reports whether err is the API server's answer to a field selector
// that the resource does not declare.
func notSelectable(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "field label not supported")
}
