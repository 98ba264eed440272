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

// setUpTime bounds the set-up, so that a fault ends in an error, not in silence.
const setUpTime = 30 * time.Second

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
	cluster, err := localcluster.Start(setUp, localcluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = stopAll(out, err, cluster) }()
	if err := cluster.Apply(setUp, localcluster.ManagedClusterCRD()); err != nil {
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

	// What an agent has:
	gate, err := syncgate.New(client, own.namespace, own.id, syncgate.Options{})
	if err != nil {
		return err
	}
	reporter, err := report.New(client, gate, report.Options{})
	if err != nil {
		return err
	}
	// What a hub has:
	clusters, err := informer.ForHub(client, informer.Options{})
	if err != nil {
		return err
	}
	hub, err := syncgate.NewHub(clusters, syncgate.Options{})
	if err != nil {
		return err
	}

	began := time.Now()
	ctx, members := newGroup(ctx)
	defer func() {
		out.step("stopping the agent, the hub and the parent cluster")
		if stopErr := members.stop(); err == nil {
			err = stopErr
		}
	}()
	members.start(ctx, gate.Run)
	members.start(ctx, reporter.Run) // in the agent, which deploys: it alone knows when its last write has ended
	members.start(ctx, hub.Run)
	if err := gate.WaitForSync(setUp); err != nil {
		return err
	}
	out.step("the gate of the agent of %s is in sync after %s: %s", own.name, took(time.Since(began)), gate.State().Phase)
	if err := hub.WaitForSync(setUp); err != nil {
		return err
	}
	out.step("the gates of the hub are in sync after %s: %s", took(time.Since(began)), phases(hub))

	deployer := newDeployer(gate)
	members.start(ctx, deployer.run)
	out.step("the deployer of %s starts (simulated): %d apps, one changes every %s, a write takes %s",
		own.name, len(applications), took(changeEvery), took(writeTakes))
	return play(ctx, &stage{
		out: out, kubeconfig: cluster.Kubeconfig(), operator: operator{client},
		gate: gate, deployer: deployer, hub: hub,
	})
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
