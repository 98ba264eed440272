package placement_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/placement"
	"github.com/clusternet/syncgate/syncgate"
)

// bind returns a Binding of clusters and feeds, such as bind("p q", "web 1 2",
// "settings"). Where there are no feeds it has no Replicas.
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

// among returns a function that is true for names.
func among(names string) func(string) bool {
	return func(name string) bool { return slices.Contains(strings.Fields(names), name) }
}

func TestFeasible(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster, bound, paused string
		want                   bool
	}{
		"open, bound":                   {"p", "p q", "", true},
		"open, not bound":               {"p", "q", "", true},
		"open, nothing bound":           {"p", "", "q", true},
		"paused, bound":                 {"p", "q p", "p", true},
		"paused, not bound":             {"p", "q", "p", false},
		"paused, nothing bound":         {"p", "", "p", false},
		"paused, another namespace":     {"a/p", "b/p", "a/p", false},
		"paused, bound beside a prefix": {"a/p", "a/pp", "a/p", false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			paused := func(cluster string) bool { asked++; return among(tc.paused)(cluster) }
			if got := placement.Feasible(tc.cluster, strings.Fields(tc.bound), paused); got != tc.want {
				t.Errorf("Feasible(%s, [%s]) = %v; want %v", tc.cluster, tc.bound, got, tc.want)
			}
			if asked != 1 {
				t.Errorf("paused was called %d times; want once", asked)
			}
		})
	}
}

func TestFeasiblePanicsWithoutAFunction(t *testing.T) {
	defer func() {
		if r := recover(); !strings.Contains(fmt.Sprint(r), "placement: Feasible") {
			t.Errorf("Feasible panics with %v; want a message of this package", r)
		}
	}()
	placement.Feasible("p", nil, nil)
}

