package agent

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The pattern of the CRD has no anchors, so a UUID may stand in any text.
func TestLeaseNames(t *testing.T) {
	const id = "0b1c2d3e-1111-4a6b-8c7d-000000000001"
	names := map[string]types.UID{}
	for _, clusterID := range []types.UID{
		id, types.UID(strings.ToUpper(id)), id + ".", "-" + id, id + "/" + id, types.UID(strings.Repeat("a", 300)) + id,
		types.UID(strings.Repeat("a", 301)) + id, "x" + id, "X" + id,
	} {
		name := leaseName(clusterID)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("leaseName(%q) = %q: %v", clusterID, name, problems)
		}
		if other, ok := names[name]; ok {
			t.Errorf("%q and %q have the same name %q", clusterID, other, name)
		}
		names[name] = clusterID
	}
	if got := leaseName(id); got != "syncgate-agent-"+id {
		t.Errorf("leaseName(%q) = %q; want the ID in it", id, got)
	}
}
