// Package api names the parts of a ManagedCluster that syncgate reads. The
// informer trims objects to these and the gate decides by them, so both must
// mean the same.
package api

import (
	"errors"
	"reflect"
	"regexp"
	"strings"

	clusterapi "github.com/clusternet/clusternet/pkg/apis/clusters/v1beta1"
	"github.com/clusternet/clusternet/pkg/known"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is the ManagedCluster resource.
var Resource = schema.GroupVersionResource{
	Group:    clusterapi.SchemeGroupVersion.Group,
	Version:  clusterapi.SchemeGroupVersion.Version,
	Resource: "managedclusters",
}

const (
	// ClusterIDLabel is the label by which an object is selected where the CRD
	// does not let spec.clusterId be selected.
	ClusterIDLabel = known.ClusterIDLabel

	// ClusterIDField is the field selector of spec.clusterId.
	ClusterIDField = "spec.clusterId"

	// HoldPrefix begins the name of each annotation that holds a cluster.
	HoldPrefix = "hold.clusters.clusternet.io/"

	// ConditionType is the condition that acknowledges a pause.
	ConditionType = "SyncPaused"

	// PartyPrefix begins the type of each condition in which a party reports.
	PartyPrefix = "drained.clusters.clusternet.io/"
)

// ErrRecheck is wrapped by the error of an informer that follows the server and can't recheck
// what it read under an older schema of the CRD.
var ErrRecheck = errors.New("recheck after a watch ended early")

// IsNil reports whether it is nil or holds a nil pointer.
func IsNil(it any) bool {
	v := reflect.ValueOf(it)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Party returns the party whose condition has this type, and whether it is one.
func Party(conditionType string) (string, bool) {
	return strings.CutPrefix(conditionType, PartyPrefix)
}

// HoldOwner returns the owner of the hold that the annotation called name is,
// and whether it is one.
func HoldOwner(name string) (string, bool) {
	return strings.CutPrefix(name, HoldPrefix)
}

// misnamed matches, in lower case, what people write for HoldPrefix by mistake: the
// plural of one part or the singular of the other, no owner, parts that are missing,
// added or exchanged.
var misnamed = regexp.MustCompile(`^(holds?[._-]?((managed)?clusters?\.)?clusternet\.io(/.*)?|(managed)?clusters?\.clusternet\.io/holds?([._-].*)?)$`)

// IsReleased reports whether the value of a hold annotation releases the hold.
func IsReleased(value any) bool { return value == "false" }

// IsNearMiss reports whether the annotation called name looks like a hold and is none.
func IsNearMiss(name string) bool {
	lower := strings.ToLower(name)
	if !strings.Contains(lower, "hold") { // what most annotations are, at little cost
		return false
	}
	_, isHold := HoldOwner(name)
	return !isHold && misnamed.MatchString(lower)
}
