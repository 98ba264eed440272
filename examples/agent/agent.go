// Package agent is a Pull deployer with a gate. It runs in a child cluster and applies
// there what the parent cluster wants. The command is syncgate-agent.
//
// It follows the Descriptions of its cluster in its dedicated namespace. Package deploy
// applies them. This package shows how to wire a gate into an agent.
//
// # Who deploys
//
// As Clusternet's agent it deploys with SyncMode Pull, and with Dual unless AppPusher
// leaves that to the hub. Where the hub deploys, the agent writes nothing to the child
// but its Lease, and keeps reporting appPusher. A mismatch with spec.syncMode is reported
// at the start and when it appears, as a log line and an Event.
//
// # What a pause does not stop
//
// The heartbeat, the lease, the status of Descriptions and ManagedCluster, health,
// metrics, and open watches. Apart from its lease, a paused child gets no request.
//
// # Rights
//
// In its namespace of the parent: get, list and watch ManagedClusters and Descriptions,
// patch Descriptions and their status, update and patch the status of ManagedClusters,
// create and patch Events. In the child: get, list, watch, patch and delete what it deploys (patch
// creates, with server-side apply, and so needs create too), and get, create and update
// Leases.
package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/command"
	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/leader"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const (
	component = "syncgate-agent"

	defaultHeartbeat = 3 * time.Minute // as Clusternet's
	retryHeartbeat   = 5 * time.Second
)

// Options of an agent.
type Options struct {
	Parent, Child *rest.Config

	Namespace string        // the dedicated namespace of the cluster in the parent
	ClusterID types.UID     // spec.clusterId of its ManagedCluster
	SyncMode  syncgate.Mode // Push, Pull or Dual
	AppPusher bool          // the hub may deploy

	// LeaseNamespace is where in the child agents compete for a Lease; of several
	// agents one deploys. Empty: there is only this one.
	LeaseNamespace string
	LeaseDuration  time.Duration // 0: 15 seconds; at least 3

	Heartbeat time.Duration // how often to report to the parent; 0: 3 minutes
	Listener  net.Listener  // for health and metrics; nil: none

	Recorder record.EventRecorder // of Events in the parent; nil: none

	// Parties are the programs that must have drained before a pause is acknowledged, see
	// report.Options. It has to be the same for all of them. Nil: the agent and the hub.
	Parties []string
}

func (o *Options) validate() error {
	switch {
	case o.Parent == nil || o.Child == nil:
		return errors.New("the parent or the child is nil; pass the configuration of a client for each")
	case !slices.Contains([]syncgate.Mode{syncgate.Push, syncgate.Pull, syncgate.Dual}, o.SyncMode):
		return fmt.Errorf("the sync mode is %q; want Push, Pull or Dual", o.SyncMode)
	case o.SyncMode == syncgate.Push && !o.AppPusher:
		return errors.New("with sync mode Push the hub is to deploy, but it may not; allow AppPusher, or choose Pull or Dual")
	case o.LeaseDuration < 0 || o.Heartbeat < 0:
		return errors.New("a duration is negative; 0 is the default")
	}
	return nil
}

type agent struct {
	Options
	parent   dynamic.Interface
	registry *prometheus.Registry
	gate     atomic.Pointer[syncgate.Gate] // of this term of leading
}

// Run runs an agent until ctx ends. It returns nil then, and an error for invalid
// options and when a part of it ends early.
func Run(ctx context.Context, opts Options) error {
	a := &agent{Options: opts, registry: prometheus.NewRegistry()}
	if err := a.validate(); err != nil {
		return fmt.Errorf("running the agent: %w", err)
	}
	var err error
	if a.parent, err = dynamic.NewForConfig(a.Parent); err != nil {
		return fmt.Errorf("making a client of the parent cluster: %w", err)
	}
	if _, err := a.newGate(); err != nil { // report a mistake now, not in the first term
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return command.Serve(ctx, a.Listener, a.registry, a) })
	all.Go(func() error {
		lease := leader.Lease{Namespace: a.LeaseNamespace, Name: leaseName(a.ClusterID), Duration: a.LeaseDuration}
		return leader.Lead(ctx, a.Child, lease, a.lead)
	})
	return all.Wait()
}

