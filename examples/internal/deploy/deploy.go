// Package deploy applies the Descriptions of Clusternet to a child cluster, and lets
// a gate decide about each write. It is what the agent and the hub of the examples
// share.
//
// A [Deployer] serves one child cluster. It brings the objects of spec.raw to the
// child by server-side apply, takes away what has left a Description or whose
// Description is deleted, and repairs what others change. The server decides what a
// change is: an object is written only if a dry run says that this would alter it.
// What is there already and nobody's becomes the Description's, and goes with it.
// Whoever writes Descriptions of a cluster may do there what the deployer may.
//
// # While the cluster is paused
//
// A paused child gets no request. The deployer asks the gate for each object: once
// before it reads the object, and once before it writes it. What was admitted before
// the pause ends first, and only then the pause is acknowledged. Open watches stay open.
// A watch that ends during the pause begins again on resume.
//
// What the gate refuses is parked in a [syncgate.Backlog] by the name of its
// Description. The status of the Description then says Pending and who holds the
// cluster.
//
// On resume each parked Description is reconciled once, as it is by then. What was
// removed from it during the pause is still known: status.manifestStatuses lists what
// it has in the child. An object is added to this list before it is written, and is
// removed from it when it is deleted. So neither a pause nor a restart forgets one.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/syncgate"
)

const (
	// workers is how many Descriptions of one child are dealt with at a time. Each
	// child has its own, so that one that does not answer delays no other.
	workers = 4

	// A Description that fails is tried again, soon and then less often.
	retryAtFirst = 5 * time.Millisecond
	retryAtLast  = 15 * time.Second

	// repairAfter paces what others change in the child: who fights over an object
	// there should not keep the parent busy.
	repairAfter = time.Second
)

// Options of a [Deployer]. All but Mine and Lost are required.
type Options struct {
	Parent       dynamic.Interface         // for the Descriptions
	Descriptions cache.SharedIndexInformer // of [NewInformer], run by the caller
	Namespace    string                    // of the Descriptions for the child
	Gate         *syncgate.Gate            // of the child, run by the caller

	// Child returns how to reach the child. It is asked when the child is needed for
	// the first time, and anew after each pause, when another ManagedCluster stands
	// for the cluster, and when the child does not accept the credentials any more. It
	// should not block for long.
	Child func() (*rest.Config, error)

	// Mine tells whether to deploy to this cluster: it is asked each time, and
	// what makes it true must be followed by Add. Nil: always.
	Mine func() bool

	// Lost tells that the cluster is gone for good: Descriptions that are deleted
	// are let go without touching it. Nil: never.
	Lost func(context.Context) (bool, error)
}

// Deployer deploys to one child cluster.
type Deployer struct {
	opts    Options
	cluster Cluster
	queue   workqueue.TypedRateLimitingInterface[string] // keys of Descriptions
	backlog *syncgate.Backlog[string]

	watches   sync.WaitGroup // of the child
	connected atomic.Bool    // there is a child

	mu     sync.Mutex // guards the fields below
	child  *child
	config *rest.Config // that child was made of
	epoch  epoch        // of when config was asked for
	ask    bool         // for it again
}

// epoch changes with what may mean that the child has moved.
type epoch struct {
	resumes        uint64
	managedCluster types.UID
}

func epochOf(gate *syncgate.Gate) epoch { return epoch{gate.Stats().Resumes, gate.State().UID} }

// New returns a deployer. It does no I/O; its queue has goroutines, which Run ends.
func New(opts Options) *Deployer {
	d := &Deployer{
		opts: opts, cluster: Cluster{opts.Namespace, opts.Gate.ClusterID()},
		// Of each key alone: a bucket for all would let the failures of one
		// Description delay the others.
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast)),
	}
	d.backlog = syncgate.NewBacklog(d.queue.Add)
	return d
}

// Add has the Description namespace/name looked at. It does not block.
func (d *Deployer) Add(key string) { d.queue.Add(key) }

