package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusternet/syncgate/syncgate"
)

// checkEvery is how often the gate is asked for a fault, as a liveness probe would.
const checkEvery = time.Second

// observe follows a cluster of a real parent cluster until ctx ends. Whoever adds to it: it must not write.
func observe(ctx context.Context, out *printer, opts options) (err error) {
	config, err := clientcmd.BuildConfigFromFlags("", opts.kubeconfig)
	if err != nil {
		return fmt.Errorf("loading -kubeconfig (pass a file that kubectl can use): %w", err)
	}
	config.UserAgent = "syncgate-quickstart"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client of the parent cluster: %w", err)
	}
	gate, err := syncgate.New(client, opts.namespace, opts.clusterID, syncgate.Options{})
	if err != nil {
		return usageError{err} // the namespace or the cluster ID can't be
	}

	ctx, members := newGroup(ctx)
	defer func() {
		if stopErr := members.stop(); err == nil {
			err = stopErr
		}
	}()
	members.start(ctx, gate.Run)
	members.start(ctx, func(ctx context.Context) error { return printFaults(ctx, out, gate) })
	out.step("asking %s for the ManagedCluster in namespace %s, for up to %v", config.Host, opts.namespace, opts.timeout)
	first, cancel := context.WithTimeoutCause(ctx, opts.timeout, fmt.Errorf("no answer within %v", opts.timeout))
	defer cancel()
	if err := gate.WaitForSync(first); err != nil {
		return err
	}
	deployer := newDeployer(gate)
	members.start(ctx, deployer.run)
	out.step("watching, until Ctrl-C; the deployer only counts the writes that it would make")
	live(ctx, out, gate, deployer, "counted")
	return nil
}

// printFaults prints once that the gate has a fault, and once that it is over.
func printFaults(ctx context.Context, out *printer, gate *syncgate.Gate) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	faulty := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := gate.Check(nil)
		switch {
		case err != nil && !faulty:
			out.step("fault, it keeps trying: %v", err)
		case err == nil && faulty:
			out.step("the fault is over")
		}
		faulty = err != nil
	}
}
