package deploy

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// takeovers are the objects that were taken over from deployers of other parent clusters,
// or of other namespaces. That is right when a cluster is registered elsewhere. When the
// other deployer takes an object back, two deploy it, and this one gives in: they would
// overwrite each other without end.
type takeovers struct {
	mu   sync.Mutex // guards from
	from map[identity]string
}

func (t *takeovers) add(id identity, owner string) {
	if owner == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from == nil {
		t.from = map[identity]string{}
	}
	t.from[id.unversioned()] = owner
}

// again reports whether an object has been taken over from this owner before.
func (t *takeovers) again(id identity, owner string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return owner != "" && t.from[id.unversioned()] == owner
}

// foreignOwner returns the owner of an object if it is none of this cluster in this
// parent, and its mark was applied by a deployer. Anybody else who changes the mark has
// not deployed the object.
func (d *Deployer) foreignOwner(live *unstructured.Unstructured) string {
	if live == nil {
		return ""
	}
	owner := ownerOf(live)
	if desc := d.cached(owner); owner == "" || desc != nil && desc.cluster() == d.cluster {
		return ""
	}
	marks, _, _ := unstructured.NestedMap(appliedFields(live), "f:metadata", "f:annotations")
	if _, ok := marks["f:"+ownerAnnotation]; !ok {
		return ""
	}
	return owner
}