// leaseName returns a name for the Lease. A cluster ID need not be one: the CRD takes
// capitals, for example.
func leaseName(clusterID types.UID) string {
	name := component + "-" + string(clusterID)
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		name = fmt.Sprintf("%s-%x", component, sha256.Sum256([]byte(clusterID)))
	}
	return name
}

func (a *agent) newGate() (*syncgate.Gate, error) {
	return syncgate.New(a.parent, a.Namespace, a.ClusterID, syncgate.Options{})
}

// lead is one term of leading. Each has a gate, a deployer and a backlog of its own:
// those of an earlier term have ended, and their gate refuses what is left of it.
func (a *agent) lead(ctx context.Context) error {
	gate, err := a.newGate()
	if err != nil {
		return err
	}
	collector := metrics.NewCollector(gate)
	a.registry.MustRegister(collector)
	defer a.registry.Unregister(collector)
	a.gate.Store(gate)
	defer a.gate.Store(nil)

	reporter, err := report.New(a.parent, gate, report.Options{
		Recorder: a.Recorder, Party: report.PartyAgent, Parties: command.Parties(a.Parties),
	})
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	parts := []func(context.Context) error{
		gate.Run,
		reporter.Run, // also where the hub deploys: it can't know that nothing is in flight here
		func(ctx context.Context) error { return a.heartbeat(ctx, gate) },
		func(ctx context.Context) error {
			return gate.WatchMode(ctx, a.SyncMode, a.AppPusher, report.ModeEvents(a.Recorder, gate))
		},
	}
	if syncgate.AgentDeploys(a.SyncMode, a.AppPusher) {
		deployer, err := a.deployer(gate)
		if err != nil {
			return err
		}
		parts = append(parts, deployer...)
	}
	for _, part := range parts {
		all.Go(func() error { return part(ctx) })
	}
	return all.Wait()
}

// deployer returns what runs where the agent deploys.
func (a *agent) deployer(gate *syncgate.Gate) ([]func(context.Context) error, error) {
	descriptions := deploy.NewInformer(a.parent, a.Namespace, a.ClusterID)
	deployer := deploy.New(deploy.Options{
		Parent: a.parent, Descriptions: descriptions, Namespace: a.Namespace, Gate: gate,
		Child: func() (*rest.Config, error) { return a.Child, nil },
	})
	if _, err := descriptions.AddEventHandler(deploy.OnChange(func(_ deploy.Cluster, key string) { deployer.Add(key) })); err != nil {
		return nil, fmt.Errorf("following the Descriptions: %w", err)
	}
	return []func(context.Context) error{
		func(ctx context.Context) error { descriptions.RunWithContext(ctx); return nil },
		deployer.Run,
	}, nil
}

// heartbeat reports to the parent that the agent runs, and whether the hub may deploy. A
// pause does not stop it.
func (a *agent) heartbeat(ctx context.Context, gate *syncgate.Gate) error {
	registered := make(chan struct{}, 1)
	defer gate.OnChange(func(c syncgate.Change) {
		if c.Old.UID != c.New.UID {
			select {
			case registered <- struct{}{}:
			default:
			}
		}
	})()
	every := cmp.Or(a.Heartbeat, defaultHeartbeat)
	next := time.NewTimer(every)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-registered:
		case <-next.C:
		}
		next.Reset(every)
		if err := a.beat(ctx, gate); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not report to the parent cluster, will try again")
			next.Reset(min(every, retryHeartbeat))
		}
	}
}

func (a *agent) beat(ctx context.Context, gate *syncgate.Gate) error {
	ctx, cancel := context.WithTimeout(ctx, retryHeartbeat)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"appPusher": a.AppPusher, "lastObservedTime": metav1.Now(),
	}})
	if err != nil {
		return fmt.Errorf("making the heartbeat: %w", err)
	}
	var errs []error
	for _, object := range gate.Objects() {
		_, err := a.parent.Resource(informer.Resource).Namespace(object.Namespace).
			Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			errs = append(errs, fmt.Errorf("writing the status of ManagedCluster %s: %w", object.NamespacedName, err))
		}
	}
	return errors.Join(errs...)
}

// Name and Check make the agent a health check. An agent that does not lead is healthy.
func (a *agent) Name() string { return component }

func (a *agent) Check(r *http.Request) error {
	if gate := a.gate.Load(); gate != nil {
		return gate.Check(r)
	}
	return nil
}
