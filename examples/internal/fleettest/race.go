//go:build race

package fleettest

import "time"

// Lease is longer under the race detector, which makes all servers and deployers of the
// process slow.
const Lease = 6 * time.Second
