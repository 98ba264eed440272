//go:build go1.25

package syncgate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusternet/syncgate/syncgate"
)

// These tests check who deploys, by the modes of the agent and of the ManagedCluster.

const (
	push, pull, dual = syncgate.Push, syncgate.Pull, syncgate.Dual
	none, other      = syncgate.Mode(""), syncgate.Mode("pull")

	both, nobody      = syncgate.BothDeploy, syncgate.NobodyDeploys
	misleads, unknown = syncgate.SpecMisleads, syncgate.UnknownMode
	fine              = syncgate.ModeProblem(0)

	withPusher, noPush = true, false
)

// modeRow is a row of the table of who deploys.
type modeRow struct {
	agent     syncgate.Mode
	appPusher bool
	spec      syncgate.Mode
	agentIs   bool
	hubIs     bool
	problem   syncgate.ModeProblem
	remedy    string // a part of the error
}

// modeRows has every combination of modes, known and unknown.
var modeRows = []modeRow{
	{pull, withPusher, push, true, true, both, "set spec.syncMode to Pull, or start the agent with --cluster-sync-mode=Push, or start the agent with --cluster-sync-mode=Dual"},
	{pull, withPusher, dual, true, true, both, "set spec.syncMode to Pull, or start the agent with --cluster-sync-mode=Push, or start the agent with --cluster-sync-mode=Dual"},
	{push, withPusher, pull, false, false, nobody, "set spec.syncMode to Push, or set spec.syncMode to Dual, or start the agent with --cluster-sync-mode=Pull"},
	{dual, withPusher, pull, false, false, nobody, "or start the agent with --cluster-sync-mode=Pull"},
	{push, noPush, push, false, false, nobody, "start the agent with --feature-gates=AppPusher=true"},
	{push, noPush, dual, false, false, nobody, "start the agent with --feature-gates=AppPusher=true"},
	{push, noPush, pull, false, false, nobody, "start the agent with --cluster-sync-mode=Pull"},
	{pull, noPush, push, true, false, misleads, "set spec.syncMode to Pull"},
	{pull, noPush, dual, true, false, misleads, "set spec.syncMode to Pull"},
	{dual, noPush, push, true, false, misleads, "set spec.syncMode to Pull, or set spec.syncMode to Dual"},
	{dual, noPush, pull, true, false, fine, ""},
	{dual, noPush, dual, true, false, fine, ""},
	{pull, withPusher, pull, true, false, fine, ""},
	{pull, noPush, pull, true, false, fine, ""},
	{push, withPusher, push, false, true, fine, ""},
	{push, withPusher, dual, false, true, fine, ""},
	{dual, withPusher, push, false, true, fine, ""},
	{dual, withPusher, dual, false, true, fine, ""},

	// A mode is unknown.
	{none, withPusher, push, false, true, unknown, "start the agent with --cluster-sync-mode=Push"},
	{other, withPusher, dual, false, true, unknown, "start the agent with --cluster-sync-mode=Dual"},
	{none, withPusher, pull, false, false, nobody, "start the agent with --cluster-sync-mode=Pull"},
	{none, noPush, push, false, false, nobody, "set both modes to Dual"},
	{other, noPush, dual, false, false, nobody, "start the agent with --cluster-sync-mode=Dual"},
	{other, noPush, pull, false, false, nobody, "start the agent with --cluster-sync-mode=Pull"},
	{push, withPusher, none, false, true, unknown, "set spec.syncMode to Push"},
	{push, noPush, none, false, false, nobody, "set both modes to Dual"},
	{pull, withPusher, none, true, true, both, "set spec.syncMode to Pull"},
	{pull, noPush, none, true, false, unknown, "set spec.syncMode to Pull"},
	{dual, withPusher, other, false, true, unknown, "set spec.syncMode to Push"},
	{dual, noPush, other, true, false, unknown, "set spec.syncMode to Pull"},
	{none, withPusher, none, false, true, unknown, "set both modes to Dual"},
	{none, noPush, other, false, false, nobody, "set both modes to Dual"},
}

func TestModes(t *testing.T) {
	for _, row := range modeRows {
		t.Run(fmt.Sprintf("agent=%s,appPusher=%t,spec=%s", row.agent, row.appPusher, row.spec), func(t *testing.T) {
			if got := syncgate.AgentDeploys(row.agent, row.appPusher); got != row.agentIs {
				t.Errorf("AgentDeploys(%q, %t) = %t; want %t", row.agent, row.appPusher, got, row.agentIs)
			}
			if got := syncgate.HubDeploys(row.spec, row.appPusher); got != row.hubIs {
				t.Errorf("HubDeploys(%q, %t) = %t; want %t", row.spec, row.appPusher, got, row.hubIs)
			}
			row.checkError(t, syncgate.CheckMode(row.agent, row.appPusher, row.spec))
		})
	}
}

