package syncgate

import "k8s.io/apimachinery/pkg/types"

// Object is a ManagedCluster of a gate's cluster, as the gate has read it.
type Object struct {
	types.NamespacedName
	UID        types.UID
	Generation int64
}

// Objects returns the ManagedClusters that decide the gate, by namespace and
// name. A State that is asked for afterwards takes them in at these generations,
// or at later ones: that is how to tell which edit a State answers.
func (g *Gate) Objects() []Object {
	g.hub.mu.RLock()
	defer g.hub.mu.RUnlock()
	objects := make([]Object, 0, len(g.records))
	for _, r := range g.records {
		objects = append(objects, Object{r.key, r.seen.uid, r.seen.generation})
	}
	return objects
}
