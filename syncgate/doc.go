// Package syncgate pauses the synchronisation of applications to one child cluster
// of Clusternet. Everything that runs there keeps running, and the connection stays
// up.
//
// An operator sets spec.syncPaused on a ManagedCluster in the parent cluster, or adds
// an annotation hold.clusters.clusternet.io/OWNER=REASON. Annotations work with every
// CRD. Each program that writes to the cluster uses its [Gate] for each write. An agent
// has the one gate of its own cluster ([New]); a hub has the gates of all clusters
// ([NewHub]). A scheduler uses package placement with the gates of a hub.
//
// # Usage
//
// Write inside of [Gate.Do]. It refuses when the gate is closed, and it lets
// [Gate.WaitDrained] know when the last write has ended:
//
//	err := gate.Do(ctx, func(ctx context.Context) error {
//		return apply(ctx, object)
//	})
//	if errors.Is(err, syncgate.ErrPaused) {
//		// Keep the key and retry when the gate opens: see Backlog.
//	}
//
// Retry refused work yourself, or let a [Backlog] do it: it keeps the key and requeues
// it when the gate opens. Do not return the refusal from a reconciler: it
// would be retried with Events and a growing backoff. Do not forget the key either:
// informers do not deliver it again.
//
// # Glossary
//
//	gate       decides whether writes to one cluster may start: open or closed
//	hub        has the gates of all clusters that one informer follows
//	hold       one reason why a cluster is paused: the field or an annotation
//	holder     the owner of a hold; each holder releases its own
//	operation  one Do with everything nested in it; in flight until all of it ends
//	admission  the permission to start an operation; only an open gate gives it
//	drained    the gate is closed and no operation is in flight
//	backlog    the keys of refused work; to park a key is to put it there
//	replay     the requeueing of parked keys after the gate has opened
//
// # Guarantees
//
// No operation starts at a closed gate. After any caller has observed a closed gate, no
// caller observes it as open before it really opens. A gate is closed until the state
// of its cluster is known. A flag or a hold that can't be read closes it. See [Gate] for
// each situation.
//
// Two programs do not observe a pause at the same moment: each follows the API server by
// a watch of its own.
//
// # Concurrency
//
// Everything may be called from any goroutine. No lock is held while a function of the
// caller runs, or while something is logged. One goroutine calls all callbacks of a
// Run. Nothing starts before Run, and nothing is left after it.
//
// # Speed
//
// [Gate.Paused] costs one atomic load. Do costs two short locks and one allocation; a
// refusal costs neither. Measure it with
//
//	go test -run '^$' -bench . -benchtime 300ms -count 7 github.com/clusternet/syncgate/syncgate
package syncgate
