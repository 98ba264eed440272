package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/agent"
	"github.com/clusternet/syncgate/examples/hub"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/report"
)

const (
	// soon limits each wait of the tour of the fleet. A longer wait is a fault.
	soon = time.Minute

	// pauseTime is how long a paused child is watched for requests.
	pauseTime = time.Second

	// settleTime is how long children are watched for writes too many.
	settleTime = 500 * time.Millisecond
)

// fleet is what the tour of the fleet plays on.
type fleet struct {
	out      *printer
	parent   *localcluster.Cluster
	operator operator
	sites    []*site
}

// onFleet sets the fleet up, takes the tour, and leaves nothing behind.
func onFleet(ctx context.Context, out *printer) (err error) {
	out.step("starting a parent cluster and three children: four Kubernetes API servers with etcd")
	if err := localcluster.Build(ctx); err != nil { // the first time it takes longer than the set-up may
		return err
	}
	setUp, cancel := context.WithTimeoutCause(ctx, setUpTime, fmt.Errorf("the set-up took longer than %v", setUpTime))
	defer cancel()
	f := &fleet{out: out, sites: newSites()}
	defer func() {
		clusters := []*localcluster.Cluster{f.parent}
		for _, s := range f.sites {
			clusters = append(clusters, s.cluster)
		}
		err = stopAll(out, err, clusters...)
	}()
	if err := f.start(setUp); err != nil {
		return err
	}
	pull, push := f.sites[0], f.sites[1:]
	out.step("they are up; registered %s with sync mode %s, %s with %s", pull.name, pull.mode, names(push), push[0].mode)

	began := time.Now()
	ctx, members := newGroup(ctx)
	defer func() {
		out.step("stopping the deployers and the clusters")
		if stopErr := members.stop(); err == nil {
			err = stopErr
		}
	}()
	members.start(ctx, func(ctx context.Context) error {
		return hub.Run(ctx, hub.Options{Parent: as(hubName, f.parent), Child: f.reach})
	})
	for _, s := range f.sites {
		members.start(ctx, func(ctx context.Context) error {
			return agent.Run(ctx, agent.Options{
				Parent: as(agentName, f.parent), Child: as(agentName, s.cluster),
				Namespace: s.namespace, ClusterID: s.id, SyncMode: s.mode, AppPusher: s.appPusher,
			})
		})
	}
	out.step("started the deployers, those of examples/hub and examples/agent: a hub, and an agent for each child")
	if err := f.awaitReports(ctx); err != nil {
		return err
	}
	out.step("  %s later the agents have told the hub that it may deploy to %s only", took(time.Since(began)), names(push))
	return f.tour(ctx)
}

// start starts the clusters and registers the children.
func (f *fleet) start(ctx context.Context) error {
	all, starting := newGroup(ctx)
	starting.start(all, func(ctx context.Context) (err error) {
		f.parent, err = startCluster(ctx, localcluster.Options{}, localcluster.DescriptionCRD(), localcluster.ManagedClusterCRD())
		return err
	})
	for _, s := range f.sites {
		starting.start(all, s.start)
	}
	if err := starting.wait(); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(f.parent.Config())
	if err != nil {
		return fmt.Errorf("creating a client of the parent cluster: %w", err)
	}
	f.operator = operator{client}
	for _, s := range f.sites {
		s.parent = client
		if err := register(ctx, client, s.child); err != nil {
			return err
		}
	}
	return nil
}

// reach tells the hub how to reach a child.
func (f *fleet) reach(_ string, id types.UID) (*rest.Config, error) {
	for _, s := range f.sites {
		if s.id == id {
			return as(hubName, s.cluster), nil
		}
	}
	return nil, fmt.Errorf("there is no cluster %s", id)
}

// awaitReports waits until each agent has told the hub whether it may deploy.
func (f *fleet) awaitReports(ctx context.Context) error {
	return until(ctx, "the agents to report", func(ctx context.Context) (bool, error) {
		for _, s := range f.sites {
			reported, known, err := s.reported(ctx)
			if err != nil || !known {
				return false, err
			}
			if reported != s.appPusher {
				return false, bug("the agent of %s has reported appPusher=%t, but has %t", s.name, reported, s.appPusher)
			}
		}
		return true, nil
	})
}

// tour deploys an application, and pauses first a child that the hub deploys to, then one whose agent does.
func (f *fleet) tour(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tourTime, fmt.Errorf("the tour took longer than %v", tourTime))
	defer cancel()
	first := images("v1", "v1")
	f.out.step("creating a Description for each child, as Clusternet does for a Subscription: %s", list(first))
	if err := f.deploy(ctx, first, apps); err != nil {
		return err
	}
	if err := f.settle(ctx, first); err != nil {
		return err
	}
	if err := f.pause(ctx, f.sites[1], "v1", "v2"); err != nil {
		return err
	}
	if err := f.pause(ctx, f.sites[0], "v2", "v3"); err != nil {
		return err
	}
	table, err := f.table(ctx)
	if err != nil {
		return err
	}
	f.out.step("the children at the end, with the writes and requests that deployers have sent to their servers:")
	f.out.block(table)
	return nil
}

