//go:build race

package fleettest

import "time"

// The race detector makes servers and deployers slow, and all of them share a process.
const (
	Prompt = 10 * time.Second
	Lease  = 6 * time.Second
)
