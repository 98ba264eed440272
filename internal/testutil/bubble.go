package testutil

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "k8s.io/client-go/tools/cache" // has made the channel before init here
)

// neverExitWatch is what a reflector of older client-go waits for instead of a
// resync: a channel made at program start. Waiting for a channel from outside,
// no goroutine of a testing/synctest bubble counts as idle, so time would stand
// still. A nil channel is waited for just as long, and in peace. Newer client-go
// has no such variable; it then stays one of ours.
//
//go:linkname neverExitWatch k8s.io/client-go/tools/cache.neverExitWatch
var neverExitWatch <-chan time.Time

func init() { neverExitWatch = nil }
