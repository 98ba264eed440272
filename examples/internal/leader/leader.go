// Package leader runs something in one of several processes.
package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

const (
	// defaultLease is how long a leader that has died is waited for.
	defaultLease = 15 * time.Second

	// leastLease leaves something of thirds that a Lease has in whole seconds.
	leastLease = 3 * time.Second
)

// Lease is what processes compete for. The zero value is none: who runs, leads.
type Lease struct {
	Namespace string        // empty: no election
	Name      string        // of the Lease
	Duration  time.Duration // how long a leader that does not renew it remains one; 0: 15 seconds; at least 3
}

// Lead calls run while this process holds the lease, once for each term, until ctx
// ends or run returns. The context of run ends with the term or with ctx. After an end
// that was asked for, the lease is given back only when run has returned, so whoever
// gets it next finds nothing of this term at work. A process that can't renew the lease
// is told to end after two thirds of its duration, and has the last third for it.
func Lead(ctx context.Context, config *rest.Config, lease Lease, run func(context.Context) error) error {
	if lease.Namespace == "" {
		return run(ctx)
	}
	duration := cmp.Or(lease.Duration, defaultLease)
	if duration < leastLease {
		return fmt.Errorf("competing for the lease %s/%s: its duration is %v; want %v or more, or 0 for %v",
			lease.Namespace, lease.Name, duration, leastLease, defaultLease)
	}
	if wrong := validation.IsDNS1123Subdomain(lease.Name); len(wrong) > 0 {
		return fmt.Errorf("competing for the lease %s/%s: no Lease can have this name: %s", lease.Namespace, lease.Name, strings.Join(wrong, "; "))
	}
	config = rest.CopyConfig(config)
	config.Timeout = duration / 3 // a request that hangs must not outlast the lease
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("competing for the lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	host, _ := os.Hostname() // it is for people only
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}
	for ctx.Err() == nil {
		t := &term{run: run}
		if err := t.serve(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, Name: lease.Name,
			LeaseDuration: duration, RenewDeadline: duration * 2 / 3, RetryPeriod: duration * 2 / 15,
			// client-go would give it back before it tells run to end.
			ReleaseOnCancel: false,
		}); err != nil {
			return err
		}
	}
	return nil
}

// term is one time of leading.
type term struct {
	run     func(context.Context) error
	ended   chan struct{} // closed when run has returned
	outcome error         // of run, once ended is closed

	mu    sync.Mutex // guards the fields below
	begun bool
	over  bool // it must not begin any more
}

var errEarly = errors.New("it ended by itself")

func (t *term) serve(ctx context.Context, config leaderelection.LeaderElectionConfig) error {
	t.ended = make(chan struct{})
	// The election outlives ctx until run has returned.
	election, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.begun {
			return
		}
		t.over = true
		stop()
	})()
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnStartedLeading: func(leading context.Context) {
			t.mu.Lock()
			if t.over {
				t.mu.Unlock()
				return
			}
			t.begun = true
			t.mu.Unlock()
			defer close(t.ended)
			defer stop()
			leading, cancel := context.WithCancel(leading)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			err := t.run(leading)
			if err == nil && leading.Err() == nil {
				err = errEarly
			}
			t.outcome = err
		},
		OnStoppedLeading: func() {},
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return fmt.Errorf("competing for the lease %s: %w", config.Name, err)
	}
	elector.Run(election)
	t.mu.Lock()
	t.over = true // it is called on a goroutine of its own, which may come late
	begun := t.begun
	t.mu.Unlock()
	switch {
	case begun:
		<-t.ended
	case !elector.IsLeader():
		return nil
	}
	release(context.WithoutCancel(ctx), config)
	return t.outcome
}

// release gives the lease back, if it is still ours. Where that fails, others wait
// for it to expire.
func release(ctx context.Context, config leaderelection.LeaderElectionConfig) {
	record, _, err := config.Lock.Get(ctx)
	if err != nil || record.HolderIdentity != config.Lock.Identity() {
		return
	}
	record.HolderIdentity = ""
	record.LeaseDurationSeconds = 1
	if err := config.Lock.Update(ctx, *record); err != nil {
		klog.FromContext(ctx).V(2).Info("Could not give the lease back", "lease", config.Lock.Describe(), "why", err)
	}
}
