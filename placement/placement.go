// Package placement protects paused clusters from a scheduler: applications that run
// there stay bound, and no new ones are bound. It has two pure functions. They work
// on the fields of a Subscription's status and need no type of Clusternet.
//
// Package placement protects only the binding itself. Other changes that a binding
// causes are stopped only by a gate. For example, a feed that is not divided reaches
// every bound cluster.
//
// # Usage
//
// Take the gates of a [github.com/clusternet/syncgate/syncgate.Hub]. Wait for its
// WaitForSync before anything is scheduled: until then the hub knows no cluster, so
// none counts as paused.
//
//	gateOf := func(cluster string) (*syncgate.Gate, bool) {
//		namespace, name, _ := strings.Cut(cluster, "/")
//		return hub.GateOf(namespace, name)
//	}
//	paused := func(cluster string) bool {
//		gate, ok := gateOf(cluster)
//		return ok && gate.Paused()
//	}
//	exists := func(cluster string) bool {
//		_, ok := gateOf(cluster)
//		return ok
//	}
//
// In a filter plugin:
//
//	if !placement.Feasible(cluster, sub.Status.BindingClusters, paused) {
//		return framework.NewStatus(framework.Unschedulable, "the cluster is paused")
//	}
//
// In a bind plugin, call Keep before anything else uses the target (Clusternet also
// writes the number of clusters). Use the same Subscription that is patched
// afterwards:
//
//	binding, err := placement.Keep(
//		placement.Binding{Clusters: sub.Status.BindingClusters, Replicas: sub.Status.Replicas},
//		placement.Binding{Clusters: target.BindingClusters, Replicas: target.Replicas},
//		paused, exists)
//	if err != nil {
//		return framework.AsStatus(err)
//	}
//
// GateOf does not know a cluster without a ManagedCluster of that name, without a
// cluster ID, or not yet observed by the hub. For such a cluster both functions return
// false, and the scheduler decides. A cluster whose state cannot be read is paused, see
// syncgate.State.
//
// # Why a filter is not enough
//
// If a filter plugin rejects a paused cluster, Clusternet deletes the applications
// there. The clusters that pass the filter replace the binding of a Subscription, and
// an application is deleted from each bound cluster that is not among them. When no
// cluster passes, the new binding is empty, and the application is deleted everywhere.
// A taint has the same effect.
//
// So a filter must let a paused cluster pass where it is bound: [Feasible]. But the
// other steps of scheduling do not know pauses. A paused cluster may no longer
// match the affinity, or get a taint. It may lose replicas when an application is scaled
// down or divided again. It may be paused after the filter ran. So the last step
// before the binding is written must correct the result: [Keep].
//
// Keep alone is enough to protect paused clusters. But without the filter, the
// scheduler may plan replicas for a paused cluster. Keep removes them, and no other
// cluster gets them.
//
// # After a pause
//
// Clusternet's scheduler handles a Subscription when the Subscription or its
// FeedInventory changes, and when labels or taints of a cluster change. A change of
// syncPaused is none of these. For a pause this is right: nothing must move, and
// Keep corrects what is scheduled later.
//
// After a resume something must make the scheduler handle the Subscriptions that are
// bound to the cluster or meant for it. A callback of syncgate.Gate.OnChange can
// queue them. The scheduler skips a Subscription that divides replicas while
// status.specHash is the hash of its spec and the replicas add up to what the feeds
// want. So do not write the new hash when Keep has changed the target. For a
// Subscription that replicates, always write it: Clusternet's subscription controller
// uses it to detect changed feeds.
//
// # What is guaranteed
//
// The result of Keep neither binds nor unbinds an existing cluster for which paused
// returned true. It keeps the replicas there if a Binding can express them. The binding
// may still change a cluster that is paused after that call and before the write. Then
// the gate decides whether the change reaches the cluster.
package placement

import (
	"errors"
	"fmt"
	"slices"
)

// Binding has the clusters that a Subscription is bound to, and the replicas there.
type Binding struct {
	// Clusters are names of ManagedClusters, as "namespace/name".
	Clusters []string

	// Replicas has for each feed the replicas in each cluster, in the order of
	// Clusters. A slice of length 0 means that the feed is not divided: each
	// cluster runs it with the replicas of its manifest. An empty map means that no
	// feed is divided.
	Replicas map[string][]int32
}

