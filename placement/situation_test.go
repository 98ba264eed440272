package placement_test

import (
	"fmt"
	"slices"

	"github.com/clusternet/syncgate/placement"
)

// situation has the arguments of Keep.
type situation struct {
	current, target placement.Binding
	paused, exists  map[string]bool
}

// situationOf makes a situation of any data. Each byte is one choice; missing bytes
// are 0.
func situationOf(data []byte) situation {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		choice := int(data[0]) % n
		data = data[1:]
		return choice
	}
	s := situation{paused: map[string]bool{}, exists: map[string]bool{}}
	var names []string
	for i := range 6 {
		name := fmt.Sprintf("ns/%c", 'a'+i)
		names = append(names, name)
		s.paused[name] = next(2) == 1
		s.exists[name] = next(4) != 3
	}
	s.current, s.target = bindingOf(names, next), bindingOf(names, next)
	return s
}

// bindingOf makes a Binding of some of the clusters.
func bindingOf(clusters []string, next func(int) int) placement.Binding {
	var b placement.Binding
	repeats := next(5) == 1
	for range next(7) {
		if name := clusters[next(len(clusters))]; repeats || !slices.Contains(b.Clusters, name) {
			b.Clusters = append(b.Clusters, name)
		}
	}
	if b.Clusters == nil && next(2) == 1 {
		b.Clusters = []string{}
	}
	feeds := next(6) // 0: no Replicas
	if feeds > 0 {
		b.Replicas = map[string][]int32{}
	}
	for i := range max(0, feeds-1) {
		length := len(b.Clusters)
		var replicas []int32
		switch next(16) {
		case 0, 1, 2:
			length = 0
		case 3, 4:
			continue
		case 5:
			replicas, length = []int32{}, 0
		case 6:
			length += 1 - 2*next(2)
		}
		for range length {
			replicas = append(replicas, int32(next(10)-1))
		}
		b.Replicas[[]string{"", "db", "settings", "web"}[i]] = replicas
	}
	return b
}

// at returns the replicas of a feed in a cluster, the last number when the cluster is
// repeated. ok is false when b does not have the cluster or does not divide the feed.
func at(b placement.Binding, feed, cluster string) (n int32, ok bool) {
	for i := range b.Replicas[feed] {
		if b.Clusters[i] == cluster {
			n, ok = b.Replicas[feed][i], true
		}
	}
	return n, ok
}

func wrongLength(b placement.Binding) bool {
	for _, replicas := range b.Replicas {
		if len(replicas) > 0 && len(replicas) != len(b.Clusters) {
			return true
		}
	}
	return false
}

// countCases counts the cases that a situation has. A property that holds because its
// case never occurs proves nothing.
func countCases(s situation, count map[string]int) {
	if wrongLength(s.current) || wrongLength(s.target) {
		count["wrong length"]++
		return
	}
	for _, cluster := range s.current.Clusters {
		wanted := slices.Contains(s.target.Clusters, cluster)
		switch {
		case !s.paused[cluster]:
			count["open"]++
		case !s.exists[cluster]:
			count["deleted"]++
		case wanted:
			count["kept and wanted"]++
		default:
			count["kept and dropped"]++
		}
		if !s.paused[cluster] || !s.exists[cluster] {
			continue
		}
		for feed, replicas := range s.current.Replicas {
			wanted, ok := s.target.Replicas[feed]
			switch {
			case !ok:
				count["feed dropped"]++
			case len(replicas) > 0 && len(wanted) > 0:
				count["divided on both sides"]++
			case len(replicas) > 0:
				count["divided in current"]++
			case len(wanted) > 0:
				count["divided in target"]++
			}
		}
		for feed := range s.target.Replicas {
			if _, ok := s.current.Replicas[feed]; !ok && len(s.current.Replicas) > 0 {
				count["new feed"]++
			}
		}
	}
	for _, cluster := range s.target.Clusters {
		if s.paused[cluster] && !slices.Contains(s.current.Clusters, cluster) {
			count["not bound"]++
		}
	}
}