// Run deploys, from when the gate and the Descriptions have synced until ctx ends. What
// is being written then is given up, and may be carried out by the server all the same:
// an object is whole either way. It returns once nothing of it is left, with an error
// when the gate ends before it has synced.
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
		running.Go(func() {
			for {
				key, shutdown := d.queue.Get()
				if shutdown {
					return
				}
				d.work(ctx, key)
			}
		})
	}
	<-ctx.Done()
	d.queue.ShutDown()
	running.Wait()
	d.disconnect()
	d.watches.Wait()
	return nil
}

var (
	// errParked is that the gate has refused a write: the backlog brings its
	// Description back.
	errParked = errors.New("parked until the cluster is resumed")

	// errOverdue is that something was written since it was read: what was decided may
	// be wrong, so it is done anew.
	errOverdue = errors.New("it has changed in between")
)

func (d *Deployer) work(ctx context.Context, key string) {
	defer d.queue.Done(key)
	err := d.sync(ctx, key)
	switch {
	case err == nil:
		d.queue.Forget(key)
		return
	case ctx.Err() != nil || errors.Is(err, syncgate.ErrStopped):
		return // the end: whoever comes next looks at all Descriptions anyway
	case apierrors.IsUnauthorized(err):
		d.askAgain()
	}
	d.queue.AddRateLimited(key)
	if log := klog.FromContext(ctx); errors.Is(err, errOverdue) {
		log.V(4).Info("Will look again", "description", key, "why", err)
	} else {
		log.Error(err, "Could not deploy, will try again", "description", key)
	}
}

// sync brings the child in line with a Description.
func (d *Deployer) sync(ctx context.Context, key string) error {
	if key == reconnect {
		if d.opts.Gate.Paused() || !d.mine() {
			return nil // the next opening comes back to it
		}
		_, err := d.connect(ctx)
		return err
	}
	// Nothing is asked for what is no business of ours.
	cached := d.cached(key)
	if cached == nil {
		d.backlog.Forget(key)
		return nil
	}
	if !d.ours(cached) || !cached.deleting() && !d.mine() {
		return nil
	}
	desc, err := d.read(ctx, key)
	if err != nil || desc == nil || !d.ours(desc) || desc.deleting() && !desc.finalized() {
		return err
	}
	if desc.deleting() {
		if lost, err := d.lost(ctx); err != nil {
			return err
		} else if lost {
			d.backlog.Forget(key)
			d.disconnect()
			return d.finalize(ctx, desc, false)
		}
	}
	if !d.mine() {
		return nil
	}
	switch err := d.bring(ctx, desc); {
	case errors.Is(err, errParked):
		return d.tell(ctx, desc, phasePending, "kept back when it was due: "+d.opts.Gate.State().Message)
	case ctx.Err() != nil, errors.Is(err, errOverdue), errors.Is(err, syncgate.ErrStopped): // not the Description's fault
		return err
	case err != nil:
		return errors.Join(err, d.tell(ctx, desc, phaseFailure, err.Error()))
	case desc.deleting():
		return d.finalize(ctx, desc, false)
	default:
		return d.tell(ctx, desc, phaseSuccess, "")
	}
}

// ours tells whether a Description is for us to deploy to the child.
func (d *Deployer) ours(desc *description) bool { return desc.generic() && desc.cluster() == d.cluster }

func (d *Deployer) mine() bool { return d.opts.Mine == nil || d.opts.Mine() }

func (d *Deployer) lost(ctx context.Context) (bool, error) {
	if d.opts.Lost == nil {
		return false, nil
	}
	return d.opts.Lost(ctx)
}