// Feasible returns whether a pause allows a cluster to be chosen: the cluster is open,
// or it is paused and already bound.
//
// It calls paused once. For a paused cluster it searches bound, which takes linear
// time. It panics when paused is nil.
func Feasible(cluster string, bound []string, paused func(string) bool) bool {
	if paused == nil {
		panic("placement: Feasible was called with a nil function")
	}
	return !paused(cluster) || slices.Contains(bound, cluster)
}

// Keep corrects target, the binding that the scheduler wants, so that paused clusters
// stay as they are in current, the binding that exists:
//
//   - A cluster of current that is paused and exists is kept, with its current
//     replicas. It has its place in target. Kept clusters that are not in target
//     follow after all others, in the order of current.
//   - A paused cluster that is not in current is left out.
//   - Everything else is as in target: clusters, their order, their replicas. This
//     includes paused clusters that do not exist any more.
//
// Replicas never move between a kept cluster and other clusters. So the replicas of a
// feed may add up to more or less than the feed wants, until the scheduler handles the
// Subscription again.
//
// Keep returns an error when a slice in either Binding has a wrong length, and when
// paused or exists is nil. The Binding is then a copy of current, so writing it is
// harmless.
//
// The arguments are not changed, and the result shares no memory with them. Keep
// takes time linear in their size. It calls paused once for each cluster, and then
// exists at most once, on the goroutine of the caller. Keep of the result, with the
// same current, returns the same result.
//
// Some feeds have replicas on one side only:
//
//   - Target has dropped the feed: Replicas of target is not empty and lacks it. The
//     kept clusters keep their replicas, since nobody has removed the feed there. The
//     others have 0.
//   - The feed is new: Replicas of current is not empty and lacks it. It has 0 in the
//     kept clusters.
//   - Target does not divide the feed any more. It stays divided while a kept cluster
//     has replicas of it, since one slice cannot express both. The other clusters
//     keep their current replicas, so that nothing that runs is scaled. Clusters that
//     are not in current have 0.
//   - Only target divides the feed. Until now a kept cluster ran the feed with the
//     replicas of the manifest. No number can express this, and 0 would stop the feed.
//     So it gets the replicas of target. A kept cluster that is not in target has 0.
//
// Each slice of the result has length 0 or the length of Clusters. Keep does not
// check numbers and names, so negative or empty ones stay. The result repeats a
// cluster that target repeats. Where current repeats a cluster, its last place counts,
// as in Clusternet's deployer.
func Keep(current, target Binding, paused, exists func(string) bool) (Binding, error) {
	if err := check(current, target, paused, exists); err != nil {
		return current.clone(), fmt.Errorf("placement: keep paused clusters: %w; nothing is changed", err)
	}
	clusters, from := choose(current.Clusters, target.Clusters, paused, exists)
	result := Binding{Clusters: clusters}
	if target.Replicas != nil {
		result.Replicas = make(map[string][]int32, len(target.Replicas))
	}
	for name := range target.Replicas {
		result.Replicas[name] = from.replicas(current.feed(name), target.feed(name))
	}
	for name := range current.Replicas {
		if _, ok := target.Replicas[name]; ok {
			continue
		}
		if replicas := from.replicas(current.feed(name), target.feed(name)); len(replicas) > 0 {
			if result.Replicas == nil {
				result.Replicas = make(map[string][]int32, len(current.Replicas))
			}
			result.Replicas[name] = replicas
		}
	}
	return result, nil
}

func check(current, target Binding, paused, exists func(string) bool) error {
	switch {
	case paused == nil:
		return errors.New("the function paused is nil; pass one that uses the gates, see Hub.GateOf")
	case exists == nil:
		return errors.New("the function exists is nil; pass one that knows the ManagedClusters, see Hub.GateOf")
	}
	if err := current.check(); err != nil {
		return fmt.Errorf("the current binding has %w; correct or clear the status of the Subscription", err)
	}
	if err := target.check(); err != nil {
		return fmt.Errorf("the target binding has %w; correct the plugin that assigns the replicas", err)
	}
	return nil
}

