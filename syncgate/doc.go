// Package syncgate pauses the synchronisation of applications to one child
// cluster of Clusternet, while what runs there keeps running and the connection
// stays up.
//
// An operator sets spec.syncPaused on a ManagedCluster in the parent cluster, or
// adds an annotation hold.clusters.clusternet.io/OWNER=REASON where the CRD does
// not have the field. Whoever deploys to the cluster asks its [Gate] at each write:
// an agent has the one gate of its own cluster ([New]), a hub has the gates of all
// ([NewHub]). A scheduler, which must neither fill a paused cluster nor empty it, uses
// package placement with the gates of a hub.
//
// # Usage
//
// Deploy inside of [Gate.Do]. It refuses when the gate is closed, and it is what
// makes [Gate.WaitDrained] know that the last write has ended:
//
//	err := gate.Do(ctx, func(ctx context.Context) error {
//		return apply(ctx, object)
//	})
//	if errors.Is(err, syncgate.ErrPaused) {
//		// Keep the key and come back when the gate opens: see Backlog.
//	}
//
// Work that is refused is the caller's to bring back. Do not return the refusal
// from a reconciler, which would retry it with events and a growing backoff; do
// not return nil and forget the key either, since informers don't deliver again.
// A [Backlog] keeps the key and queues it when the gate opens. Then read the object
// anew: it may have changed.
//
// # Concurrency
//
// Everything here may be called from any goroutine, and [Gate.Paused] is one
// atomic load. No lock is held while a function of the caller runs, nor while
// anything is logged. All callbacks of one Run run in one goroutine. Nothing starts
// before Run and nothing is left after it.
//
// # What is guaranteed
//
// Once a gate is closed no operation starts, and whoever has seen it closed sees
// it closed until it opens. A gate is closed until the state of the cluster is
// known from a consistent read, and what can't be read never opens it. See [Gate]
// for what happens when.
//
// What is not guaranteed: that two deployers see a pause in the same moment. Each
// follows the API server by a watch of its own. How long a patch takes to close a
// gate is how long a watch takes to show it; BenchmarkFlipVersusWatch in the
// examples' e2e tests measures the two side by side.
//
// # Speed
//
// Run the benchmarks with
//
//	go test -run '^$' -bench . -benchtime 300ms -count 7 github.com/clusternet/syncgate/syncgate
//
// Gate.Paused costs what a load of an atomic pointer costs. Do costs two locks
// that nobody holds for long, and one allocation; a refusal costs neither.
package syncgate
