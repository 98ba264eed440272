package testutil

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusternet/syncgate/internal/api"
)

// selector tells whether a list or watch has an object. It is false for nil.
type selector func(*unstructured.Unstructured) bool

// SetSelectable changes whether the CRD declares spec.clusterId as a selectable
// field, and ends all watches.
func (s *APIServer) SetSelectable(selectable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selectable = selectable
	s.appendLocked(entry{end: true})
}

// selector returns the selector of a request. Its errors are those of a real
// server.
func (s *APIServer) selector(req Request) (selector, error) {
	byLabel, err := labels.Parse(req.Query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(req.Query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	supported := map[string]bool{"metadata.name": true, "metadata.namespace": true, api.ClusterIDField: s.selectable}
	s.mu.Unlock()
	for _, term := range byField.Requirements() {
		if !supported[term.Field] {
			return nil, apierrors.NewBadRequest("field label not supported: " + term.Field)
		}
	}
	if req.Verb == WatchList && req.Query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) {
		return nil, apierrors.NewBadRequest("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	}
	return func(obj *unstructured.Unstructured) bool {
		if obj == nil || req.Namespace != "" && obj.GetNamespace() != req.Namespace {
			return false
		}
		clusterID, _, _ := unstructured.NestedString(obj.Object, "spec", "clusterId")
		return byLabel.Matches(labels.Set(obj.GetLabels())) && byField.Matches(fields.Set{
			"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace(), api.ClusterIDField: clusterID,
		})
	}, nil
}
