//go:build go1.25

package report_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/report"
)

// A hold of this process is in the condition like any other.
func TestLocalHold(t *testing.T) {
	objs := []*unstructured.Unstructured{child(), tu.ManagedCluster(ns, "double", id)}
	inBubble(t, report.Options{}, objs, func(t *testing.T, f *fixture) {
		end := f.operate()
		release := f.gate.Hold("disk", "full")
		f.pass(time.Second)
		f.wants("child", "False Draining 1: held by disk (full) of this process; operations still in flight: 1")
		end()
		for _, name := range []string{"child", "double"} {
			f.wants(name, "True Paused 1: held by disk (full) of this process; nothing is in flight")
		}
		f.change("child", tu.Held("backup", "nightly"))
		f.wants("child", "True Paused 1: held by backup (nightly), disk (full) of this process; nothing is in flight")
		f.change("child", tu.Released("backup"))
		f.wants("child", "True Paused 1: held by disk (full) of this process; nothing is in flight")
		release()
		f.pass(time.Second)
		f.wants("child", "False Syncing 1: nothing holds the cluster")
		got := brief(f.recorded.all())
		slices.Sort(got) // the ManagedClusters of a cluster come in any order
		want := []string{"Normal SyncPaused: child", "Normal SyncPaused: double", "Normal SyncResumed: child", "Normal SyncResumed: double"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// The hold closes the gate of one party only.
func TestLocalHoldOfOneParty(t *testing.T) {
	withParties(t, both, one(), func(_ *testing.T, p *parties) {
		release := p.processes["agent"].gate.Hold("disk", "full")
		p.pass(time.Minute)
		p.wants("child", "False Syncing 1: not all parties are paused; agent is held by disk (full) of this process")
		p.wantAcknowledged(false)
		p.change("child", tu.Paused(true))
		p.pass(time.Second)
		p.wants("child", "True Paused 2: held by spec.syncPaused, disk (full) of this process; drained: agent, hub")
		p.change("child", tu.Unpaused())
		p.pass(time.Second)
		p.wants("child", "False Syncing 3: not all parties are paused; agent is held by disk (full) of this process")
		release()
		p.pass(time.Second)
		p.wants("child", syncing3)
	})
}