// bring does what a Description asks of the child. Its error is errParked when the
// gate has kept it from something.
func (d *Deployer) bring(ctx context.Context, desc *description) error {
	var c *child
	if err := d.do(ctx, desc, func(context.Context) (err error) {
		c, err = d.connect(ctx) // not with the context of this step: its watches outlast it
		return err
	}); err != nil {
		return err
	}
	objects, err := desc.objects()
	if desc.deleting() {
		// What can't be read was never written.
		ids := desc.owned()
		for _, id := range identities(objects) {
			if !desc.owns(id) {
				ids = append(ids, id)
			}
		}
		return d.prune(ctx, c, desc, ids)
	}
	if err != nil {
		return err
	}
	// First all is read, then all is written: what is written has to be known before
	// to whoever comes after a crash, and what can't be must not be listed.
	var fine []*unstructured.Unstructured
	var due []write
	var errs []error
	for _, object := range objects {
		var w *write
		err := d.request(ctx, desc, c, func(ctx context.Context) (err error) {
			w, err = d.plan(ctx, c, desc, object)
			return err
		})
		switch {
		case errors.Is(err, errParked) || errors.Is(err, errOverdue) || ctx.Err() != nil:
			return err
		case err != nil:
			errs = append(errs, err)
			continue
		case w != nil:
			due = append(due, *w)
		}
		fine = append(fine, object)
	}
	if err := d.finalize(ctx, desc, true); err != nil {
		return err
	}
	desc.enter(fine)
	if err := d.saveStatus(ctx, desc); err != nil {
		return err
	}
	for _, w := range due {
		err := d.request(ctx, desc, c, func(ctx context.Context) error {
			klog.FromContext(ctx).V(2).Info("Applying", "object", identityOf(w.object).String(), "description", desc.key())
			return c.apply(ctx, w.resource, w.object)
		})
		if errors.Is(err, errParked) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err // what has left may be what the rest still needs
	}
	left := slices.DeleteFunc(desc.owned(), func(id identity) bool {
		return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return identityOf(o).same(id) })
	})
	return d.prune(ctx, c, desc, left)
}

// write is an object that is to be applied.
type write struct {
	resource dynamic.ResourceInterface
	object   *unstructured.Unstructured
}

// plan returns what to write for an object, or nil if that would change nothing.
func (d *Deployer) plan(ctx context.Context, c *child, desc *description, object *unstructured.Unstructured) (*write, error) {
	id := identityOf(object)
	resource, err := c.resource(ctx, id)
	if err != nil {
		return nil, err
	}
	object = desc.mark(object)
	live, err := c.get(ctx, resource, id)
	if err != nil {
		return nil, err
	}
	if live != nil {
		if owner := ownerOf(live); owner != desc.key() && d.wants(owner, id) {
			return nil, fmt.Errorf("applying %s: Description %s has it too; remove it from one of them", id, owner)
		}
		if live.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("applying %s: it is being deleted; it is created anew once it is gone", id)
		}
		if differs, err := c.differs(ctx, resource, object, live); err != nil || !differs {
			return nil, err
		}
	}
	return &write{resource, object}, nil
}

