package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// setUpTime limits the set-up, so that a fault ends in an error.
const setUpTime = time.Minute

// stage is what the tour and -keep play on.
type stage struct {
	out        *printer
	kubeconfig string
	operator   operator
	gate       *syncgate.Gate // in the agent of own
	deployer   *deployer      // in the agent of own
	hub        *syncgate.Hub
}

// errLeft is in the error when something could not be stopped or removed.
var errLeft = errors.New("stopping the clusters")

// onStage sets the stage up, lets play do its part, and leaves nothing behind.
func onStage(ctx context.Context, out *printer, play func(context.Context, *stage) error) (err error) {
	out.step("starting a parent cluster: a Kubernetes API server with etcd, in a process of its own")
	if err := localcluster.Build(ctx); err != nil { // the first time it takes longer than the set-up may
		return err
	}
	setUp, cancel := context.WithTimeoutCause(ctx, setUpTime, fmt.Errorf("the set-up took longer than %v", setUpTime))
	defer cancel()
	cluster, err := startCluster(setUp, localcluster.Options{}, localcluster.ManagedClusterCRD())
	if cluster != nil {
		defer func() { err = stopAll(out, err, cluster) }()
	}
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		return fmt.Errorf("creating a client of the parent cluster: %w", err)
	}
	out.step("it is up at %s and serves ManagedClusters", cluster.URL())
	for _, c := range children {
		if err := register(setUp, client, c); err != nil {
			return err
		}
	}
	out.step("registered %s, %s and %s", children[0], children[1], children[2])

	ctx, members := newGroup(ctx)
	defer func() {
		out.step("stopping the agent, the hub and the parent cluster")
		if stopErr := members.stop(); err == nil {
			err = stopErr
		}
	}()
	s := &stage{out: out, kubeconfig: cluster.Kubeconfig(), operator: operator{client}}
	if err := s.start(ctx, setUp, client, members); err != nil {
		return err
	}
	return play(ctx, s)
}

// start starts an agent and a hub as members, and returns when their gates are in sync.
func (s *stage) start(ctx, setUp context.Context, client dynamic.Interface, members *group) (err error) {
	// What an agent has:
	if s.gate, err = syncgate.New(client, own.namespace, own.id, syncgate.Options{}); err != nil {
		return err
	}
	reporter, err := report.New(client, s.gate, report.Options{})
	if err != nil {
		return err
	}
	// What a hub has:
	clusters, err := informer.ForHub(client, informer.Options{})
	if err != nil {
		return err
	}
	if s.hub, err = syncgate.NewHub(clusters, syncgate.Options{}); err != nil {
		return err
	}

	began := time.Now()
	members.start(ctx, s.gate.Run)
	members.start(ctx, reporter.Run) // in the agent, which deploys: only it knows when its last write has ended
	members.start(ctx, s.hub.Run)
	if err := s.gate.WaitForSync(setUp); err != nil {
		return err
	}
	s.out.step("the gate of the agent of %s is in sync after %s: %s", own.name, took(time.Since(began)), s.gate.State().Phase)
	if err := s.hub.WaitForSync(setUp); err != nil {
		return err
	}
	s.out.step("the gates of the hub are in sync after %s: %s", took(time.Since(began)), phases(s.hub))

	s.deployer = newDeployer(s.gate)
	members.start(ctx, s.deployer.run)
	s.out.step("the deployer of %s starts (simulated): %d apps, one changes every %s, a write takes %s",
		own.name, len(applications), took(changeEvery), took(writeTakes))
	return nil
}

// stopAll stops the clusters, those that have started, and returns err with what it could not stop.
func stopAll(out *printer, err error, clusters ...*localcluster.Cluster) error {
	errs := make([]error, len(clusters))
	var stopping sync.WaitGroup
	for i, cluster := range clusters {
		if cluster != nil {
			stopping.Go(func() { errs[i] = cluster.Stop() })
		}
	}
	stopping.Wait()
	if stopErr := errors.Join(errs...); stopErr != nil {
		return errors.Join(fmt.Errorf("%w: %w", errLeft, stopErr), err)
	}
	if !slices.Contains(clusters, nil) { // the error tells more
		out.step("stopped, nothing is left behind; it took %s", took(time.Since(out.start)))
	}
	return err
}

func phases(hub *syncgate.Hub) string {
	var all []string
	for _, c := range children {
		if gate, ok := hub.GateOf(c.namespace, c.name); ok {
			all = append(all, fmt.Sprintf("%s %s", c.name, gate.State().Phase))
		}
	}
	return strings.Join(all, ", ")
}
