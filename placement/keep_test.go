package placement_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusternet/syncgate/placement"
)

// In keepCases p and pp are paused, x was paused and is deleted, the others are open.
var keepCases = map[string]struct {
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
	"numbers are not checked":    {bind("a p", "web -1 -2"), bind("a p", "web -3 -4"), bind("a p", "web -3 -2")},
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

	"new feed":                         {bind("a p", "web 1 2"), bind("a p", "web 1 2", "db 3 4"), bind("a p", "web 1 2", "db 3 0")},
	"new feed, dropped":                {bind("a p", "web 1 2"), bind("a", "web 3", "db 4"), bind("a p", "web 3 2", "db 4 0")},
	"new feed, not divided":            {bind("a p", "web 1 2"), bind("a p", "web 1 2", "settings"), bind("a p", "web 1 2", "settings")},
	"new feed, for a cluster left out": {bind("p", "web 2"), bind("pp", "web 1", "db 1"), bind("p", "web 2", "db 0")},
	"feed dropped":                     {bind("a p", "web 1 2", "db 3 4"), bind("a b p", "web 1 1 1"), bind("a b p", "web 1 1 2", "db 0 0 4")},
	"feed dropped, none is paused":     {bind("a", "web 1", "db 3"), bind("a", "web 1"), bind("a", "web 1")},
	"feed dropped, not divided":        {bind("a p", "web 1 2", "settings"), bind("a p", "web 1 2"), bind("a p", "web 1 2")},
	"feed renamed":                     {bind("a p", "web 1 2"), bind("a p", "web2 3 4"), bind("a p", "web 0 2", "web2 3 0")},

	"length 0 on both sides":         {bind("a p", "settings"), bind("b", "settings"), bind("b p", "settings")},
	"not divided any more":           {bind("a p", "web 1 2"), bind("a b p", "web"), bind("a b p", "web 1 0 2")},
	"not divided any more, dropped":  {bind("a p", "web 1 2"), bind("b a", "web"), bind("b a p", "web 0 1 2")},
	"not divided any more, open":     {bind("a b", "web 1 2"), bind("a b", "web"), bind("a b", "web")},
	"divided, then replicated":       {bind("a p", "web 1 2", "settings"), bind("b a"), bind("b a p", "web 0 1 2")},
	"divided now":                    {bind("a p", "web"), bind("b p", "web 3 4"), bind("b p", "web 3 4")},
	"divided now, dropped":           {bind("a p", "web"), bind("b", "web 7"), bind("b p", "web 7 0")},
	"divided for a cluster left out": {bind("p", "web"), bind("pp", "web 7"), bind("p", "web")},
	"replicated, then divided":       {bind("a p"), bind("p a", "web 3 4"), bind("p a", "web 3 4")},
	"divided in no cluster":          {bind("", "web"), bind("p", "web 1"), bind("", "web")},

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
	// JSON has null for a nil slice and lacks a nil map. The result is as in target.
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
	"nil: Replicas of current are empty": {
		placement.Binding{Clusters: []string{"p"}, Replicas: map[string][]int32{}}, bind("p", "web 1"), bind("p", "web 1"),
	},
	"nil: Replicas of target are empty": {
		bind("a p", "web 1 2"),
		placement.Binding{Clusters: []string{"a"}, Replicas: map[string][]int32{}}, bind("a p", "web 1 2"),
	},
}

func TestKeep(t *testing.T) {
	for name, tc := range keepCases {
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