// prune deletes objects that the Description owns, and takes them off its list.
func (d *Deployer) prune(ctx context.Context, c *child, desc *description, ids []identity) error {
	if len(ids) == 0 {
		return nil
	}
	wanted := d.wantedByOthers(desc)
	var errs []error
	for _, id := range ids {
		err := d.delete(ctx, c, desc, id, wanted[id.unversioned()])
		switch {
		case err == nil && !d.current(c): // what is gone there may be here
			return errOverdue
		case err == nil:
			desc.leave(id)
		case errors.Is(err, errParked) || ctx.Err() != nil:
			return err
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// delete deletes an object, unless it belongs to another Description. That one is heir
// if it wants the object and does not have it yet: nothing is deleted in between.
func (d *Deployer) delete(ctx context.Context, c *child, desc *description, id identity, heir string) error {
	var resource dynamic.ResourceInterface
	var live *unstructured.Unstructured
	if err := d.request(ctx, desc, c, func(ctx context.Context) (err error) {
		resource, live, err = c.find(ctx, id)
		return err
	}); err != nil || live == nil || live.GetDeletionTimestamp() != nil {
		return err
	}
	switch owner := ownerOf(live); {
	case owner != desc.key() && (d.wants(owner, id) || d.has(owner, id)):
		return nil // it has been taken over
	case owner != desc.key() && !desc.owns(id):
		return nil // it has never been ours
	case heir != "":
		d.queue.Add(heir)
		return fmt.Errorf("leaving %s to Description %s: that has not taken it over yet", id, heir)
	}
	return d.request(ctx, desc, c, func(ctx context.Context) error {
		klog.FromContext(ctx).V(2).Info("Deleting", "object", id.String(), "description", desc.key())
		err := c.delete(ctx, resource, live)
		if apierrors.IsConflict(err) {
			return fmt.Errorf("%w: %w", errOverdue, err)
		}
		return err
	})
}

// request runs fn, which sends requests to the child, or parks the Description. The child
// may have moved in a pause that has come and gone since it was connected to.
func (d *Deployer) request(ctx context.Context, desc *description, c *child, fn func(context.Context) error) error {
	return d.do(ctx, desc, func(ctx context.Context) error {
		if !d.current(c) {
			return errOverdue
		}
		return fn(ctx)
	})
}

// seen is called with the owner that an object of the child is marked with, when it has
// come, changed or gone. Anybody there can write a mark, so it need not be one of ours.
func (d *Deployer) seen(owner string) {
	if desc := d.cached(owner); desc != nil && desc.cluster() == d.cluster {
		d.queue.AddAfter(owner, repairAfter)
	}
}

// do runs fn, or parks the Description.
func (d *Deployer) do(ctx context.Context, desc *description, fn func(context.Context) error) error {
	parked, err := d.backlog.Do(ctx, d.opts.Gate, desc.key(), fn)
	if parked {
		klog.FromContext(ctx).V(4).Info("Parked", "description", desc.key())
		return errParked
	}
	return err
}

// current tells whether a child is the one to write to.
func (d *Deployer) current(c *child) bool {
	now := epochOf(d.opts.Gate)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.child == c && d.epoch == now
}

// cached returns a Description as the informer has it, or nil.
func (d *Deployer) cached(key string) *description {
	object, exists, err := d.opts.Descriptions.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	return newDescription(object.(*unstructured.Unstructured))
}

// read returns a Description as it is now, or nil. What the informer has may be older
// than the status that was written last: then "nothing to write" would leave that.
func (d *Deployer) read(ctx context.Context, key string) (*description, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, fmt.Errorf("reading Description %s: %w", key, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	object, err := d.opts.Parent.Resource(Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Description %s: %w", key, err)
	}
	return newDescription(object), nil
}

// wants tells whether a Description is to have an object.
func (d *Deployer) wants(key string, id identity) bool {
	other := d.cached(key)
	if other == nil || other.deleting() || !d.ours(other) {
		return false
	}
	objects, _ := other.objects() // what can't be read is not there
	return slices.ContainsFunc(identities(objects), id.same)
}

// has tells whether a Description has, or may have, an object in the child.
func (d *Deployer) has(key string, id identity) bool {
	other := d.cached(key)
	return other != nil && other.cluster() == d.cluster && other.owns(id)
}

// wantedByOthers returns which of the other Descriptions is to have an object.
func (d *Deployer) wantedByOthers(desc *description) map[identity]string {
	wanted := map[identity]string{}
	for _, key := range Keys(d.opts.Descriptions.GetIndexer(), d.cluster) {
		other := d.cached(key)
		if key == desc.key() || other == nil || other.deleting() || !d.ours(other) {
			continue
		}
		objects, _ := other.objects()
		for _, id := range identities(objects) {
			wanted[id.unversioned()] = key
		}
	}
	return wanted
}

// connect returns the child. Who comes back from a pause may have moved: then what
// follows the old one ends, and all is looked at in the new one.
func (d *Deployer) connect(ctx context.Context) (*child, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := epochOf(d.opts.Gate)
	if d.child != nil && d.epoch == now && !d.ask {
		return d.child, nil
	}
	config, err := d.opts.Child()
	if err == nil && config == nil {
		err = errors.New("there is no configuration")
	}
	if err != nil {
		return nil, fmt.Errorf("finding out how to reach cluster %s: %w", d.cluster, err)
	}
	moved := d.child != nil && !sameWay(config, d.config)
	if d.child == nil || moved {
		next, err := newChild(ctx, config, d.opts.Gate, &d.watches, d.seen, d.refused)
		if err != nil {
			return nil, fmt.Errorf("making a client of cluster %s: %w", d.cluster, err)
		}
		if moved {
			d.child.close()
			for _, key := range Keys(d.opts.Descriptions.GetIndexer(), d.cluster) {
				d.queue.AddRateLimited(key) // who refuses each new one is not to be asked at once
			}
		}
		d.connected.Store(true)
		d.child, d.config = next, rest.CopyConfig(config)
	}
	d.epoch, d.ask = now, false
	return d.child, nil
}

// reconnect is a key that no Description has.
const reconnect = ""

// Reconnect follows the child if it is another one by now. What is written next asks for
// that by itself; this is for when nothing is.
func (d *Deployer) Reconnect() {
	if d.connected.Load() {
		d.queue.Add(reconnect)
	}
}

// askAgain has the configuration of the child asked for anew by who needs it next: there
// may be new credentials.
func (d *Deployer) askAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ask = true
}

// refused does so when nobody may need it: a watch was refused.
func (d *Deployer) refused() {
	d.askAgain()
	d.queue.AddAfter(reconnect, repairAfter)
}

// sameWay tells whether two configurations lead to the same server as the same user.
// Functions can't be compared, and are taken for the same.
func sameWay(a, b *rest.Config) bool {
	plain := func(c *rest.Config) *rest.Config {
		c = rest.CopyConfig(c)
		c.Transport, c.WrapTransport, c.Dial, c.Proxy, c.RateLimiter = nil, nil, nil, nil, nil
		c.AuthConfigPersister, c.WarningHandler, c.WarningHandlerWithContext = nil, nil, nil
		return c
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// disconnect ends the watches of the child.
func (d *Deployer) disconnect() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.child != nil {
		d.child.close()
		d.child = nil
		d.connected.Store(false)
	}
}

// tell puts the outcome into the Description's status.
func (d *Deployer) tell(ctx context.Context, desc *description, phase, reason string) error {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + " ..."
	}
	desc.phase, desc.reason = phase, reason
	return d.saveStatus(ctx, desc)
}

// saveStatus writes what has changed. It fails with errOverdue when the Description has
// been written since it was read, as finalize does.
func (d *Deployer) saveStatus(ctx context.Context, desc *description) error {
	patch := desc.statusPatch()
	if patch == nil {
		return nil
	}
	return d.patch(ctx, desc, patch, "status")
}

// finalize adds the finalizer, or removes it.
func (d *Deployer) finalize(ctx context.Context, desc *description, want bool) error {
	patch := desc.finalizerPatch(want)
	if patch == nil {
		return nil
	}
	err := d.patch(ctx, desc, patch)
	if !want && gone(err) {
		return nil
	}
	return err
}

func (d *Deployer) patch(ctx context.Context, desc *description, patch []byte, subresources ...string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	object, err := d.opts.Parent.Resource(Resource).Namespace(desc.object.GetNamespace()).
		Patch(ctx, desc.object.GetName(), mergePatch, patch, metav1.PatchOptions{FieldManager: FieldManager}, subresources...)
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("writing Description %s: %w: %w", desc.key(), errOverdue, err)
	case err != nil:
		return fmt.Errorf("writing Description %s: %w", desc.key(), err)
	}
	desc.object = object
	return nil
}
