// Package report publishes pauses on the ManagedClusters. It keeps the condition
// SyncPaused, which acknowledges a pause once it is in effect (no operation is in
// flight), and it records Events.
//
// # The condition
//
//	status   reason           when
//	True     Paused           something holds the cluster, and no operation is in flight
//	False    Draining         something holds the cluster, and operations are in flight
//	False    Syncing          nothing holds the cluster any more
//	Unknown  Malformed        the flag or a hold has the wrong type; the gate is closed
//	Unknown  FieldNotVisible  the CRD or the informer's Go type lacks the flag; the gate is closed
//
// An operator waits for a pause with
//
//	kubectl -n NAMESPACE wait mcls/NAME --for=condition=SyncPaused
//
// The message names the holders and their reasons. While a gate drains, it also has
// the number of operations in flight, which is updated every 10 seconds. The
// observedGeneration is the generation of the ManagedCluster that the decision was
// made from. The lastTransitionTime changes only when the status changes. If a cluster
// has several ManagedClusters, each of them gets the condition.
//
// Unknown is not True, although nothing is deployed in this state either. Nobody can
// know whether this is the pause that somebody waits for. The message names what to
// correct.
//
// Nothing is written for a cluster that was never paused: ten thousand healthy
// clusters cost no request. Once a ManagedCluster has the condition, it follows each
// edit of the spec, because readers such as kubectl wait treat a condition of an
// earlier generation as outdated. A condition that an earlier process left behind is
// corrected. Nothing is written while the gate is Unknown (which includes Stopped) or
// Gone: nothing is known about the cluster then, and a process that ends must not look
// like a pause. The condition stays as it is.
//
// # Events
//
// With a recorder in [Options], each change of the status is recorded as an Event on
// the ManagedCluster:
//
//	SyncPaused          the condition became True
//	SyncResumed         it was True or Unknown, and operations begin again
//	SyncPauseMalformed  it became Unknown with the reason Malformed (a warning)
//
// A pause that ends before it is in effect has no Event. The state that a process finds
// when it starts is not a change, so a restart records nothing twice.
//
// The recorder is client-go's record.EventRecorder, which most programs have. See the
// example of [Options] for how to make one: its broadcaster needs a typed client of
// core/v1, which is then yours. Recording never blocks: the broadcaster queues Events
// and sends them from a goroutine of its own. It counts equal Events in one object,
// combines similar ones, and limits their rate per object. It tries a few times when
// the server cannot be reached. What the server refuses is logged and dropped.
//
// # Rights
//
// The client of [New] needs get on managedclusters and update on
// managedclusters/status. The client of the recorder needs create and patch on events.
//
// Without the rights on managedclusters, with credentials that the server does not
// accept, or with a CRD that does not keep the condition, a Reporter logs what to do
// and tries again every 5 minutes. When there is something new to write (a new number
// in flight is not) it tries earlier, but not within 10 seconds of the last refusal.
// Gates do not depend on any of this.
//
// # How fast
//
// The condition follows the gate at once, as far as the client allows: when many
// clusters are held at the same moment, they wait for the rate limit of the client.
//
// True is not written in three cases: the spec on the server is newer than the gate has
// read; the hold annotations on the server differ from those that the gate has read; the
// gate has opened while the request waited. But a True that is there already stays until
// it is corrected:
//
//   - After an edit of the spec, its observedGeneration shows that it is outdated.
//   - A hold is an annotation and changes no generation. So kubectl wait may take the
//     True of an earlier hold, or of another holder, for the acknowledgement of a new
//     hold. A holder has to wait until the message names its hold.
//
// The correction does not depend on OnChange, which another callback may block. Changed
// holds are reconciled when the informer delivers them and again a second later, and
// each closed gate is reconciled every 10 seconds. This costs no request while the
// condition is right. So a wrong True stays for at most 10 seconds, if requests succeed.
//
// # Other writers
//
// The condition is written into the status that the server has at this moment, under
// its resourceVersion. Nothing else is changed, except that further conditions of the
// same type are removed. When another writer drops or changes the condition, it is
// restored at once. When that happens again and again, the delay grows up to 30
// seconds. A write with new content waits at most 100 ms after the write before it.
//
// # ManagedClusters that are gone
//
// When a ManagedCluster is deleted, or has no spec.clusterId any more, nothing about it
// is kept or tried again. The gate of its cluster is kept, as a hub keeps it.
package report
