// Package metrics exports the state of gates to Prometheus. All values are read when
// a scrape comes, so gates have no cost for it at other times.
//
//	registry.MustRegister(metrics.NewCollector(gate)) // an agent
//	registry.MustRegister(metrics.NewCollector(hub))  // a hub
//
// # Metrics of each cluster
//
// They have the labels cluster_id, cluster_namespace and cluster_name.
//
//	name                                         type     what
//	syncgate_cluster_paused                      gauge    1: the gate is closed, 0: it is open
//	syncgate_cluster_acknowledged                gauge    1: the condition SyncPaused of the current pause is True, so all parties have drained
//	syncgate_cluster_phase{phase,reason}         gauge    1 for the current phase and reason
//	syncgate_cluster_pause_age_seconds           gauge    how long a closed gate has had this reason; 0: it is open
//	syncgate_cluster_operations_in_flight        gauge    admitted operations that have not ended
//	syncgate_cluster_parked_keys                 gauge    keys that backlogs hold until the gate opens
//	syncgate_cluster_operations_admitted_total   counter  admitted operations
//	syncgate_cluster_operations_refused_total    counter  operations that a closed gate refused
//	syncgate_cluster_transitions_total{kind}     counter  kind pause: the open gate closed; resume: the closed gate opened
//
// The age is the time since [syncgate.State].Since, as this process observed it. It
// restarts with the process and with each new reason. To find forgotten pauses, use
// syncgate_cluster_phase over time, as the alert in examples/manifests does.
//
// The namespace and the name are those of the ManagedCluster that decides, and empty
// while there is none. (Many installations overwrite a label called namespace with the
// namespace of the scraped pod.) When another ManagedCluster decides, the cluster gets
// new series. The series of a cluster that is gone stay until the end of Run, as its
// gate does.
//
// The acknowledgement is read from the ManagedClusters that the informer has, and covers
// all parties, see package report. The operations in flight and the parked keys are those
// of this process.
//
// # Metrics of all clusters
//
//	name                                  type     what
//	syncgate_clusters{phase}              gauge    clusters by phase
//	syncgate_clusters_paused              gauge    clusters whose gate is closed
//	syncgate_clusters_acknowledged        gauge    clusters whose pause is acknowledged, as above
//	syncgate_misnamed_holds               gauge    annotations that look like holds and are none, for example of another prefix
//	syncgate_clusters_draining            gauge    clusters whose gate is closed, with operations in flight
//	syncgate_longest_pause_age_seconds    gauge    the highest age of a pause, of clusters in phase Paused; 0: there is none
//	syncgate_operations_in_flight         gauge    sum over all clusters
//	syncgate_parked_keys                  gauge    sum over all clusters
//	syncgate_operations_admitted_total    counter  sum over all clusters
//	syncgate_operations_refused_total     counter  sum over all clusters
//	syncgate_transitions_total{kind}      counter  sum over all clusters
//	syncgate_last_contact_timestamp_seconds  gauge  the last contact with the API server; absent: never, or the informer does not know
//
// # Cost
//
// A cluster has ten series. Where that is too much, use [NewTotalsCollector], which
// has the second table only. This measures a scrape of 10,000 clusters:
//
//	go test -run '^$' -bench Scrape github.com/clusternet/syncgate/metrics
package metrics

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// Gates is a *syncgate.Gate, a *syncgate.Hub, or a selection of gates.
type Gates interface {
	Gates() iter.Seq[*syncgate.Gate]
	Informer() cache.SharedIndexInformer
}

var (
	_ Gates = (*syncgate.Gate)(nil)
	_ Gates = (*syncgate.Hub)(nil)
)