// In these p and pp are paused, x was paused and is deleted; the others are open.
func TestKeep(t *testing.T) {
	for name, tc := range map[string]struct {
		current, target, want placement.Binding
	}{
		// Replication has no Replicas.
		"replication: nothing paused":             {bind("a b"), bind("b c"), bind("b c")},
		"replication: dropped":                    {bind("a p"), bind("a b"), bind("a b p")},
		"replication: wanted":                     {bind("a p"), bind("p a b"), bind("p a b")},
		"replication: not bound":                  {bind("a"), bind("pp a p b"), bind("a b")},
		"replication: nothing bound":              {bind(""), bind("p a"), bind("a")},
		"replication: all that is wanted, paused": {bind("a"), bind("p pp"), bind("")},
		"replication: one dropped, one new":       {bind("a p"), bind("a pp"), bind("a p")},

		"static: divided anew":       {bind("a p", "web 4 2"), bind("a b p", "web 2 2 2"), bind("a b p", "web 2 2 2")},
		"static: another weight":     {bind("a p", "web 4 2"), bind("p a", "web 5 1"), bind("p a", "web 2 1")},
		"static: not bound":          {bind("a", "web 6", "db 1"), bind("a p b", "web 1 2 3", "db 0 1 0"), bind("a b", "web 1 3", "db 0 0")},
		"static: two feeds":          {bind("p a", "web 4 2", "db 1 0"), bind("a p", "web 3 3", "db 1 0"), bind("a p", "web 3 4", "db 1 1")},
		"dynamic: scaled up":         {bind("a p", "web 2 2"), bind("a p b", "web 3 4 5"), bind("a p b", "web 3 2 5")},
		"dynamic: dropped":           {bind("a p pp", "web 2 3 4"), bind("b a", "web 1 8"), bind("b a p pp", "web 1 8 3 4")},
		"scaled down":                {bind("a p", "web 6 6"), bind("a p", "web 1 1"), bind("a p", "web 1 6")},
		"scaled down to nothing":     {bind("a p", "web 6 6"), bind("a p", "web 0 0"), bind("a p", "web 0 6")},
		"scaled down, had nothing":   {bind("a p", "web 6 0"), bind("a p", "web 3 3"), bind("a p", "web 3 0")},
		"numbers are not looked at":  {bind("a p", "web -1 -2"), bind("a p", "web -3 -4"), bind("a p", "web -3 -2")},
		"zero feasible":              {bind("a p b pp", "web 1 2 3 4", "settings"), bind(""), bind("p pp", "web 2 4")},
		"zero feasible: replication": {bind("a p"), placement.Binding{}, bind("p")},
		"zero feasible: none paused": {bind("a", "web 1"), placement.Binding{}, placement.Binding{}},
		"affinity lost":              {bind("p a", "web 2 4"), bind("a", "web 6"), bind("a p", "web 6 2")},
		"affinity lost, others left": {bind("pp a p", "web 1 2 3"), bind("b p", "web 3 3"), bind("b p pp", "web 3 3 1")},

		"cluster deleted":                        {bind("a x p", "web 1 2 3"), bind("a", "web 6"), bind("a p", "web 6 3")},
		"cluster deleted, the scheduler lags":    {bind("a x", "web 1 2"), bind("a x", "web 0 3"), bind("a x", "web 0 3")},
		"cluster deleted and not bound":          {bind("a"), bind("a x"), bind("a")},
		"cluster deleted, it was the only one":   {bind("x", "web 1"), bind(""), bind("")},
		"cluster deleted, with a feed that ends": {bind("a x", "web 1 2", "db 1 1"), bind("a x", "web 2 2"), bind("a x", "web 2 2")},

		"new feed":                     {bind("a p", "web 1 2"), bind("a p", "web 1 2", "db 3 4"), bind("a p", "web 1 2", "db 3 0")},
		"new feed, dropped":            {bind("a p", "web 1 2"), bind("a", "web 3", "db 4"), bind("a p", "web 3 2", "db 4 0")},
		"new feed, not divided":        {bind("a p", "web 1 2"), bind("a p", "web 1 2", "settings"), bind("a p", "web 1 2", "settings")},
		"new feed, for what can't be":  {bind("p", "web 2"), bind("pp", "web 1", "db 1"), bind("p", "web 2", "db 0")},
		"feed dropped":                 {bind("a p", "web 1 2", "db 3 4"), bind("a b p", "web 1 1 1"), bind("a b p", "web 1 1 2", "db 0 0 4")},
		"feed dropped, none is paused": {bind("a", "web 1", "db 3"), bind("a", "web 1"), bind("a", "web 1")},
		"feed dropped, not divided":    {bind("a p", "web 1 2", "settings"), bind("a p", "web 1 2"), bind("a p", "web 1 2")},
		"feed renamed":                 {bind("a p", "web 1 2"), bind("a p", "web2 3 4"), bind("a p", "web 0 2", "web2 3 0")},

		"length 0 on both sides":        {bind("a p", "settings"), bind("b", "settings"), bind("b p", "settings")},
		"not divided any more":          {bind("a p", "web 1 2"), bind("a b p", "web"), bind("a b p", "web 1 0 2")},
		"not divided any more, dropped": {bind("a p", "web 1 2"), bind("b a", "web"), bind("b a p", "web 0 1 2")},
		"not divided any more, open":    {bind("a b", "web 1 2"), bind("a b", "web"), bind("a b", "web")},
		"divided, then replicated":      {bind("a p", "web 1 2", "settings"), bind("b a"), bind("b a p", "web 0 1 2")},
		"divided now":                   {bind("a p", "web"), bind("b p", "web 3 4"), bind("b p", "web 3 4")},
		"divided now, dropped":          {bind("a p", "web"), bind("b", "web 7"), bind("b p", "web 7 0")},
		"divided for what can't be":     {bind("p", "web"), bind("pp", "web 7"), bind("p", "web")},
		"replicated, then divided":      {bind("a p"), bind("p a", "web 3 4"), bind("p a", "web 3 4")},
		"divided in nobody":             {bind("", "web"), bind("p", "web 1"), bind("", "web")},

		"target repeats a kept one":   {bind("p", "web 1"), bind("p a p", "web 2 3 4"), bind("p a p", "web 1 3 1")},
		"target repeats an open one":  {bind("p", "web 1"), bind("a a", "web 2 3"), bind("a a p", "web 2 3 1")},
		"target repeats a paused one": {bind("a", "web 1"), bind("p a p", "web 2 3 4"), bind("a", "web 3")},
		"current repeats a kept one":  {bind("p pp p", "web 1 2 3"), bind(""), bind("pp p", "web 2 3")},
		"current repeats a wanted one": {
			bind("p a p", "web 1 2 3"), bind("p", "web 9"), bind("p", "web 3"),
		},
		"a feed without a name": {
			placement.Binding{Clusters: []string{"a", "p"}, Replicas: map[string][]int32{"": {1, 2}}},
			placement.Binding{Clusters: []string{"a", "p"}, Replicas: map[string][]int32{"": {3, 4}}},
			placement.Binding{Clusters: []string{"a", "p"}, Replicas: map[string][]int32{"": {3, 2}}},
		},
		// Of a nil slice or map there is nothing in JSON, or null: it is as in target.
		"nil: as in target": {
			bind("a", "settings"),
			placement.Binding{Clusters: []string{"a"}, Replicas: map[string][]int32{"settings": nil}},
			placement.Binding{Clusters: []string{"a"}, Replicas: map[string][]int32{"settings": nil}},
		},
		"nil: no Replicas": {
			placement.Binding{Clusters: []string{"p"}, Replicas: map[string][]int32{}}, bind("p"), bind("p"),
		},
		"nil: empty Replicas": {
			bind("p"), placement.Binding{Replicas: map[string][]int32{}},
			placement.Binding{Clusters: []string{"p"}, Replicas: map[string][]int32{}},
		},
		"nil: both": {placement.Binding{}, placement.Binding{}, placement.Binding{}},
		"nil: Replicas of current that say nothing": {
			placement.Binding{Clusters: []string{"p"}, Replicas: map[string][]int32{}}, bind("p", "web 1"), bind("p", "web 1"),
		},
		"nil: Replicas of target that say nothing": {
			bind("a p", "web 1 2"),
			placement.Binding{Clusters: []string{"a"}, Replicas: map[string][]int32{}}, bind("a p", "web 1 2"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := placement.Keep(tc.current, tc.target, among("p pp x"), among("a b c p pp"))
			if err != nil {
				t.Fatalf("Keep(%v, %v) = %v", tc.current, tc.target, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Keep(%v, %v) (-want +got):\n%s", tc.current, tc.target, diff)
			}
		})
	}
}

func TestKeepRefusesBadInput(t *testing.T) {
	good := bind("a p", "web 1 2", "settings")
	paused, exists := among("p"), among("a p")
	for name, tc := range map[string]struct {
		current, target placement.Binding
		paused, exists  func(string) bool
		want            []string
	}{
		"current, too short": {bind("a p", "web 7"), good, paused, exists, []string{"current", `"web"`, "1 replicas", "2 clusters", "status"}},
		"current, too long":  {bind("a p", "web 7 7 7"), good, paused, exists, []string{"current", `"web"`, "3 replicas", "2 clusters"}},
		"current, without clusters": {
			bind("", "web 7"), good, paused, exists, []string{"current", `"web"`, "1 replicas", "0 clusters"},
		},
		"target, too short":      {good, bind("a p", "web 7"), paused, exists, []string{"target", `"web"`, "1 replicas", "2 clusters", "plugin"}},
		"target, too long":       {good, bind("a p", "settings", "web 7 7 7"), paused, exists, []string{"target", `"web"`, "3 replicas"}},
		"target, nothing paused": {good, bind("a p", "web 7"), among(""), exists, []string{"target", `"web"`}},
		"target, the first of many": {
			good, bind("a p", "e 1", "c 1", "a 1 2", "d 1", "b 1", "f 1"), paused, exists, []string{"target", `"b"`},
		},
		"target, a feed without a name": {
			good, placement.Binding{Clusters: []string{"a"}, Replicas: map[string][]int32{"": {1, 2}, "web": {1, 2}}},
			paused, exists, []string{"target", `""`},
		},
		"both":      {bind("a p", "web 7"), bind("a p", "web 7"), paused, exists, []string{"current"}},
		"no paused": {good, bind("a"), nil, exists, []string{"paused is nil", "pass one"}},
		"no exists": {good, bind("a"), paused, nil, []string{"exists is nil", "pass one"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := placement.Keep(tc.current, tc.target, tc.paused, tc.exists)
			if err == nil {
				t.Fatalf("Keep(%v, %v) = %v, nil; want an error", tc.current, tc.target, got)
			}
			for _, want := range append(tc.want, "placement: keep paused clusters: ", "nothing is changed") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Keep = %q; want it to contain %q", err, want)
				}
			}
			if diff := cmp.Diff(tc.current, got); diff != "" {
				t.Errorf("Keep with an error (-current +got):\n%s", diff)
			}
			before := copied(tc.current)
			spoil(got)
			if diff := cmp.Diff(before, tc.current); diff != "" {
				t.Errorf("current shares memory with the result:\n%s", diff)
			}
		})
	}
}

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

