package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// keep leaves the pausing to the user, and prints what happens until ctx ends.
func keep(ctx context.Context, s *stage) error {
	s.out.step("now it is your turn; in another terminal:")
	s.out.block(commands(s.kubeconfig))
	s.out.step("watching; Ctrl-C ends it")
	defer s.hub.OnChange(func(c syncgate.Change) {
		if c.ClusterID != own.id { // the agent prints its own
			s.out.step("hub: %s", describe(c))
		}
	})()
	live(ctx, s.out, s.gate, s.deployer, "done")
	return nil
}

// commands returns what to type, in lines that a shell takes as they are.
func commands(kubeconfig string) string {
	kubectl := "kubectl --kubeconfig " + quote(kubeconfig)
	change := func(what, how string) string {
		return fmt.Sprintf("# %s\n%s -n %s \\\n  %s", what, kubectl, own.namespace, how)
	}
	hold := syncgate.HoldPrefix + backup
	return strings.Join([]string{
		"# list the clusters, with their flag in the PAUSED column\n" + kubectl + " get mcls -A",
		change("pause "+own.name, "patch mcls "+own.name+` --type=merge -p '{"spec":{"syncPaused":true}}'`),
		change("wait until the pause is in effect (no operation is in flight)",
			"wait mcls/"+own.name+" --for=condition="+report.ConditionType+" --timeout=1m"),
		change("resume it", "patch mcls "+own.name+` --type=merge -p '{"spec":{"syncPaused":false}}'`),
		change("hold it in the name of somebody else, beside the flag or without it",
			"annotate mcls "+own.name+" "+hold+"='nightly backup'"),
		change("release that hold", "annotate mcls "+own.name+" "+hold+"-"),
	}, "\n")
}

// quote quotes an argument for a shell, if it must be.
func quote(arg string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+", r)
	}
	if strings.IndexFunc(arg, func(r rune) bool { return !plain(r) }) < 0 {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}