var (
	clusterLabels = []string{"cluster_id", "cluster_namespace", "cluster_name"}

	clusterPaused = ofCluster("paused", "Whether the gate of the cluster is closed: 1, or open: 0.")
	clusterAcked  = ofCluster("acknowledged", "1 if the condition SyncPaused is True for the current pause, so that all programs that write to the cluster have drained; else 0.")
	clusterPhase  = ofCluster("phase", "1 for the phase and the reason that the gate of the cluster is in.", "phase", "reason")
	clusterAge    = ofCluster("pause_age_seconds", "How long the gate of the cluster has been closed for the same reason, as observed by this process; 0 while it is open.")
	clusterFlight = ofCluster("operations_in_flight", "Admitted operations that have not ended.")
	clusterParked = ofCluster("parked_keys", "Keys that backlogs hold until the gate of the cluster opens.")
	clusterAdmit  = ofCluster("operations_admitted_total", "Operations that the gate of the cluster has admitted.")
	clusterRefuse = ofCluster("operations_refused_total", "Operations that the closed gate of the cluster has refused.")
	clusterTurns  = ofCluster("transitions_total", "How often the gate of the cluster has closed (pause) and opened (resume).", "kind")

	allClusters = ofAll("clusters", "Clusters by the phase that their gates are in.", "phase")
	allPaused   = ofAll("clusters_paused", "Clusters whose gate is closed.")
	allAcked    = ofAll("clusters_acknowledged", "Clusters whose condition SyncPaused is True for the current pause.")
	misnamed    = ofAll("misnamed_holds", "Annotations of ManagedClusters that look like holds and are none, so they pause nothing.")
	allDraining = ofAll("clusters_draining", "Clusters whose gate is closed while admitted operations have not ended.")
	longestAge  = ofAll("longest_pause_age_seconds", "The highest age of a pause, of the clusters in phase Paused; 0 while there are none.")
	allFlight   = ofAll("operations_in_flight", "Admitted operations of all clusters that have not ended.")
	allParked   = ofAll("parked_keys", "Keys of all clusters that backlogs hold until their gates open.")
	allAdmit    = ofAll("operations_admitted_total", "Operations that all gates have admitted.")
	allRefuse   = ofAll("operations_refused_total", "Operations that closed gates have refused.")
	allTurns    = ofAll("transitions_total", "How often gates have closed (pause) and opened (resume).", "kind")
	contact     = ofAll("last_contact_timestamp_seconds", "When the last list, event or bookmark came from the API server.")

	perCluster = []*prometheus.Desc{clusterPaused, clusterAcked, clusterPhase, clusterAge, clusterFlight, clusterParked, clusterAdmit, clusterRefuse, clusterTurns}
	totals     = []*prometheus.Desc{allClusters, allPaused, allAcked, misnamed, allDraining, longestAge, allFlight, allParked, allAdmit, allRefuse, allTurns, contact}

	phases = []syncgate.Phase{syncgate.Unknown, syncgate.Open, syncgate.Paused, syncgate.Gone}
)

func ofCluster(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("syncgate_cluster_"+name, help, append(clusterLabels[:3:3], labels...), nil)
}

func ofAll(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("syncgate_"+name, help, labels, nil)
}

// collector has no state: everything is in the gates.
type collector struct {
	gates  Gates
	totals bool // only
}

// NewCollector returns a collector of the metrics of each cluster and of all clusters.
// It does no I/O and starts no goroutine. Gates may be collected before their Run and
// after it. To register two collectors, wrap the registerers with
// prometheus.WrapRegistererWith. It panics when gates is nil.
func NewCollector(gates Gates) prometheus.Collector { return newCollector(gates, false) }

// NewTotalsCollector returns a collector of the metrics of all clusters only, so the
// number of series does not grow with the clusters. Use it instead of NewCollector.
// Otherwise it is the same.
func NewTotalsCollector(gates Gates) prometheus.Collector { return newCollector(gates, true) }

func newCollector(gates Gates, totals bool) prometheus.Collector {
	if api.IsNil(gates) {
		panic("metrics: make a collector: the gates are nil; pass a *syncgate.Gate or a *syncgate.Hub")
	}
	return &collector{gates: gates, totals: totals}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	descs := totals
	if !c.totals {
		descs = slices.Concat(totals, perCluster)
	}
	for _, desc := range descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	all := sum{phases: map[syncgate.Phase]int{}}
	for g := range c.gates.Gates() {
		// The state comes first. The operations in flight of a closed gate only fall,
		// so none that began after a pause is counted as one of before.
		state := g.State()
		inFlight, stats := g.InFlight(), g.Stats()
		age := 0.0
		if state.Paused {
			age = time.Since(state.Since).Seconds()
		}
		acknowledged := state.Phase == syncgate.Paused && c.acknowledged(g)
		all.add(&state, inFlight, &stats, age, acknowledged)
		if !c.totals {
			collect(ch, string(g.ClusterID()), &state, inFlight, &stats, age, acknowledged)
		}
	}
	all.collect(ch)
	gauge(ch, misnamed, float64(c.misnamed()))
	if source, ok := c.gates.Informer().(interface{ LastContact() time.Time }); ok {
		if last := source.LastContact(); !last.IsZero() {
			gauge(ch, contact, float64(last.UnixNano())/1e9)
		}
	}
}

