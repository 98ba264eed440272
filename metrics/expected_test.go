//go:build go1.25

package metrics_test

const totalsText = `
# HELP syncgate_clusters Clusters by the phase that their gates are in.
# TYPE syncgate_clusters gauge
syncgate_clusters{phase="Gone"} 1
syncgate_clusters{phase="Open"} 1
syncgate_clusters{phase="Paused"} 2
syncgate_clusters{phase="Unknown"} 1
# HELP syncgate_clusters_acknowledged Clusters whose condition SyncPaused is True for the current pause.
# TYPE syncgate_clusters_acknowledged gauge
syncgate_clusters_acknowledged 1
# HELP syncgate_clusters_draining Clusters whose gate is closed while admitted operations have not ended.
# TYPE syncgate_clusters_draining gauge
syncgate_clusters_draining 1
# HELP syncgate_clusters_paused Clusters whose gate is closed.
# TYPE syncgate_clusters_paused gauge
syncgate_clusters_paused 4
# HELP syncgate_last_contact_timestamp_seconds When the last list, event or bookmark came from the API server.
# TYPE syncgate_last_contact_timestamp_seconds gauge
syncgate_last_contact_timestamp_seconds 1.0000000005e+09
# HELP syncgate_longest_pause_age_seconds The highest age of a pause, of the clusters in phase Paused; 0 while there are none.
# TYPE syncgate_longest_pause_age_seconds gauge
syncgate_longest_pause_age_seconds 7200
# HELP syncgate_misnamed_holds Annotations of ManagedClusters that look like holds and are none, so they pause nothing.
# TYPE syncgate_misnamed_holds gauge
syncgate_misnamed_holds 1
# HELP syncgate_operations_admitted_total Operations that all gates have admitted.
# TYPE syncgate_operations_admitted_total counter
syncgate_operations_admitted_total 4
# HELP syncgate_operations_in_flight Admitted operations of all clusters that have not ended.
# TYPE syncgate_operations_in_flight gauge
syncgate_operations_in_flight 2
# HELP syncgate_operations_refused_total Operations that closed gates have refused.
# TYPE syncgate_operations_refused_total counter
syncgate_operations_refused_total 5
# HELP syncgate_parked_keys Keys of all clusters that backlogs hold until their gates open.
# TYPE syncgate_parked_keys gauge
syncgate_parked_keys 3
# HELP syncgate_transitions_total How often gates have closed (pause) and opened (resume).
# TYPE syncgate_transitions_total counter
syncgate_transitions_total{kind="pause"} 2
syncgate_transitions_total{kind="resume"} 1
`

const perClusterText = `
# HELP syncgate_cluster_acknowledged 1 if the condition SyncPaused is True for the current pause, so that all programs that write to the cluster have drained; else 0.
# TYPE syncgate_cluster_acknowledged gauge
syncgate_cluster_acknowledged{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_acknowledged{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_acknowledged{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_acknowledged{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_acknowledged{cluster_id="nobody",cluster_name="",cluster_namespace=""} 0
# HELP syncgate_cluster_operations_admitted_total Operations that the gate of the cluster has admitted.
# TYPE syncgate_cluster_operations_admitted_total counter
syncgate_cluster_operations_admitted_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 2
syncgate_cluster_operations_admitted_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_admitted_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_admitted_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 2
syncgate_cluster_operations_admitted_total{cluster_id="nobody",cluster_name="",cluster_namespace=""} 0
# HELP syncgate_cluster_operations_in_flight Admitted operations that have not ended.
# TYPE syncgate_cluster_operations_in_flight gauge
syncgate_cluster_operations_in_flight{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_operations_in_flight{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_in_flight{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_in_flight{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_operations_in_flight{cluster_id="nobody",cluster_name="",cluster_namespace=""} 0
# HELP syncgate_cluster_operations_refused_total Operations that the closed gate of the cluster has refused.
# TYPE syncgate_cluster_operations_refused_total counter
syncgate_cluster_operations_refused_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_refused_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_refused_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 4
syncgate_cluster_operations_refused_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_operations_refused_total{cluster_id="nobody",cluster_name="",cluster_namespace=""} 1
# HELP syncgate_cluster_parked_keys Keys that backlogs hold until the gate of the cluster opens.
# TYPE syncgate_cluster_parked_keys gauge
syncgate_cluster_parked_keys{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_parked_keys{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_parked_keys{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 2
syncgate_cluster_parked_keys{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_parked_keys{cluster_id="nobody",cluster_name="",cluster_namespace=""} 1
# HELP syncgate_cluster_pause_age_seconds How long the gate of the cluster has been closed for the same reason, as observed by this process; 0 while it is open.
# TYPE syncgate_cluster_pause_age_seconds gauge
syncgate_cluster_pause_age_seconds{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 3600
syncgate_cluster_pause_age_seconds{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 3600
syncgate_cluster_pause_age_seconds{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 7200
syncgate_cluster_pause_age_seconds{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_pause_age_seconds{cluster_id="nobody",cluster_name="",cluster_namespace=""} 10800
# HELP syncgate_cluster_paused Whether the gate of the cluster is closed: 1, or open: 0.
# TYPE syncgate_cluster_paused gauge
syncgate_cluster_paused{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_paused{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_paused{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde"} 1
syncgate_cluster_paused{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde"} 0
syncgate_cluster_paused{cluster_id="nobody",cluster_name="",cluster_namespace=""} 1
# HELP syncgate_cluster_phase 1 for the phase and the reason that the gate of the cluster is in.
# TYPE syncgate_cluster_phase gauge
syncgate_cluster_phase{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde",phase="Paused",reason="SyncPaused"} 1
syncgate_cluster_phase{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde",phase="Gone",reason="Deleted"} 1
syncgate_cluster_phase{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde",phase="Paused",reason="Held"} 1
syncgate_cluster_phase{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde",phase="Open",reason="SyncAllowed"} 1
syncgate_cluster_phase{cluster_id="nobody",cluster_name="",cluster_namespace="",phase="Unknown",reason="NotFound"} 1
# HELP syncgate_cluster_transitions_total How often the gate of the cluster has closed (pause) and opened (resume).
# TYPE syncgate_cluster_transitions_total counter
syncgate_cluster_transitions_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde",kind="pause"} 2
syncgate_cluster_transitions_total{cluster_id="id-draining",cluster_name="draining",cluster_namespace="clusternet-abcde",kind="resume"} 1
syncgate_cluster_transitions_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="id-gone",cluster_name="gone",cluster_namespace="clusternet-abcde",kind="resume"} 0
syncgate_cluster_transitions_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="id-held",cluster_name="held",cluster_namespace="clusternet-abcde",kind="resume"} 0
syncgate_cluster_transitions_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="id-open",cluster_name="open",cluster_namespace="clusternet-abcde",kind="resume"} 0
syncgate_cluster_transitions_total{cluster_id="nobody",cluster_name="",cluster_namespace="",kind="pause"} 0
syncgate_cluster_transitions_total{cluster_id="nobody",cluster_name="",cluster_namespace="",kind="resume"} 0
`
