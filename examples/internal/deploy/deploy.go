// Package deploy applies the Descriptions of Clusternet to a child cluster, and lets
// a gate decide about each write. It is what the agent and the hub of the examples
// share.
//
// A [Deployer] serves one child cluster. It applies the objects of spec.raw to the
// child by server-side apply. It deletes objects that were removed from a Description
// or whose Description is deleted, and it repairs what others change. An object is
// written only if a dry run shows that this would change it. An object that exists
// already and has no owner becomes the Description's, and is deleted with it. Whoever
// may write Descriptions of a cluster may do in that cluster what the deployer may do.
//
// # While the cluster is paused
//
// A paused child gets no request. The requests for a Description are two operations:
// one reads all objects, the other one writes them. Before each request the deployer
// asks the gate whether to go on. A pause that comes in between ends the operation, so
// it waits for one request, and is then acknowledged. It never waits for the parent. Open
// watches stay open. A watch that ends during the pause begins again on resume.
//
// What the gate refuses or ends early is parked in a [syncgate.Backlog] by the name of
// its Description. The status of the Description then says Pending and who holds the
// cluster.
//
// On resume each parked Description is reconciled once, as it is by then. What was
// removed from it during the pause is still known: status.manifestStatuses lists what
// it has in the child. An object is added to this list before it is written, and is
// removed from it when it is deleted. So neither a pause nor a restart forgets one.
package deploy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/clusternet/syncgate/syncgate"
)

const (
	// workers is how many Descriptions of one child are reconciled at a time. Each
	// child has its own workers, so a child that does not answer delays no other.
	workers = 4

	// A Description that fails is retried soon, and then less often.
	firstRetry = 5 * time.Millisecond
	maxRetry   = 15 * time.Second

	// tooLargeRetry is for a Description whose status does not fit. Only an edit helps,
	// and is reconciled at once.
	tooLargeRetry = 10 * time.Minute
)

// Options of a [Deployer]. All but Mine and Lost are required.
type Options struct {
	Parent       dynamic.Interface         // for the Descriptions
	Descriptions cache.SharedIndexInformer // of [NewInformer], run by the caller
	Namespace    string                    // of the Descriptions for the child
	Gate         *syncgate.Gate            // of the child, run by the caller

	// Child returns how to reach the child. It is called when the child is needed for
	// the first time, and again after each pause, when another ManagedCluster stands
	// for the cluster, and when the child no longer accepts the credentials. It should
	// not block for long.
	Child func() (*rest.Config, error)

	// Mine reports whether to deploy to this cluster. It is called each time. When it
	// becomes true, call Add. Nil: always.
	Mine func() bool

	// Lost reports whether the cluster is gone for good. Deleted Descriptions of a
	// lost cluster are released without touching it. Nil: never.
	Lost func(context.Context) (bool, error)
}

// Deployer deploys to one child cluster.
type Deployer struct {
	opts    Options
	cluster Cluster
	queue   workqueue.TypedDelayingInterface[string] // keys of Descriptions
	agenda  *agenda                                  // what is due for them
	retries workqueue.TypedRateLimiter[string]       // of Descriptions
	backlog *syncgate.Backlog[string]

	takeovers takeovers
	watches   sync.WaitGroup // of the child
	connected atomic.Bool    // there is a child

	mu      sync.Mutex // guards the fields below
	child   *child
	config  *rest.Config // that child was made of
	epoch   epoch        // in which config was read
	refresh bool         // read config again
}

// New returns a deployer. It does no I/O. Its queue has goroutines, which Run ends.
func New(opts Options) *Deployer {
	d := &Deployer{
		opts: opts, cluster: Cluster{opts.Namespace, opts.Gate.ClusterID()},
		queue: workqueue.NewTypedDelayingQueue[string](), agenda: newAgenda(),
		// Each key has a limit of its own: with a common one the failures of one
		// Description would delay the others.
		retries: workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, maxRetry),
	}
	d.backlog = syncgate.NewBacklog(d.Add)
	return d
}

// Add queues the Description namespace/name to be reconciled. It does not block.
func (d *Deployer) Add(key string) { d.schedule(key, whole, 0) }

// retry queues it too, with a delay that grows with each failure.
func (d *Deployer) retry(key string) { d.schedule(key, whole, d.retries.When(key)) }

// schedule queues an object of a Description, or the whole of it.
func (d *Deployer) schedule(key string, id identity, delay time.Duration) {
	if d.agenda.add(key, id, delay) {
		d.queue.AddAfter(key, delay)
	}
}

// Run deploys until ctx ends. It begins when the gate and the Descriptions have synced.
// A write in flight is given up when ctx ends. The server may carry it out all the same,
// and an object is written whole or not at all. Run returns when nothing of it is left.
// It fails when the gate ends before it has synced.
func (d *Deployer) Run(ctx context.Context) error {
	defer d.queue.ShutDown()
	if err := d.opts.Gate.WaitForSync(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("deploying to cluster %s: %w", d.opts.Gate.ClusterID(), err)
	}
	cache.WaitForCacheSync(ctx.Done(), d.opts.Descriptions.HasSynced)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { d.work(ctx) })
	}
	<-ctx.Done()
	d.queue.ShutDown()
	running.Wait()
	d.disconnect()
	d.watches.Wait()
	for _, key := range Keys(d.opts.Descriptions.GetIndexer(), d.cluster) {
		d.backlog.Forget(key)
	}
	return nil
}