// misnamed counts the annotations that look like holds and are none.
func (c *collector) misnamed() (n int) {
	for _, stored := range c.gates.Informer().GetStore().List() {
		object, ok := stored.(interface{ GetAnnotations() map[string]string })
		if !ok {
			continue
		}
		for name := range object.GetAnnotations() {
			if api.IsNearMiss(name) {
				n++
			}
		}
	}
	return n
}

// acknowledged reports whether the pause is acknowledged on all ManagedClusters of a gate.
func (c *collector) acknowledged(g *syncgate.Gate) bool {
	objects := g.Objects()
	for _, o := range objects {
		stored, _, _ := c.gates.Informer().GetStore().GetByKey(o.String())
		object, ok := stored.(runtime.Object)
		if !ok || !report.Acknowledged(object) {
			return false
		}
	}
	return len(objects) > 0
}

func collect(ch chan<- prometheus.Metric, clusterID string, state *syncgate.State, inFlight int, stats *syncgate.Stats, age float64, acknowledged bool) {
	// The ID is what a caller of Hub.Gate gave. If it is not UTF-8, the scrape fails.
	id := strings.ToValidUTF8(clusterID, "?")
	labels := []string{id, state.Object.Namespace, state.Object.Name}
	gauge(ch, clusterPaused, number(state.Paused), labels...)
	gauge(ch, clusterAcked, number(acknowledged), labels...)
	gauge(ch, clusterPhase, 1, append(labels[:3:3], state.Phase.String(), state.Reason)...)
	gauge(ch, clusterAge, age, labels...)
	gauge(ch, clusterFlight, float64(inFlight), labels...)
	gauge(ch, clusterParked, float64(stats.Parked), labels...)
	counter(ch, clusterAdmit, stats.Admitted, labels...)
	counter(ch, clusterRefuse, stats.Refused, labels...)
	counter(ch, clusterTurns, stats.Pauses, append(labels[:3:3], "pause")...)
	counter(ch, clusterTurns, stats.Resumes, append(labels[:3:3], "resume")...)
}

// sum is what all clusters have together.
type sum struct {
	syncgate.Stats
	phases                  map[syncgate.Phase]int
	paused, acked, draining int
	inFlight                int
	longest                 float64
}

func (t *sum) add(state *syncgate.State, inFlight int, stats *syncgate.Stats, age float64, acknowledged bool) {
	t.phases[state.Phase]++
	if state.Paused {
		t.paused++
		t.draining += min(inFlight, 1)
	}
	if acknowledged {
		t.acked++
	}
	if state.Phase == syncgate.Paused {
		t.longest = max(t.longest, age)
	}
	t.inFlight += inFlight
	t.Parked += stats.Parked
	t.Admitted += stats.Admitted
	t.Refused += stats.Refused
	t.Pauses += stats.Pauses
	t.Resumes += stats.Resumes
}

func (t *sum) collect(ch chan<- prometheus.Metric) {
	for _, phase := range phases {
		gauge(ch, allClusters, float64(t.phases[phase]), phase.String())
	}
	gauge(ch, allPaused, float64(t.paused))
	gauge(ch, allAcked, float64(t.acked))
	gauge(ch, allDraining, float64(t.draining))
	gauge(ch, longestAge, t.longest)
	gauge(ch, allFlight, float64(t.inFlight))
	gauge(ch, allParked, float64(t.Parked))
	counter(ch, allAdmit, t.Admitted)
	counter(ch, allRefuse, t.Refused)
	counter(ch, allTurns, t.Pauses, "pause")
	counter(ch, allTurns, t.Resumes, "resume")
}

func gauge(ch chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func counter(ch chan<- prometheus.Metric, desc *prometheus.Desc, value uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
