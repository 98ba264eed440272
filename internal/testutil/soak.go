package testutil

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
)

// SoakFactor is how many times longer the soak tests run: the number in the environment
// variable SYNCGATE_SOAK, or 1.
func SoakFactor(tb testing.TB) int {
	text, ok := os.LookupEnv("SYNCGATE_SOAK")
	if !ok {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("SYNCGATE_SOAK = %q; want a positive number", text)
	}
	return n
}

// Usage is what a process uses at one moment.
type Usage struct {
	Heap       int // in bytes
	Goroutines int
	Watches    int
}

// Measure returns what the process uses after a garbage collection.
func Measure(watches int) Usage {
	runtime.GC()
	runtime.GC() // what finalizers and pools have kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return Usage{int(stats.HeapAlloc), runtime.NumGoroutine(), watches}
}

// CheckFlat fails a test whose usage has grown: the least of the last third of all
// measurements against the most of the first third. A heap may grow by slack bytes.
func CheckFlat(tb testing.TB, all []Usage, slack int) {
	tb.Helper()
	third := max(1, len(all)/3)
	first, last := all[:third], all[len(all)-third:]
	for _, of := range []struct {
		name  string
		in    func(Usage) int
		slack int
	}{
		{"bytes on the heap", func(u Usage) int { return u.Heap }, slack},
		{"goroutines", func(u Usage) int { return u.Goroutines }, 0},
		{"watches", func(u Usage) int { return u.Watches }, 0},
	} {
		before, after := slices.Max(collect(first, of.in)), slices.Min(collect(last, of.in))
		tb.Logf("%s: at most %d in the first %d measurements, at least %d in the last", of.name, before, third, after)
		if after > before+of.slack {
			tb.Errorf("%s grew from %d to %d", of.name, before, after)
		}
	}
}

func collect(all []Usage, in func(Usage) int) []int {
	var out []int
	for _, u := range all {
		out = append(out, in(u))
	}
	return out
}