// checkError checks the result of CheckMode.
func (row modeRow) checkError(t *testing.T, err error) {
	if row.problem == fine {
		if err != nil {
			t.Errorf("CheckMode = %v; want nil", err)
		}
		return
	}
	var got *syncgate.ModeError
	if !errors.As(err, &got) {
		t.Fatalf("CheckMode = %v; want a *ModeError", err)
	}
	want := syncgate.ModeError{Problem: row.problem, AgentMode: row.agent, AppPusher: row.appPusher, SpecMode: row.spec}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("CheckMode (-want +got):\n%s", diff)
	}
	who := map[[2]bool]string{
		{true, true}: "both the hub and the agent deploy,", {false, false}: "neither the hub nor the agent deploys,",
		{true, false}: "only the agent deploys,", {false, true}: "only the hub deploys,",
	}[[2]bool{row.agentIs, row.hubIs}]
	for _, part := range []string{who, row.remedy, "--cluster-sync-mode=" + string(row.agent) + " "} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Error() = %s; want %q in it", err, part)
		}
	}
}

// Each remedy that an error names leaves no problem, and none moves deployments from
// the agent to the hub or back.
func TestRemediesOfEveryModeProblem(t *testing.T) {
	problems := map[syncgate.ModeProblem]int{}
	for _, row := range modeRows {
		if unknownMode(row.agent) || unknownMode(row.spec) {
			continue
		}
		problems[row.problem]++
		if row.problem == fine {
			continue
		}
		err := syncgate.CheckMode(row.agent, row.appPusher, row.spec)
		_, remedies, _ := strings.Cut(err.Error(), "; ")
		for _, remedy := range strings.Split(remedies, ", or ") {
			after := row.apply(remedy)
			if err := syncgate.CheckMode(after.agent, after.appPusher, after.spec); err != nil {
				t.Errorf("after %q of %v: CheckMode(%s, %t, %s) = %v; want nil", remedy, row.problem, after.agent, after.appPusher, after.spec, err)
			}
			if row.problem == misleads && !syncgate.AgentDeploys(after.agent, after.appPusher) {
				t.Errorf("after %q of %v: the hub deploys; want the agent", remedy, row.problem)
			}
		}
	}
	want := map[syncgate.ModeProblem]int{fine: 8, both: 2, nobody: 5, misleads: 3}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems of the 18 combinations (-want +got):\n%s", diff)
	}
}

func unknownMode(m syncgate.Mode) bool { return m != push && m != pull && m != dual }

// apply returns the modes after a remedy.
func (row modeRow) apply(remedy string) modeRow {
	name, value, _ := strings.Cut(strings.TrimPrefix(remedy, "start the agent with "), "=")
	switch name {
	case "--cluster-sync-mode":
		row.agent = syncgate.Mode(value)
	case "--feature-gates":
		row.appPusher = value == "AppPusher=true"
	default:
		row.spec = syncgate.Mode(strings.TrimPrefix(remedy, "set spec.syncMode to "))
	}
	return row
}

// An agent can refuse to start when it would deploy beside the hub.
func ExampleCheckMode() {
	err := syncgate.CheckMode(syncgate.Pull, true, syncgate.Dual)
	var modeError *syncgate.ModeError
	if errors.As(err, &modeError) {
		fmt.Println(modeError.Problem)
		fmt.Println(err)
	}
	// Output:
	// BothDeploy
	// syncgate: check who deploys: both the hub and the agent deploy, because the agent runs with --cluster-sync-mode=Pull and AppPusher=true, and spec.syncMode is "Dual"; set spec.syncMode to Pull, or start the agent with --cluster-sync-mode=Push, or start the agent with --cluster-sync-mode=Dual
}

func TestModeProblemString(t *testing.T) {
	for problem, want := range map[syncgate.ModeProblem]string{
		syncgate.BothDeploy: "BothDeploy", syncgate.NobodyDeploys: "NobodyDeploys",
		syncgate.UnknownMode: "UnknownMode", syncgate.SpecMisleads: "SpecMisleads", 9: "ModeProblem(9)",
	} {
		if got := problem.String(); got != want {
			t.Errorf("String() = %s; want %s", got, want)
		}
	}
}
