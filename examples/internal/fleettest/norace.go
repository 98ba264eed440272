//go:build !race

package fleettest

import "time"

// Prompt is how soon a resume has to have taken effect, and Lease a duration of Leases
// that are lost in a test: in whole seconds, since a Lease counts so.
const (
	Prompt = 2 * time.Second
	Lease  = 3 * time.Second
)
