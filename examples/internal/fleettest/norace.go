//go:build !race

package fleettest

import "time"

// Lease is the duration of Leases that are lost in a test. It is in whole seconds, as in a
// Lease.
const Lease = 3 * time.Second
