package placement_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clusternet/syncgate/placement"
)

// These tests compare the results of Keep with its contract, one sentence after the
// other, for random situations.

func TestKeepOfAnything(t *testing.T) {
	const cases = 50_000
	rng := rand.New(rand.NewPCG(1, 2))
	count := map[string]int{}
	data := make([]byte, 120)
	for i := range cases {
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		s := situationOf(data)
		countCases(s, count)
		if verify(t, s); t.Failed() {
			t.Fatalf("in case %d", i)
		}
	}
	for _, what := range []string{
		"wrong length", "open", "deleted", "kept and wanted", "kept and dropped", "not bound", "feed dropped",
		"new feed", "divided on both sides", "divided in current", "divided in target",
	} {
		if count[what] < cases/100 {
			t.Errorf("%q occurred %d times; want %d", what, count[what], cases/100)
		}
	}
}

// FuzzKeep finds situations that random data does not.
func FuzzKeep(f *testing.F) {
	f.Add([]byte{})
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		data := make([]byte, 60)
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { verify(t, situationOf(data)) })
}

// result is a call of Keep and its result.
type result struct {
	*testing.T
	situation
	got placement.Binding
	err error

	calledPaused, calledExists map[string]int
}

// keep calls Keep. It checks that the arguments are not changed, and that they share
// no memory with the result.
func keep(t *testing.T, s situation) *result {
	t.Helper()
	r := &result{T: t, situation: s, calledPaused: map[string]int{}, calledExists: map[string]int{}}
	current, target := copied(s.current), copied(s.target)
	got, err := placement.Keep(current, target, r.pausedOf, r.existsOf)
	r.got, r.err = copied(got), err
	r.same("current after Keep", s.current, current)
	r.same("target after Keep", s.target, target)
	spoil(got)
	r.same("current after a change of the result", s.current, current)
	r.same("target after a change of the result", s.target, target)
	return r
}

func (r *result) pausedOf(cluster string) bool { r.calledPaused[cluster]++; return r.paused[cluster] }

func (r *result) existsOf(cluster string) bool { r.calledExists[cluster]++; return r.exists[cluster] }

func (r *result) same(what string, want, got any) {
	r.Helper()
	if !reflect.DeepEqual(want, got) {
		r.Errorf("%s = %+v; want %+v", what, got, want)
	}
}

// bound returns whether current has the cluster.
func (r *result) bound(cluster string) bool { return slices.Contains(r.current.Clusters, cluster) }

func (r *result) kept(cluster string) bool {
	return r.bound(cluster) && r.paused[cluster] && r.exists[cluster]
}

// verify calls Keep and checks the result.
func verify(t *testing.T, s situation) {
	t.Helper()
	r := keep(t, s)
	defer func() {
		if t.Failed() {
			t.Logf("paused %v, exists %v\nKeep(%+v,\n     %+v)\n   = %+v, %v", s.paused, s.exists, s.current, s.target, r.got, r.err)
		}
	}()
	if wrongLength(s.current) || wrongLength(s.target) {
		if r.err == nil {
			t.Error("Keep = nil; want an error")
		}
		r.same("Keep with an error", s.current, r.got)
		return
	}
	if r.err != nil {
		t.Errorf("Keep = %v", r.err)
		return
	}
	r.checkCalls()
	clusters, places := r.wantClusters()
	if strings.Join(clusters, " ") != strings.Join(r.got.Clusters, " ") {
		t.Errorf("Clusters = %v; want %v", r.got.Clusters, clusters)
		return
	}
	for feed := range r.feeds() {
		if n := len(r.got.Replicas[feed]); n != 0 && n != len(clusters) {
			t.Errorf("%d replicas of feed %q; want none, or %d", n, feed, len(clusters))
			return
		}
		r.checkDivided(feed, len(places))
		for i, cluster := range clusters {
			r.checkReplicas(feed, cluster, i, places)
		}
	}
	again, err := placement.Keep(s.current, r.got, r.pausedOf, r.existsOf)
	if err != nil {
		t.Errorf("Keep of the result = %v", err)
	}
	r.same("Keep of the result", r.got, again)
}

