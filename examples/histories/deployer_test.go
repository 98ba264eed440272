package histories

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/clusternet/syncgate/syncgate"
)

const (
	workers = 2
	parts   = 2 // what a Description consists of: so many keys of the child
)

// valueAnnotation has what the parent wants for a Description.
const valueAnnotation = "value"

// deployer brings the values of the Descriptions of its party to the child. It does so
// for each event and, as a repair of drift, again and again.
type deployer struct {
	process      *process
	descriptions cache.SharedIndexInformer
	queue        workqueue.TypedRateLimitingInterface[string]
	backlog      *syncgate.Backlog[string]
	admitted     atomic.Int64
}

func newDeployer(p *process, descriptions cache.SharedIndexInformer) *deployer {
	d := &deployer{
		process: p, descriptions: descriptions,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond, time.Second)),
	}
	d.backlog = syncgate.NewBacklog(func(key string) {
		p.cluster.add(Event{Kind: Requeued, Process: p.id, Key: key})
		d.queue.Add(key)
	})
	return d
}

// add queues a Description, if it is for this party.
func (d *deployer) add(object any) {
	if o, ok := object.(*unstructured.Unstructured); ok && strings.HasPrefix(o.GetName(), d.process.party) {
		d.queue.Add(o.GetName())
	}
}

func (d *deployer) run(ctx context.Context) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for d.next(ctx) {
			}
		})
	}
	for sleep(ctx, rand.N(30*time.Millisecond)) {
		if all := d.descriptions.GetStore().List(); len(all) > 0 {
			d.add(all[rand.IntN(len(all))])
		}
	}
	d.queue.ShutDown()
	running.Wait()
}

func (d *deployer) next(ctx context.Context) bool {
	key, shutdown := d.queue.Get()
	if shutdown {
		return false
	}
	defer d.queue.Done(key)
	if rand.IntN(4) == 0 {
		d.process.sample()
	}
	p := d.process
	called := p.cluster.now()
	parked, err := d.do(ctx, key, called)
	switch {
	case parked:
		p.cluster.add(Event{Kind: Parked, Process: p.id, Key: key, Start: called})
	case errors.Is(err, syncgate.ErrStopped):
	case err != nil:
		d.queue.AddRateLimited(key)
	default:
		d.queue.Forget(key)
	}
	return true
}

var (
	errPanic = errors.New("the operation has panicked")
	errRetry = errors.New("the operation has failed")
)

func (d *deployer) do(ctx context.Context, key string, called time.Duration) (parked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			if v != any(errPanic) {
				panic(v)
			}
			err = errPanic
		}
	}()
	p := d.process
	return d.backlog.Do(ctx, p.gate, key, func(ctx context.Context) error {
		p.cluster.add(Event{Kind: Operation, Process: p.id, Key: key, Start: called, Resumes: p.gate.Stats().Resumes})
		d.admitted.Add(1)
		return d.sync(ctx, key)
	})
}

// sync writes each part of a Description. At times it fails or panics midway, asks whether
// to go on, or writes in a nested operation.
func (d *deployer) sync(ctx context.Context, key string) error {
	p := d.process
	object, ok, err := d.descriptions.GetStore().GetByKey(p.cluster.namespace + "/" + key)
	if err != nil || !ok {
		return err
	}
	value, err := strconv.Atoi(object.(*unstructured.Unstructured).GetAnnotations()[valueAnnotation])
	if err != nil {
		return err
	}
	for part := range parts {
		if part > 0 {
			switch rand.IntN(20) {
			case 0:
				panic(errPanic)
			case 1:
				return errRetry
			case 2, 3, 4, 5, 6, 7:
				if err := p.gate.Checkpoint(ctx); err != nil {
					return err
				}
			}
		}
		write := func(ctx context.Context) error {
			return p.cluster.child.write(ctx, p, partOf(key, part), value)
		}
		if rand.IntN(4) == 0 {
			err = p.gate.Do(ctx, write)
		} else {
			err = write(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func partOf(key string, part int) string { return key + "#" + strconv.Itoa(part) }
