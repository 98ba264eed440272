package testutil

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "k8s.io/client-go/tools/cache" // has made the channel before init here
)

// neverExitWatch makes reflectors of older client-go work in a testing/synctest
// bubble. A reflector without a resync waits for this channel, which client-go
// makes at program start, outside of the bubble. A goroutine that waits for such a
// channel is not durably blocked, so time in the bubble would stand still. A nil
// channel blocks for ever too, and durably. Newer client-go has no such variable;
// then this is an unused variable of this package.
//
//go:linkname neverExitWatch k8s.io/client-go/tools/cache.neverExitWatch
var neverExitWatch <-chan time.Time

func init() { neverExitWatch = nil }