// checkCalls checks how often Keep has called its functions.
func (r *result) checkCalls() {
	for cluster, n := range r.calledPaused {
		if n > 1 {
			r.Errorf("paused(%s) was called %d times; want once", cluster, n)
		}
	}
	for cluster, n := range r.calledExists {
		if n > 1 || !r.paused[cluster] || !r.bound(cluster) {
			r.Errorf("exists(%s) was called %d times; want at most once, and for paused clusters of current only", cluster, n)
		}
	}
}

// wantClusters returns the clusters that the result must have, and the places in
// target of those that come from there. They are the first ones.
func (r *result) wantClusters() (clusters []string, places []int) {
	for i, cluster := range r.target.Clusters {
		if r.bound(cluster) || !r.paused[cluster] {
			clusters, places = append(clusters, cluster), append(places, i)
		}
	}
	for i, cluster := range r.current.Clusters {
		if r.kept(cluster) && !slices.Contains(r.current.Clusters[i+1:], cluster) && !slices.Contains(r.target.Clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	return clusters, places
}

// feeds returns the names of all feeds.
func (r *result) feeds() map[string]bool {
	feeds := map[string]bool{}
	for _, b := range []placement.Binding{r.current, r.target, r.got} {
		for feed := range b.Replicas {
			feeds[feed] = true
		}
	}
	return feeds
}

// lacks returns whether b has feeds, and feed is not among them.
func lacks(b placement.Binding, feed string) bool {
	_, ok := b.Replicas[feed]
	return !ok && len(b.Replicas) > 0
}

// checkDivided checks whether the result has a feed and divides it. fromTarget is the
// number of clusters that come from target.
func (r *result) checkDivided(feed string, fromTarget int) {
	keeps := slices.ContainsFunc(r.got.Clusters, r.kept)
	current, target := r.current.Replicas[feed], r.target.Replicas[feed]
	replicas, has := r.got.Replicas[feed]
	_, wanted := r.target.Replicas[feed]
	if wanted && !has {
		r.Errorf("feed %q of target is missing", feed)
	}
	if !wanted && has && (len(replicas) == 0 || len(current) == 0 || !keeps) {
		r.Errorf("feed %q is in the result without a kept cluster that has it", feed)
	}
	if len(target) > 0 && fromTarget > 0 && len(replicas) == 0 {
		r.Errorf("feed %q is not divided; want it as in target", feed)
	}
	if fromTarget == 0 && !lacks(r.current, feed) && len(current) == 0 && len(replicas) > 0 {
		r.Errorf("feed %q is divided for clusters that are left out", feed)
	}
	if len(target) == 0 && len(current) == 0 && len(replicas) > 0 {
		r.Errorf("feed %q is divided, though neither side divides it", feed)
	}
	if !keeps && wanted && len(target) == 0 && (replicas == nil) != (target == nil) {
		r.Errorf("feed %q = %#v; want it as in target", feed, replicas)
	}
}

// checkReplicas checks the replicas of a feed in the cluster at place i of the result.
func (r *result) checkReplicas(feed, cluster string, i int, places []int) {
	replicas := r.got.Replicas[feed]
	now, hasNow := at(r.current, feed, cluster)
	_, isWanted := at(r.target, feed, cluster)
	var want int32
	switch {
	case r.kept(cluster) && hasNow:
		want = now
		if len(replicas) == 0 {
			r.Errorf("%s has lost its replicas of feed %q", cluster, feed)
		}
	case len(replicas) == 0:
	case isWanted && (!r.kept(cluster) || !lacks(r.current, feed)):
		want = r.target.Replicas[feed][places[i]]
	case !r.kept(cluster) && !lacks(r.target, feed):
		want = now
	}
	if len(replicas) > 0 && replicas[i] != want {
		r.Errorf("%s has %d of feed %q; want %d", cluster, replicas[i], feed, want)
	}
}
