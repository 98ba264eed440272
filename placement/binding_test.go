package placement_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/clusternet/syncgate/placement"
)

// bind returns a Binding of clusters and feeds, such as bind("p q", "web 1 2",
// "settings"). Without feeds it has no Replicas.
func bind(clusters string, feeds ...string) placement.Binding {
	b := placement.Binding{Clusters: strings.Fields(clusters)}
	for _, feed := range feeds {
		if b.Replicas == nil {
			b.Replicas = map[string][]int32{}
		}
		fields := strings.Fields(feed)
		b.Replicas[fields[0]] = []int32{}
		for _, field := range fields[1:] {
			n, err := strconv.ParseInt(field, 10, 32)
			if err != nil {
				panic(err)
			}
			b.Replicas[fields[0]] = append(b.Replicas[fields[0]], int32(n))
		}
	}
	return b
}

// among returns a function that is true for each of names.
func among(names string) func(string) bool {
	return func(name string) bool { return slices.Contains(strings.Fields(names), name) }
}

// copied returns a deep copy of b. Nil stays nil.
func copied(b placement.Binding) placement.Binding {
	var out placement.Binding
	if b.Clusters != nil {
		out.Clusters = append([]string{}, b.Clusters...)
	}
	if b.Replicas != nil {
		out.Replicas = map[string][]int32{}
		for feed, replicas := range b.Replicas {
			if replicas != nil {
				replicas = append([]int32{}, replicas...)
			}
			out.Replicas[feed] = replicas
		}
	}
	return out
}

// spoil overwrites all memory that b refers to.
func spoil(b placement.Binding) {
	all := b.Clusters[:cap(b.Clusters)]
	for i := range all {
		all[i] = "spoilt"
	}
	for feed, replicas := range b.Replicas {
		all := replicas[:cap(replicas)]
		for i := range all {
			all[i] = -99
		}
		delete(b.Replicas, feed)
	}
	if b.Replicas != nil {
		b.Replicas["spoilt"] = nil
	}
}
