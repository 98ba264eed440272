// Package metrics shows gates to Prometheus. Everything is read when a scrape
// comes: a gate pays nothing for being counted.
//
//	registry.MustRegister(metrics.NewCollector(gate)) // an agent
//	registry.MustRegister(metrics.NewCollector(hub))  // a hub
//
// # Of each cluster
//
// Each of these has the labels cluster_id, cluster_namespace and cluster_name; the
// last two are those of the ManagedCluster that decides, and empty while there is
// none. (A label called namespace would be that of the scraped pod in many
// installations, which Prometheus puts over an exposed one.) When another
// ManagedCluster comes to decide, the cluster has new series. Those of a cluster
// that is gone stay until the end of Run, as its gate does.
//
//	name                                         type     what
//	syncgate_cluster_paused                      gauge    1: the gate is closed, 0: it is open
//	syncgate_cluster_phase{phase,reason}         gauge    1 for the current phase and reason
//	syncgate_cluster_pause_age_seconds           gauge    how long a closed gate has been so for the same reason; 0: it is open
//	syncgate_cluster_operations_in_flight        gauge    admitted operations that have not ended
//	syncgate_cluster_parked_keys                 gauge    keys that backlogs hold for when the gate opens
//	syncgate_cluster_operations_admitted_total   counter  admitted operations
//	syncgate_cluster_operations_refused_total    counter  operations that a closed gate refused
//	syncgate_cluster_transitions_total{kind}     counter  kind pause: the open gate closed; resume: the closed gate opened
//
// The age is that of [syncgate.State].Since, as observed by this process: it starts
// anew with it, and with each new reason. To find pauses that were forgotten, use
// syncgate_cluster_phase over time, as the alert in examples/manifests does.
//
// # Of all clusters
//
//	name                                  type     what
//	syncgate_clusters{phase}              gauge    clusters by phase
//	syncgate_clusters_paused              gauge    clusters whose gate is closed
//	syncgate_clusters_draining            gauge    clusters whose gate is closed, with operations in flight
//	syncgate_longest_pause_age_seconds    gauge    the highest age of a pause, of clusters in phase Paused; 0: there is none
//	syncgate_operations_in_flight         gauge    the sum over the clusters, as are all that follow
//	syncgate_parked_keys                  gauge
//	syncgate_operations_admitted_total    counter
//	syncgate_operations_refused_total     counter
//	syncgate_transitions_total{kind}      counter
//	syncgate_last_contact_timestamp_seconds  gauge  when the API server was last heard; absent: never, or the informer can't tell
//
// # Cost
//
// A cluster has nine series. Where that is too much, [NewTotalsCollector] shows
// the second table alone. Measure a scrape of 10,000 clusters by
//
//	go test -run '^$' -bench Scrape github.com/clusternet/syncgate/metrics
package metrics

import (
	"iter"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/internal/api"
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
	clusterPhase  = ofCluster("phase", "1 for the phase and the reason that the gate of the cluster is in.", "phase", "reason")
	clusterAge    = ofCluster("pause_age_seconds", "How long the gate of the cluster has been closed for the same reason, as observed by this process; 0 while it is open.")
	clusterFlight = ofCluster("operations_in_flight", "Admitted operations that have not ended.")
	clusterParked = ofCluster("parked_keys", "Keys that backlogs hold for when the gate of the cluster opens.")
	clusterAdmit  = ofCluster("operations_admitted_total", "Operations that the gate of the cluster has admitted.")
	clusterRefuse = ofCluster("operations_refused_total", "Operations that the closed gate of the cluster has refused.")
	clusterTurns  = ofCluster("transitions_total", "How often the gate of the cluster has closed (pause) and opened (resume).", "kind")

	allClusters = ofAll("clusters", "Clusters by the phase that their gates are in.", "phase")
	allPaused   = ofAll("clusters_paused", "Clusters whose gate is closed.")
	allDraining = ofAll("clusters_draining", "Clusters whose gate is closed while admitted operations have not ended.")
	longestAge  = ofAll("longest_pause_age_seconds", "The highest age of a pause, of the clusters in phase Paused; 0 while there are none.")
	allFlight   = ofAll("operations_in_flight", "Admitted operations of all clusters that have not ended.")
	allParked   = ofAll("parked_keys", "Keys of all clusters that backlogs hold for when their gates open.")
	allAdmit    = ofAll("operations_admitted_total", "Operations that all gates have admitted.")
	allRefuse   = ofAll("operations_refused_total", "Operations that closed gates have refused.")
	allTurns    = ofAll("transitions_total", "How often gates have closed (pause) and opened (resume).", "kind")
	contact     = ofAll("last_contact_timestamp_seconds", "When the API server was last heard: the last list, event or bookmark.")

	perCluster = []*prometheus.Desc{clusterPaused, clusterPhase, clusterAge, clusterFlight, clusterParked, clusterAdmit, clusterRefuse, clusterTurns}
	totals     = []*prometheus.Desc{allClusters, allPaused, allDraining, longestAge, allFlight, allParked, allAdmit, allRefuse, allTurns, contact}

	phases = []syncgate.Phase{syncgate.Unknown, syncgate.Open, syncgate.Paused, syncgate.Gone}
)

