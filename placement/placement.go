// Package placement keeps a scheduler's hands off paused clusters: what runs there
// stays bound to them, and nothing new is bound to them. It is two pure functions;
// they work on what a Subscription of Clusternet has in its status, and need no
// type of Clusternet. What a binding changes besides is for gates to stop: feeds
// that are not divided reach every bound cluster.
//
// # Why a filter is not enough
//
// A filter plugin that rejects paused clusters does not lock them down, it empties
// them: the binding of a Subscription is overwritten with the clusters that passed,
// and what runs in a bound cluster that is not among them is deleted. When none
// passes, an empty binding is written and the application is deleted everywhere.
// A taint does just that, and it is what people try first.
//
// So a filter has to let a paused cluster pass where it is bound: [Feasible]. But
// what else takes part in scheduling knows nothing of pauses. A paused cluster may
// stop matching the affinity or be tainted, lose replicas when an application is
// scaled down or divided anew, or be paused after it was filtered. So the last step
// before the binding is written has to put right what came out: [Keep]. It alone
// suffices for lockdown. Without the filter, though, the scheduler goes on dividing
// replicas among clusters that don't get them.
//
// # Usage
//
// With the gates of a [github.com/clusternet/syncgate/syncgate.Hub], whose WaitForSync has
// returned before anything is scheduled (until then it knows no cluster, so none
// would be paused):
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
// In a bind plugin, before anything is made of the target (Clusternet also writes
// how many clusters there are), and with the Subscription that is going to be
// patched:
//
//	binding, err := placement.Keep(
//		placement.Binding{Clusters: sub.Status.BindingClusters, Replicas: sub.Status.Replicas},
//		placement.Binding{Clusters: target.BindingClusters, Replicas: target.Replicas},
//		paused, exists)
//	if err != nil {
//		return framework.AsStatus(err)
//	}
//
// A cluster is unknown to GateOf while there is no ManagedCluster of that name with
// a cluster ID, or none that the hub has seen: it is neither paused nor exists, and
// is left to the scheduler. One whose state can't be read is paused, see
// syncgate.State.
//
// # After a pause
//
// Clusternet's scheduler looks at a Subscription when the Subscription changes or
// its FeedInventory does, and when labels or taints of a cluster do. A change of
// syncPaused is none of these. For a pause that is right: nothing is to move, and
// what is scheduled later is put right when it is bound. After a resume somebody
// has to tell the scheduler to look again, for example a callback of
// syncgate.Gate.OnChange that queues the Subscriptions bound to the cluster, or
// meant for it. One that divides is passed over all the same while status.specHash
// is that of its spec and the replicas add up to what the feeds want; so leave its
// hash as it was when Keep has changed the target. That of a replicated one has to be
// written always, since it is how others learn that its feeds have changed.
//
// # What is guaranteed
//
// That a binding leaves alone the clusters that were paused when Keep asked. One
// that is paused between that and the write may still be changed by the binding;
// whether it reaches the cluster, its gate decides.
//
// # Speed
//
// Measure a binding of 10,000 clusters by
//
//	go test -run '^$' -bench . github.com/clusternet/syncgate/placement
package placement

import (
	"errors"
	"fmt"
	"slices"
)

// Binding is where a Subscription is bound to, and with how many replicas.
type Binding struct {
	// Clusters are names of ManagedClusters, as "namespace/name".
	Clusters []string

	// Replicas has for each feed the replicas in each cluster, in the order of
	// Clusters. A slice of length 0 says that the feed is not divided: it runs
	// everywhere as its manifest says. No Replicas at all say so of every feed.
	Replicas map[string][]int32
}

// Feasible tells whether a cluster may be chosen, as far as pauses go: unless it is
// paused, or where it is bound already. It calls paused once. To look for a paused
// cluster in bound takes as long as bound is; for others it is not read. It panics
// when paused is nil.
func Feasible(cluster string, bound []string, paused func(string) bool) bool {
	if paused == nil {
		panic("placement: Feasible was called with a nil function")
	}
	return !paused(cluster) || slices.Contains(bound, cluster)
}

// Keep returns target, which is what the scheduler wants, corrected so that paused
// clusters stay as they are in current, which is what is bound:
//
//   - A cluster of current that is paused and exists is kept, with the replicas it
//     has there. It has the place that target gives it; those that target dropped
//     follow after all others, in the order of current.
//   - A cluster that is paused and not in current is left out.
//   - All else is as in target: clusters, their order, their replicas. That goes
//     for a paused cluster that does not exist any more, too.
//
// Replicas that a kept cluster has are never given to another, nor taken from one
// to make up for them. So they may add up to more or less than the feed wants,
// until the scheduler looks again.
//
// Not every feed has replicas on both sides:
//
//   - A feed that target has no more keeps its replicas in the kept clusters, since
//     nobody has removed it from there. The others have 0. That is one for which
//     target, though it has Replicas, has none.
//   - A new feed has 0 in the kept clusters. Likewise, it is one for which
//     current, though it has Replicas, has none.
//   - A feed that target divides no more stays divided while a kept cluster has
//     replicas of it, for a slice can't say both. The others have what they have in
//     current, so that nothing that runs is scaled; those that are not there have 0.
//   - A feed that is not divided in current, but in target, has in a kept cluster
//     what target says: it runs there as its manifest says, which no number does,
//     and 0 would stop it. Where target has dropped the cluster it is 0.
//
// Each slice of the result has length 0 or that of Clusters. What numbers and names
// mean is not looked at, so negative or empty ones stay. A cluster that target
// lists twice is listed twice; of one that current lists twice the last place
// counts, as it does for Clusternet's deployer.
//
// Keep returns an error when a slice of either Binding has another length, and when
// paused or exists is nil. The Binding then is a copy of current: were it written in
// spite of the error, nothing would change.
//
// The arguments are not changed, and the result shares no memory with them. Keep
// takes time linear in their size. It calls paused once for each cluster, and then
// exists at most once, from the goroutine of the caller. To keep a result once more,
// for the same current, changes nothing.
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
		return errors.New("the function paused is nil; pass one that asks the gates, see Hub.GateOf")
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

// check names the first feed, by name, whose replicas are of a wrong length.
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

// feed is what a Binding says of a feed: it has numbers, or is not divided, or is
// none of its feeds.
type feed struct {
	numbers []int32
	absent  bool
}

func (b Binding) feed(name string) feed {
	numbers, ok := b.Replicas[name]
	return feed{numbers: numbers, absent: !ok && len(b.Replicas) > 0}
}

// origin is where a cluster of the result comes from: its places in the current
// and in the target binding, -1 where it has none.
type origin struct {
	current, target int32
	kept            bool
}

type origins struct {
	of         []origin // in the order of the result
	keeps      bool     // at least one is kept
	fromTarget bool     // at least one is in target
}

// choose returns the clusters of the result.
func choose(current, target []string, paused, exists func(string) bool) ([]string, origins) {
	const fresh, leftOut = -1, -2 // the places of what is not in current

	place := make(map[string]int32, len(current)) // the last one
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

// replicas returns the numbers of a feed in the order of the result, or, of length
// 0, what target says where it is not divided.
func (o *origins) replicas(current, target feed) []int32 {
	divided := len(current.numbers) > 0 && o.keeps
	if len(target.numbers) > 0 {
		// Where all clusters of target were left out, its numbers stand for nobody,
		// and must not stop what is not divided in the kept ones.
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

// number is what first says of the cluster at its place i; where it does not divide
// the feed, what second says.
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