// spoil writes to all memory of b that can be reached.
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

// situation is what Keep is asked.
type situation struct {
	current, target placement.Binding
	paused, exists  map[string]bool
}

// situationOf makes a situation of any data, each byte of which is one choice. What
// is missing is 0.
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
	for _, b := range []*placement.Binding{&s.current, &s.target} {
		repeats := next(5) == 1
		for range next(7) {
			if name := names[next(len(names))]; repeats || !slices.Contains(b.Clusters, name) {
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
	}
	return s
}

// at is what the Binding has of a feed in a cluster, where it divides the feed and
// has the cluster: the last number, when it has several.
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

// verify asks Keep, and holds what it returns against the contract, each sentence
// on its own.
func verify(t *testing.T, s situation) {
	t.Helper()
	askedPaused, askedExists := map[string]int{}, map[string]int{}
	pausedOf := func(cluster string) bool { askedPaused[cluster]++; return s.paused[cluster] }
	existsOf := func(cluster string) bool { askedExists[cluster]++; return s.exists[cluster] }
	current, target := copied(s.current), copied(s.target)
	got, err := placement.Keep(current, target, pausedOf, existsOf)
	if t.Failed() {
		return
	}
	defer func() {
		if t.Failed() {
			t.Logf("paused %v, exists %v\nKeep(%+v,\n     %+v)\n   = %+v, %v", s.paused, s.exists, s.current, s.target, got, err)
		}
	}()
	same := func(what string, want, got any) {
		t.Helper()
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s = %+v; want %+v", what, got, want)
		}
	}
	same("current after Keep", s.current, current)
	same("target after Keep", s.target, target)
	result := copied(got)
	spoil(got)
	same("current after a change of the result", s.current, current)
	same("target after a change of the result", s.target, target)
	got = result

	if wrongLength(s.current) || wrongLength(s.target) {
		if err == nil {
			t.Error("Keep = nil; want an error")
		}
		same("Keep with an error", s.current, got)
		return
	}
	if err != nil {
		t.Errorf("Keep = %v", err)
		return
	}
	for cluster, n := range askedPaused {
		if n > 1 {
			t.Errorf("paused(%s) was called %d times; want once", cluster, n)
		}
	}
	for cluster, n := range askedExists {
		if n > 1 || !s.paused[cluster] || !slices.Contains(s.current.Clusters, cluster) {
			t.Errorf("exists(%s) was called %d times; want at most once, and for paused clusters of current only", cluster, n)
		}
	}

	// Who is bound, in which order.
	bound := func(cluster string) bool { return slices.Contains(s.current.Clusters, cluster) }
	isKept := func(cluster string) bool { return bound(cluster) && s.paused[cluster] && s.exists[cluster] }
	var clusters []string
	var places []int // in target
	for i, cluster := range s.target.Clusters {
		if bound(cluster) || !s.paused[cluster] {
			clusters, places = append(clusters, cluster), append(places, i)
		}
	}
	fromTarget := len(clusters)
	for i, cluster := range s.current.Clusters {
		if isKept(cluster) && !slices.Contains(s.current.Clusters[i+1:], cluster) && !slices.Contains(s.target.Clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	if strings.Join(clusters, " ") != strings.Join(got.Clusters, " ") {
		t.Errorf("Clusters = %v; want %v", got.Clusters, clusters)
		return
	}
	keeps := slices.ContainsFunc(clusters, isKept)

	// What is said of a feed: of each cluster, or of none. A paused cluster that has
	// a number is never told by none.
	feeds := map[string]bool{}
	for _, b := range []placement.Binding{s.current, s.target, got} {
		for feed := range b.Replicas {
			feeds[feed] = true
		}
	}
	isNew := func(b placement.Binding, feed string) bool {
		_, ok := b.Replicas[feed]
		return !ok && len(b.Replicas) > 0
	}
	for feed := range feeds {
		replicas, told := got.Replicas[feed]
		if n := len(replicas); n != 0 && n != len(clusters) {
			t.Errorf("%d replicas of feed %q; want none, or %d", n, feed, len(clusters))
			return
		}
		_, asked := s.target.Replicas[feed]
		if asked && !told {
			t.Errorf("feed %q of target is gone", feed)
		}
		if !asked && told && (len(replicas) == 0 || len(s.current.Replicas[feed]) == 0 || !keeps) {
			t.Errorf("feed %q has come in for nobody's sake", feed)
		}
		if len(s.target.Replicas[feed]) > 0 && fromTarget > 0 && len(replicas) == 0 {
			t.Errorf("feed %q is not divided; want it as in target", feed)
		}
		if fromTarget == 0 && !isNew(s.current, feed) && len(s.current.Replicas[feed]) == 0 && len(replicas) > 0 {
			t.Errorf("feed %q is divided for clusters that are left out", feed)
		}
		if len(s.target.Replicas[feed]) == 0 && len(s.current.Replicas[feed]) == 0 && len(replicas) > 0 {
			t.Errorf("feed %q is divided; nobody wants that", feed)
		}
		if !keeps && asked && len(s.target.Replicas[feed]) == 0 && (replicas == nil) != (s.target.Replicas[feed] == nil) {
			t.Errorf("feed %q = %#v; want it as in target", feed, replicas)
		}
		for i, cluster := range clusters {
			var want int32
			now, hasNow := at(s.current, feed, cluster)
			_, isWanted := at(s.target, feed, cluster)
			switch {
			case isKept(cluster) && hasNow:
				want = now
				if len(replicas) == 0 {
					t.Errorf("%s has lost its replicas of feed %q", cluster, feed)
				}
			case len(replicas) == 0:
				continue
			case isKept(cluster) && !isNew(s.current, feed) && isWanted:
				want = s.target.Replicas[feed][places[i]]
			case isKept(cluster):
			case isWanted:
				want = s.target.Replicas[feed][places[i]]
			case !isNew(s.target, feed):
				want = now
			}
			if len(replicas) > 0 && replicas[i] != want {
				t.Errorf("%s has %d of feed %q; want %d", cluster, replicas[i], feed, want)
			}
		}
	}

	again, err := placement.Keep(s.current, got, pausedOf, existsOf)
	if err != nil {
		t.Errorf("Keep of the result = %v", err)
	}
	same("Keep of the result", got, again)
}

// seen counts what the random situations have in them: a property that holds
// since its case never comes up says nothing.
func seen(s situation, count map[string]int) {
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
		seen(s, count)
		if verify(t, s); t.Failed() {
			t.Fatalf("in case %d", i)
		}
	}
	for _, what := range []string{
		"wrong length", "open", "deleted", "kept and wanted", "kept and dropped", "not bound", "feed dropped",
		"new feed", "divided on both sides", "divided in current", "divided in target",
	} {
		if count[what] < cases/100 {
			t.Errorf("%q has come up %d times; want %d", what, count[what], cases/100)
		}
	}
}

// FuzzKeep looks for situations that chance does not find.
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

// The functions of the package documentation, over a hub that runs.
func TestKeepWithAHub(t *testing.T) {
	const ns = "clusternet-abcde"
	source := tu.NewSource()
	hub, err := syncgate.NewHub(source, syncgate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(stop)
	for source.Handlers() == 0 {
		time.Sleep(time.Millisecond)
	}
	open := tu.ManagedCluster(ns, "open", "id-open")
	paused := tu.ManagedCluster(ns, "paused", "id-paused", tu.Paused(true))
	unclear := tu.ManagedCluster(ns, "unclear", "id-unclear", tu.Paused("yes"))
	source.Add(open, paused, unclear)
	source.Sync()
	if err := hub.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}

	gateOf := func(cluster string) (*syncgate.Gate, bool) {
		namespace, name, _ := strings.Cut(cluster, "/")
		return hub.GateOf(namespace, name)
	}
	isPaused := func(cluster string) bool {
		gate, ok := gateOf(cluster)
		return ok && gate.Paused()
	}
	exists := func(cluster string) bool {
		_, ok := gateOf(cluster)
		return ok
	}
	wants := func(when, current, target, want string) {
		t.Helper()
		got, err := placement.Keep(bind(current), bind(target), isPaused, exists)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(got.Clusters, " ") != want {
			t.Errorf("%s: Keep([%s], [%s]) = %v; want [%s]", when, current, target, got.Clusters, want)
		}
	}
	const all = ns + "/open " + ns + "/paused " + ns + "/unclear"
	wants("bound", all, "", ns+"/paused "+ns+"/unclear")
	wants("not bound", "", all, ns+"/open")
	wants("no such cluster", "other/paused", "", "")
	if placement.Feasible(ns+"/paused", nil, isPaused) || !placement.Feasible(ns+"/open", nil, isPaused) {
		t.Error("Feasible(paused), Feasible(open) = true, or false; want false and true")
	}
	source.Update(paused, tu.With(paused, tu.Unpaused()))
	wants("resumed", all, "", ns+"/unclear")
	source.Delete(unclear)
	wants("deleted", all, "", "")
	stop()
	wants("the hub has stopped", all, "", ns+"/open "+ns+"/paused")
	wants("the hub has stopped", "", all, ns+"/unclear") // which is deleted, and the scheduler does not know it yet
}
