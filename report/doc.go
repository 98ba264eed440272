// Package report publishes pauses on the ManagedClusters. It keeps the condition
// SyncPaused, which acknowledges a pause once it is in effect (no program that writes to
// the cluster has an operation in flight), and it records Events.
//
// # The condition
//
//	status   reason           when
//	True     Paused           something holds the cluster, and all parties have drained
//	False    Draining         something holds the cluster, and not all parties have drained
//	False    Syncing          nothing holds the cluster any more
//	Unknown  Malformed        the flag or a hold has the wrong type; the gate is closed
//	Unknown  FieldNotVisible  the CRD or the informer's Go type lacks the flag; the gate is closed
//	Unknown  NotHeard         a party has not reported for 30 seconds
//	Unknown  NotSupported     the agent sends heartbeats, but has never reported: it does not know pauses
//
// An operator waits for a pause with
//
//	kubectl -n NAMESPACE wait mcls/NAME --for=condition=SyncPaused
//
// and a Go program with [Acknowledged]. The message names the holders and their reasons,
// and the parties that it waits for with their numbers of operations in flight, which are
// updated every 10 seconds. The observedGeneration is the generation of the
// ManagedCluster that the decision was made from. The lastTransitionTime changes only
// when the status changes. If a cluster has several ManagedClusters, each of them gets
// the condition.
//
// Unknown is not True, although the gates that have read this are closed. Nobody can
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
// # Parties
//
// A program that may write to a cluster is a party to its acknowledgement. In Clusternet
// these are the agent and the hub, in every sync mode: the agent applies, or rolls back
// drift; the hub applies, or prunes. A process can count its own operations only. So each
// one runs a Reporter with its own [Options].Party. If only one program writes to the
// clusters, leave Party empty: it acknowledges alone, and the rest of this section does
// not matter.
//
// Each party reports for itself, in a condition whose type is [PartyConditionPrefix] and
// its name. It is True (Drained) when its gate is closed and none of its operations is in
// flight, False (Draining, Syncing), or Unknown (Malformed, FieldNotVisible). The
// observedGeneration and the message say for what: the message is JSON, with a text for
// people, a fingerprint of the hold annotations, and the number of operations in flight.
// What a party has reported counts for exactly this generation and these holds. So an edit
// of the spec during a pause makes SyncPaused False (Draining) until all parties have
// reported again. When the pause has ended for one party, it sets the conditions of
// parties that have not noticed yet to Unknown, with the reason Outdated.
//
// SyncPaused follows from what all parties have reported on the object. Each party writes
// it together with its own condition, under the resourceVersion that it has read. Parties
// with the same rule and the same version of this package write the same, so it does not
// matter which one is first, which one restarts, or whose clock is wrong: no time of
// another process is compared. In the simple case a pause costs one read and one write of
// each party. They take turns, in the order of their names: each one leaves the others
// before it a quarter of a second.
//
// A party that does not report is not taken for drained. After 30 seconds, counted by each
// process from the last change or from its own start, the condition is Unknown, with the
// reason NotHeard. If it is the agent, if it has sent a heartbeat (status.lastObservedTime
// has changed) since, and if it has never reported, then the reason is NotSupported: most
// likely its version does not know pauses. When the party reports, the condition becomes
// True within seconds. Nothing has to be edited. A party that has ended while it drained
// stays in the message until it runs again.
//
// Run the Reporter of a party in one process only, the one that writes: of several
// replicas, the leader. Two processes of one name overwrite each other's reports. When
// you upgrade from a program that acknowledges alone, or change the rule, trust no True
// until all programs have the same Party settings: until then they correct each other's
// condition, at most every 30 seconds.
//
// Which parties must have drained is [Options].Parties; by default the agent and the
// hub. Each must have reported for the pause, in every mode: only the agent knows
// whether it rolls back drift, and an agent that has nothing in flight reports at once.
// For a fleet whose agents are known not to write, return the hub only. A party that
// nobody requires, but that has reported for the pause, counts too.
//
// A process that ends while it writes can't report that its last request is still on its
// way; the next one counts from zero. End a process only after its operations. The same
// holds for a new gate in one process, for example of the next term of a leader: start its
// reporter when the old gate has drained, see [syncgate.Gate.WaitDrained]. A gate with
// FailOpen may open when the process restarts, before it has read of the pause. What was
// reported before is wrong then.
//
// # Events
//
// With a recorder in [Options], each change of the status is recorded as an Event on
// the ManagedCluster:
//
//	SyncPaused          the condition became True
//	SyncResumed         it was True or Unknown, and operations begin again
//	SyncPauseMalformed  it became Unknown with the reason Malformed (a warning)
//	SyncPauseNotHeard   it became Unknown with the reason NotHeard or NotSupported (a warning)
//
// The party that writes the change records the Event. A new hold during a pause may have a
// second SyncPaused, when the parties have drained for it too. A pause that ends before it is in
// effect has no Event. The state that a process finds
// when it starts is not a change, so a restart records nothing twice.
//
// The recorder is client-go's record.EventRecorder, which most programs have. See the
// example of [Options] for how to make one: its broadcaster needs a typed client of
// core/v1, which is then yours. Recording never blocks: the broadcaster queues Events
// and sends them from a goroutine of its own. It counts equal Events in one object,
// combines similar ones, and limits their rate per object. It tries a few times when
// the server cannot be reached. What the server refuses is logged and dropped. Of a
// ManagedCluster whose name has more than 236 characters, the Event refers to a shortened
// name and has the whole name in its message: client-go 0.32 could not name it otherwise.
//
// # Rights
//
// The client of [New] needs get on managedclusters and update on
// managedclusters/status. The client of the recorder needs create and patch on events.
//
// Without the rights on managedclusters, with credentials that the server does not
// accept, or with a CRD that does not keep the condition, a Reporter logs what to do
// and tries again after 10 seconds, and then less often, down to every 5 minutes. When
// there is something new to write (a new number in flight is not), it tries 10 seconds
// after the last refusal. Gates do not depend on any of this.
//
// # How fast
//
// The condition follows the gate at once, as far as the client allows: when many
// clusters are held at the same moment, they wait for the rate limit of the client.
//
// True is not written in three cases: the spec on the server is newer than the gate has
// read; the hold annotations on the server differ from those that the gate has read; the
// gate has opened while the request waited, for example for the rate limit of the client.
// A True that is there already stays until it is corrected:
//
//   - After an edit of the spec, its observedGeneration shows that it is outdated.
//   - A hold is an annotation and changes no generation. So kubectl wait may take the
//     True of an earlier hold, or of another holder, for the acknowledgement of a new
//     hold. [Acknowledged] does not. Or wait until the message names the hold.
//   - If a cluster has several ManagedClusters and the one that was paused is released,
//     the True of the others is outdated, and nothing in them shows that.
//
// The last case can also happen while a True is being written: the release may come when
// the request is on its way already. It is corrected by the next request, which does not
// wait for a pace.
//
// The correction does not depend on OnChange, which another callback may block. Changed
// holds are reconciled when the informer delivers them and again a second later, and
// each closed gate is reconciled every 10 seconds. This costs no request while the
// condition is right. So a wrong True of a closed gate stays for at most 10 seconds, if
// requests succeed. When the gate has opened, the correction is tried at once, and after a
// failure again with a growing delay of up to a minute.
//
// # Other writers
//
// The conditions are written into the status that the server has at this moment, under
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