// check returns an error for the first feed, by name, with a wrong number of replicas.
func (b Binding) check() error {
	wrong, found := "", false
	for name, replicas := range b.Replicas {
		if len(replicas) != 0 && len(replicas) != len(b.Clusters) && (!found || name < wrong) {
			wrong, found = name, true
		}
	}
	if !found {
		return nil
	}
	return fmt.Errorf("%d replicas of feed %q for %d clusters, where none or one for each is possible",
		len(b.Replicas[wrong]), wrong, len(b.Clusters))
}

func (b Binding) clone() Binding {
	out := Binding{Clusters: slices.Clone(b.Clusters)}
	if b.Replicas != nil {
		out.Replicas = make(map[string][]int32, len(b.Replicas))
	}
	for name, replicas := range b.Replicas {
		out.Replicas[name] = slices.Clone(replicas)
	}
	return out
}

// feed is one feed in a Binding: divided by numbers, not divided, or absent.
type feed struct {
	numbers []int32
	absent  bool
}

func (b Binding) feed(name string) feed {
	numbers, ok := b.Replicas[name]
	return feed{numbers: numbers, absent: !ok && len(b.Replicas) > 0}
}

// origin has the places of a cluster of the result in the current and in the target
// binding; negative: none.
type origin struct {
	current, target int32
	kept            bool
}

type origins struct {
	of         []origin // in the order of the result
	keeps      bool     // at least one is kept
	fromTarget bool     // at least one is in target
}

// choose returns the clusters of the result and their origins.
func choose(current, target []string, paused, exists func(string) bool) ([]string, origins) {
	const fresh, leftOut = -1, -2 // places of clusters that are not in current

	place := make(map[string]int32, len(current)) // the last place in current
	for i, cluster := range current {
		place[cluster] = int32(i)
	}
	repeats := len(place) < len(current)
	kept := make([]bool, len(current))
	keeps := 0
	for i, cluster := range current {
		if repeats && place[cluster] != int32(i) {
			continue
		}
		if paused(cluster) && exists(cluster) {
			kept[i] = true
			keeps++
		}
	}

	clusters := make([]string, 0, len(target)+keeps)
	from := origins{of: make([]origin, 0, len(target)+keeps), keeps: keeps > 0}
	placed := make([]bool, len(current))
	for j, cluster := range target {
		i, known := place[cluster]
		if !known {
			i = fresh
			if paused(cluster) {
				i = leftOut
			}
			place[cluster] = i // target may repeat it
		}
		if i == leftOut {
			continue
		}
		at := origin{current: i, target: int32(j)}
		if i >= 0 {
			at.kept = kept[i]
			placed[i] = true
		}
		clusters, from.of = append(clusters, cluster), append(from.of, at)
	}
	from.fromTarget = len(clusters) > 0
	for i, cluster := range current {
		if kept[i] && !placed[i] {
			clusters = append(clusters, cluster)
			from.of = append(from.of, origin{current: int32(i), target: -1, kept: true})
		}
	}
	if len(clusters) == 0 && target == nil {
		clusters = nil
	}
	return clusters, from
}

// replicas returns the numbers of a feed in the order of the result. When the feed is
// not divided, it returns the empty or nil slice of target.
func (o *origins) replicas(current, target feed) []int32 {
	divided := len(current.numbers) > 0 && o.keeps
	if len(target.numbers) > 0 {
		// When all clusters of target were left out, its numbers have no cluster.
		// They must not stop a feed that is not divided in the kept clusters.
		divided = divided || o.fromTarget || current.absent
	}
	if !divided {
		return slices.Clone(target.numbers[:0])
	}
	out := make([]int32, len(o.of))
	for n, from := range o.of {
		if from.kept {
			out[n] = number(current, from.current, target, from.target)
		} else {
			out[n] = number(target, from.target, current, from.current)
		}
	}
	return out
}

// number returns the replicas of a cluster: those of first, where the cluster has
// place i, or, when first does not divide the feed, those of second at place j.
func number(first feed, i int32, second feed, j int32) int32 {
	switch {
	case len(first.numbers) > 0:
		return first.numbers[i]
	case !first.absent && j >= 0 && len(second.numbers) > 0:
		return second.numbers[j]
	default:
		return 0
	}
}
