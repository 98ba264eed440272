package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clusternet/syncgate/placement"
)

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
