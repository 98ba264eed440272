package deploy

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/syncgate"
)

// epoch changes when the child may have moved.
type epoch struct {
	resumes        uint64
	managedCluster types.UID
}

func epochOf(gate *syncgate.Gate) epoch { return epoch{gate.Stats().Resumes, gate.State().UID} }

type epochKey struct{}

// current reports whether a child is the one to send a request to, with the context of an
// operation. After a pause it may not be, and neither is what was read before the pause
// still to be done: the Description may have changed.
func (d *Deployer) current(ctx context.Context, c *child) bool {
	now := epochOf(d.opts.Gate)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.child == c && ctx.Value(epochKey{}) == now
}

// connect returns the child. It sends no request. A child may have moved during a pause:
// then the watches of the old one end, and all Descriptions are reconciled with the new one.
func (d *Deployer) connect(ctx context.Context) (*child, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := epochOf(d.opts.Gate)
	if d.child != nil && d.epoch == now && !d.refresh {
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
		next, err := newChild(ctx, config, d)
		if err != nil {
			return nil, fmt.Errorf("making a client of cluster %s: %w", d.cluster, err)
		}
		if moved {
			d.child.close()
			for _, key := range Keys(d.opts.Descriptions.GetIndexer(), d.cluster) {
				d.retry(key) // slowly, if the child refuses each new configuration
			}
		}
		d.connected.Store(true)
		d.child, d.config = next, rest.CopyConfig(config)
	}
	d.epoch, d.refresh = now, false
	return d.child, nil
}

// reconnect is the key to connect to the child again. No Description has it.
const reconnect = ""

// Reconnect connects to the child again if it has moved. The next write would do so
// by itself. Reconnect is for the time until then.
func (d *Deployer) Reconnect() {
	if d.connected.Load() {
		d.Add(reconnect)
	}
}

// refreshConfig lets the next connect read the configuration of the child again: there
// may be new credentials.
func (d *Deployer) refreshConfig() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh = true
}

// refused is called when the child has refused a watch.
func (d *Deployer) refused() {
	d.refreshConfig()
	d.schedule(reconnect, whole, repairDelay)
}

// sameWay reports whether two configurations lead to the same server as the same user.
// Functions can't be compared, and count as the same.
func sameWay(a, b *rest.Config) bool {
	plain := func(c *rest.Config) *rest.Config {
		c = rest.CopyConfig(c)
		c.Transport, c.WrapTransport, c.Dial, c.Proxy, c.RateLimiter = nil, nil, nil, nil, nil
		c.AuthConfigPersister, c.WarningHandler, c.WarningHandlerWithContext = nil, nil, nil
		return c
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// disconnect ends the watches of the child and forgets it.
func (d *Deployer) disconnect() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.child != nil {
		d.child.close()
		d.child = nil
		d.connected.Store(false)
	}
}
