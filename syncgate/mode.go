package syncgate

import (
	"fmt"
	"slices"
	"strings"
)

// AgentDeploys reports whether an agent that runs with agentMode deploys to its
// cluster. With Pull it always does. With Dual it does unless the feature gate
// AppPusher leaves that to the hub. An agent with an unknown mode deploys nothing.
func AgentDeploys(agentMode Mode, appPusher bool) bool {
	return agentMode == Pull || agentMode == Dual && !appPusher
}

// HubDeploys reports whether the hub deploys to a cluster: when appPusher, which is
// status.appPusher of the ManagedCluster, is true, and specMode, which is
// spec.syncMode, is not Pull. An unknown mode counts as not Pull. While the agent
// has not reported appPusher, it is not known who deploys, and the hub should do
// nothing.
func HubDeploys(specMode Mode, appPusher bool) bool {
	return specMode != Pull && appPusher
}

// ModeProblem says what is wrong with the modes of a cluster.
type ModeProblem int

const (
	// BothDeploy means that the hub and the agent write the same applications.
	BothDeploy ModeProblem = iota + 1
	// NobodyDeploys means that neither the hub nor the agent deploys.
	NobodyDeploys
	// UnknownMode means that one side deploys, but one of the modes is not Push, Pull or Dual.
	UnknownMode
	// SpecMisleads means that only the agent deploys, but spec.syncMode says that the hub
	// does.
	SpecMisleads
)

// String returns the name of p.
func (p ModeProblem) String() string {
	switch p {
	case BothDeploy:
		return "BothDeploy"
	case NobodyDeploys:
		return "NobodyDeploys"
	case UnknownMode:
		return "UnknownMode"
	case SpecMisleads:
		return "SpecMisleads"
	default:
		return fmt.Sprintf("ModeProblem(%d)", int(p))
	}
}

// ModeError says how sync modes conflict. It has the arguments of CheckMode.
type ModeError struct {
	Problem   ModeProblem
	AgentMode Mode
	AppPusher bool
	SpecMode  Mode
}

// CheckMode checks that exactly one of hub and agent deploys to a cluster, and that
// spec.syncMode says which. Clusternet copies the agent's flag to spec.syncMode only
// when it registers the cluster, so the two may differ later.
//
// agentMode is the agent's flag --cluster-sync-mode. appPusher is its feature gate
// AppPusher, which status.appPusher repeats. specMode is spec.syncMode. The error is
// nil or a *ModeError. An agent calls CheckMode when it starts; Gate.WatchMode
// repeats the check.
func CheckMode(agentMode Mode, appPusher bool, specMode Mode) error {
	if problem := modeProblem(agentMode, appPusher, specMode); problem != 0 {
		return &ModeError{Problem: problem, AgentMode: agentMode, AppPusher: appPusher, SpecMode: specMode}
	}
	return nil
}

func modeProblem(agentMode Mode, appPusher bool, specMode Mode) ModeProblem {
	agent, hub := AgentDeploys(agentMode, appPusher), HubDeploys(specMode, appPusher)
	switch {
	case agent && hub:
		return BothDeploy
	case !agent && !hub:
		return NobodyDeploys
	case !slices.Contains(modes, agentMode) || !slices.Contains(modes, specMode):
		return UnknownMode
	case agent && (specMode == Push || agentMode == Pull && specMode == Dual):
		return SpecMisleads
	}
	return 0
}

var modes = []Mode{Push, Pull, Dual}

// Error says who deploys, why, and what to change.
func (e *ModeError) Error() string {
	who := "only the agent deploys"
	switch {
	case e.Problem == BothDeploy:
		who = "both the hub and the agent deploy"
	case e.Problem == NobodyDeploys:
		who = "neither the hub nor the agent deploys"
	case HubDeploys(e.SpecMode, e.AppPusher):
		who = "only the hub deploys"
	}
	return fmt.Sprintf("syncgate: check who deploys: %s, because the agent runs with --cluster-sync-mode=%s and AppPusher=%t, and spec.syncMode is %q; %s",
		who, e.AgentMode, e.AppPusher, e.SpecMode, strings.Join(e.remedies(), ", or "))
}

// remedies returns each single change that leaves no problem and does not move the
// deployments from one side to the other.
func (e *ModeError) remedies() []string {
	var remedies []string
	deployer := [2]bool{AgentDeploys(e.AgentMode, e.AppPusher), HubDeploys(e.SpecMode, e.AppPusher)}
	try := func(remedy string, agentMode Mode, appPusher bool, specMode Mode) {
		moves := deployer[0] != deployer[1] &&
			deployer != [2]bool{AgentDeploys(agentMode, appPusher), HubDeploys(specMode, appPusher)}
		if !moves && modeProblem(agentMode, appPusher, specMode) == 0 {
			remedies = append(remedies, remedy)
		}
	}
	for _, m := range modes {
		try("set spec.syncMode to "+string(m), e.AgentMode, e.AppPusher, m)
	}
	for _, m := range modes {
		try("start the agent with --cluster-sync-mode="+string(m), m, e.AppPusher, e.SpecMode)
	}
	try(fmt.Sprintf("start the agent with --feature-gates=AppPusher=%t", !e.AppPusher), e.AgentMode, !e.AppPusher, e.SpecMode)
	if len(remedies) == 0 {
		remedies = append(remedies, "set both modes to Dual")
	}
	return remedies
}
