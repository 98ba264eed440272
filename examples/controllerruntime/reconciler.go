// Package controllerruntime shows a gate in a controller of
// sigs.k8s.io/controller-runtime: what a pause refuses is parked, and queued
// again on resume.
package controllerruntime

import (
	"context"
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusternet/syncgate/syncgate"
)

// Reconciler deploys to one child cluster, unless that is paused.
type Reconciler struct {
	gate    *syncgate.Gate
	deploy  func(context.Context, reconcile.Request) error
	backlog *syncgate.Backlog[reconcile.Request]
}

// Add adds a controller to mgr that calls deploy for each object of obj's type, and
// again whenever one changes or deploy fails. While the gate is closed deploy is
// not called; what would have been deployed is deployed on resume, once. The
// manager runs the gate too.
func Add(mgr manager.Manager, obj client.Object, gate *syncgate.Gate, deploy func(context.Context, reconcile.Request) error) error {
	r := &Reconciler{gate: gate, deploy: deploy}
	if err := mgr.Add(manager.RunnableFunc(gate.Run)); err != nil {
		return fmt.Errorf("adding the gate to the manager: %w", err)
	}
	// A source is started with the controller's queue, and before its workers:
	// that is where a backlog finds the queue.
	queue := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.backlog = syncgate.NewBacklog(queue.Add)
		return nil
	})
	if err := builder.ControllerManagedBy(mgr).For(obj).WatchesRawSource(queue).Complete(r); err != nil {
		return fmt.Errorf("adding the controller to the manager: %w", err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler. A parked request is no error: an
// error would be tried again, with a growing backoff, all the time of the pause.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	_, err := r.backlog.Do(ctx, r.gate, request, func(ctx context.Context) error {
		return r.deploy(ctx, request)
	})
	return reconcile.Result{}, err
}