func ofCluster(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("syncgate_cluster_"+name, help, append(clusterLabels[:3:3], labels...), nil)
}

func ofAll(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("syncgate_"+name, help, labels, nil)
}

// collector has no state: all there is to know is in the gates.
type collector struct {
	gates  Gates
	totals bool // and nothing of each cluster
}

// NewCollector returns a collector of the metrics of each cluster and of all. It
// does no I/O and starts no goroutine; gates may be collected before their Run and
// after it. To register two, wrap the registerers by prometheus.WrapRegistererWith.
// It panics when gates is nil.
func NewCollector(gates Gates) prometheus.Collector { return newCollector(gates, false) }

// NewTotalsCollector returns a collector of the metrics of all clusters, and of
// none by itself: what it shows does not grow with their number. It is otherwise
// like NewCollector, and takes the place of one.
func NewTotalsCollector(gates Gates) prometheus.Collector { return newCollector(gates, true) }

func newCollector(gates Gates, totals bool) prometheus.Collector {
	if api.IsNil(gates) {
		panic("metrics: a collector was made of nil gates; pass a *syncgate.Gate or a *syncgate.Hub")
	}
	return &collector{gates: gates, totals: totals}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range totals {
		ch <- desc
	}
	if c.totals {
		return
	}
	for _, desc := range perCluster {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	var sum syncgate.Stats
	inPhase := map[syncgate.Phase]int{}
	var paused, draining, inFlight int
	var longest float64
	for g := range c.gates.Gates() {
		// The state first: what is in flight of a closed gate only falls, so no
		// operation that began after a pause is shown as one of before.
		state := g.State()
		flight, stats := g.InFlight(), g.Stats()
		age := 0.0
		if state.Paused {
			age = time.Since(state.Since).Seconds()
		}

		inPhase[state.Phase]++
		if state.Paused {
			paused++
			if flight > 0 {
				draining++
			}
		}
		if state.Phase == syncgate.Paused {
			longest = max(longest, age)
		}
		inFlight += flight
		sum.Parked += stats.Parked
		sum.Admitted += stats.Admitted
		sum.Refused += stats.Refused
		sum.Pauses += stats.Pauses
		sum.Resumes += stats.Resumes

		if c.totals {
			continue
		}
		// An ID is what a caller of Hub.Gate gave; not UTF-8, it would spoil the scrape.
		id := strings.ToValidUTF8(string(g.ClusterID()), "?")
		labels := []string{id, state.Object.Namespace, state.Object.Name}
		gauge(ch, clusterPaused, number(state.Paused), labels...)
		gauge(ch, clusterPhase, 1, append(labels[:3:3], state.Phase.String(), state.Reason)...)
		gauge(ch, clusterAge, age, labels...)
		gauge(ch, clusterFlight, float64(flight), labels...)
		gauge(ch, clusterParked, float64(stats.Parked), labels...)
		counter(ch, clusterAdmit, stats.Admitted, labels...)
		counter(ch, clusterRefuse, stats.Refused, labels...)
		counter(ch, clusterTurns, stats.Pauses, append(labels[:3:3], "pause")...)
		counter(ch, clusterTurns, stats.Resumes, append(labels[:3:3], "resume")...)
	}

	for _, phase := range phases {
		gauge(ch, allClusters, float64(inPhase[phase]), phase.String())
	}
	gauge(ch, allPaused, float64(paused))
	gauge(ch, allDraining, float64(draining))
	gauge(ch, longestAge, longest)
	gauge(ch, allFlight, float64(inFlight))
	gauge(ch, allParked, float64(sum.Parked))
	counter(ch, allAdmit, sum.Admitted)
	counter(ch, allRefuse, sum.Refused)
	counter(ch, allTurns, sum.Pauses, "pause")
	counter(ch, allTurns, sum.Resumes, "resume")
	if source, ok := c.gates.Informer().(interface{ LastContact() time.Time }); ok {
		if last := source.LastContact(); !last.IsZero() {
			gauge(ch, contact, float64(last.UnixNano())/1e9)
		}
	}
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
