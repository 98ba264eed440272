// Package random has what the generators of the model tests share. It is apart from testutil,
// so that only tests need rapid.
package random

import "pgregory.net/rapid"

// Index draws a number below n, each with about the same chance. Generators of rapid
// prefer small numbers, so that what comes late in a list would hardly ever be drawn.
func Index(t *rapid.T, n int) int {
	i := 0
	for bits := 1; bits < 8*n; bits *= 2 {
		i *= 2
		if rapid.Bool().Draw(t, "bit") {
			i++
		}
	}
	return i % n
}

// Steps returns a generator of sequences. Slices of rapid have six elements on average, which
// is too few to get anywhere; a sequence that fails still shrinks to a short one.
func Steps[S any](one func(t *rapid.T) S) *rapid.Generator[[]S] {
	return rapid.Custom(func(t *rapid.T) []S {
		least := []int{1, 10, 30, 60}[Index(t, 4)]
		return rapid.SliceOfN(rapid.Custom(one), least, 2*least).Draw(t, "steps")
	})
}