// pause pauses one child, edits the application from one version to the next, and resumes.
func (f *fleet) pause(ctx context.Context, paused *site, was, is string) error {
	level, drifted := images(is, "v1"), images(was, hotfix)
	if err := f.hold(ctx, paused); err != nil {
		return err
	}
	f.out.step("editing the application for all: %s", list(changed(level)))
	if err := f.deploy(ctx, level, changed(apps)); err != nil {
		return err
	}
	if err := paused.drift(ctx); err != nil {
		return err
	}
	f.out.step("somebody changes an app on %s itself: %s", paused.name, drifted[1])
	if err := pass(ctx, pauseTime); err != nil {
		return err
	}
	if err := paused.check(ctx, drifted); err != nil {
		return err
	}
	f.out.step("%s later %s still has %s", took(pauseTime), paused.name, list(drifted))
	paused.meanwhile = paused.log.requests()[paused.before:]
	paused.heldFor = time.Since(paused.held)
	if len(paused.meanwhile) > 0 {
		return bug("watching %s: deployers have sent it %s during the pause; want none", paused.name, number(len(paused.meanwhile), "request"))
	}
	f.out.step("  deployers have sent its server no request, read or write, in the %s since the acknowledgement", took(paused.heldFor))

	paused.held = time.Time{}
	paused.due = append(paused.due, apps...)
	sent := time.Now()
	if err := f.operator.setPaused(ctx, paused.child, false); err != nil {
		return err
	}
	at, err := paused.await(ctx, level)
	if err != nil {
		return err
	}
	f.out.step("patched spec.syncPaused=false on %s: after %s it has %s", paused, took(at.Sub(sent)), list(level))
	if err := f.settle(ctx, level); err != nil {
		return err
	}
	f.out.step("  by only %s of %s, each object once: %s", number(len(apps), "write"), paused.deployer(), list(apps))
	others := slices.DeleteFunc(slices.Clone(f.sites), func(s *site) bool { return s == paused })
	f.out.step("  %s were not affected: %s each since the pause, those of the edit",
		names(others), number(len(changed(apps)), "write"))
	return nil
}

// hold pauses a child and waits for the acknowledgement.
func (f *fleet) hold(ctx context.Context, s *site) error {
	within, cancel := withinSoon(ctx)
	defer cancel()
	sent := time.Now()
	if err := f.operator.setPaused(within, s.child, true); err != nil {
		return err
	}
	message, err := f.operator.awaitCondition(within, s.child, "True", "Paused")
	if err != nil {
		return err
	}
	s.held, s.before = time.Now(), len(s.log.requests())
	f.out.step("patched spec.syncPaused=true on %s, to which %s deploys", s, s.deployer())
	f.out.step("  acknowledged after %s: %s=True, %q", took(s.held.Sub(sent)), report.ConditionType, message)
	return nil
}

// deploy lets all children get these images at the same time, by one write of each app that is due, and waits
// until they have them, or, for a child that is held, until its Description says that it has not.
func (f *fleet) deploy(ctx context.Context, want, due []string) error {
	all, arriving := newGroup(ctx)
	for _, s := range f.sites {
		if s.isHeld() {
			arriving.start(all, func(ctx context.Context) error { return f.deployHeld(ctx, s, want) })
			continue
		}
		s.due = append(s.due, due...)
		arriving.start(all, func(ctx context.Context) error {
			sent := time.Now()
			if err := s.describe(ctx, want); err != nil {
				return err
			}
			at, err := s.await(ctx, want)
			if err == nil {
				f.out.step("  %s has it after %s, by %s of %s", s.name, took(at.Sub(sent)), number(len(due), "write"), s.deployer())
			}
			return err
		})
	}
	return arriving.wait()
}

func (f *fleet) deployHeld(ctx context.Context, s *site, want []string) error {
	sent := time.Now()
	if err := s.describe(ctx, want); err != nil {
		return err
	}
	reason, err := s.awaitPending(ctx)
	if err == nil {
		f.out.step("  %s does not have it yet: its Description says Pending after %s\n           %q", s.name, took(time.Since(sent)), reason)
	}
	return err
}

// settle proves that all children go on having these images, by the writes that were due.
func (f *fleet) settle(ctx context.Context, want []string) error {
	if err := pass(ctx, settleTime); err != nil {
		return err
	}
	for _, s := range f.sites {
		if err := s.check(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// table shows what each child has, and what it took.
func (f *fleet) table(ctx context.Context) (string, error) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	row := func(cells ...any) { _, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%s\t%v\n", cells...) } // into memory
	row("NAME", "DEPLOYER", "HAS", "WRITES", "PAUSED FOR", "REQUESTS IN THE PAUSE")
	for _, s := range f.sites {
		got, err := s.images(ctx)
		if err != nil {
			return "", err
		}
		total := len(writes(s.log.requests()))
		if s.heldFor == 0 {
			row(s.name, s.deployer(), list(got), total, "-", "-")
			continue
		}
		row(s.name, s.deployer(), list(got), total, took(s.heldFor), len(s.meanwhile))
	}
	_ = w.Flush()
	return text.String(), nil
}

// until waits for what must come soon.
func until(ctx context.Context, what string, is func(context.Context) (bool, error)) error {
	ctx, cancel := withinSoon(ctx)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, is); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, causeOf(ctx, err))
	}
	return nil
}

func withinSoon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, soon, bug("it has not come within %v", soon))
}

// bug is the error of what can't be.
func bug(format string, args ...any) error {
	return fmt.Errorf(format+"; please report this bug", args...)
}

func list(items []string) string { return strings.Join(items, ", ") }

// names is "child-2 and child-3".
func names(sites []*site) string {
	var all []string
	for _, s := range sites {
		all = append(all, s.name)
	}
	return strings.Join(all, " and ")
}
