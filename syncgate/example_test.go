package syncgate_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// An agent makes the gate of the one cluster that it runs in.
func ExampleNew() {
	parent := newParent(managedCluster("clusternet-abcde", "child", "id-of-child"))
	ctx, stop := context.WithCancel(context.Background())

	gate, err := syncgate.New(parent.client, "clusternet-abcde", "id-of-child", syncgate.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println("before Run:", gate.State().Phase, gate.State().Reason)

	ended := make(chan error, 1)
	go func() { ended <- gate.Run(ctx) }()
	if err := gate.WaitForSync(ctx); err != nil {
		panic(err)
	}
	fmt.Println("synced:", gate.State().Phase, gate.State().Reason)

	stop()
	fmt.Println("Run returned:", <-ended)
	fmt.Println("after Run:", gate.State().Phase, gate.State().Reason)
	// Output:
	// before Run: Unknown NotSynced
	// synced: Open SyncAllowed
	// Run returned: <nil>
	// after Run: Unknown Stopped
}

// A hub has the gates of all clusters.
func ExampleNewHub() {
	parent := newParent(
		managedCluster("clusternet-abcde", "child", "id-of-child"),
		paused(managedCluster("clusternet-fghij", "other", "id-of-other")),
	)
	ctx, stop := context.WithCancel(context.Background())

	inf, err := informer.ForHub(parent.client, informer.Options{})
	if err != nil {
		panic(err)
	}
	hub, err := syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }() // runs the informer too
	if err := hub.WaitForSync(ctx); err != nil {
		panic(err)
	}
	for _, clusterID := range []types.UID{"id-of-child", "id-of-other", "id-of-nobody"} {
		state := hub.Gate(clusterID).State()
		fmt.Println(clusterID, "paused:", state.Paused, state.Reason)
	}

	stop()
	fmt.Println("Run returned:", <-ended)
	// Output:
	// id-of-child paused: false SyncAllowed
	// id-of-other paused: true SyncPaused
	// id-of-nobody paused: true NotFound
	// Run returned: <nil>
}

// A scheduler knows clusters by namespace and name.
func ExampleHub_GateOf() {
	parent := newParent(paused(managedCluster("clusternet-abcde", "child", "id-of-child")))
	inf, err := informer.ForHub(parent.client, informer.Options{})
	if err != nil {
		panic(err)
	}
	hub, err := syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	defer run(hub)()

	gate, ok := hub.GateOf("clusternet-abcde", "child")
	fmt.Println(ok, gate.ClusterID(), "paused:", gate.Paused())
	_, ok = hub.GateOf("clusternet-abcde", "stranger")
	fmt.Println(ok)
	// Output:
	// true id-of-child paused: true
	// false
}

// Write to the cluster inside of Do. A closed gate refuses.
func ExampleGate_Do() {
	parent, gate, stop := runningGate()
	defer stop()
	apply := func(context.Context) error {
		fmt.Println("applied")
		return nil
	}
	ctx := context.Background()

	fmt.Println(gate.Do(ctx, apply))

	parent.patch(`{"spec":{"syncPaused":true}}`)
	waitPaused(gate)
	err := gate.Do(ctx, apply)
	fmt.Println("refused:", errors.Is(err, syncgate.ErrPaused))
	// Output:
	// applied
	// <nil>
	// refused: true
}

// A program follows the decisions of its gate. The first call has the state that
// is known when the gate has synced.
func ExampleGate_OnChange() {
	parent, gate, stop := runningGate()
	defer stop()
	changes := make(chan syncgate.Change)
	unsubscribe := gate.OnChange(func(c syncgate.Change) { changes <- c })
	defer unsubscribe()

	c := <-changes
	fmt.Println("at first:", c.New.Phase, c.New.Reason)

	parent.patch(`{"spec":{"syncPaused":true}}`)
	c = <-changes
	fmt.Println("paused:", c.Paused(), c.New.Reason)

	parent.patch(`{"metadata":{"annotations":{"hold.clusters.clusternet.io/upgrade":"kubelet 1.33"}}}`)
	c = <-changes
	fmt.Println("still paused, and another holder:", c.New.Holds)

	parent.patch(`{"spec":{"syncPaused":null},"metadata":{"annotations":null}}`)
	c = <-changes
	fmt.Println("resumed:", c.Resumed(), c.New.Reason)
	// Output:
	// at first: Open SyncAllowed
	// paused: true SyncPaused
	// still paused, and another holder: [spec.syncPaused upgrade (kubelet 1.33)]
	// resumed: true SyncAllowed
}

// A pause cancels nothing. WaitDrained waits until what was admitted has ended.
func ExampleGate_WaitDrained() {
	parent, gate, stop := runningGate()
	defer stop()
	ctx := context.Background()

	started, finish := make(chan struct{}), make(chan struct{})
	go func() {
		_ = gate.Do(ctx, func(context.Context) error {
			close(started)
			<-finish // a slow write
			return nil
		})
	}()
	<-started

	parent.patch(`{"spec":{"syncPaused":true}}`)
	waitPaused(gate)
	fmt.Println("paused:", gate.Paused(), "in flight:", gate.InFlight())

	close(finish)
	if err := gate.WaitDrained(ctx); err != nil {
		panic(err)
	}
	fmt.Println("paused:", gate.Paused(), "in flight:", gate.InFlight())
	// Output:
	// paused: true in flight: 1
	// paused: true in flight: 0
}

// A program with a single task can wait for the resume. One with a queue of tasks
// uses a Backlog.
func ExampleGate_WaitOpen() {
	parent, gate, stop := runningGate()
	defer stop()
	ctx := context.Background()

	parent.patch(`{"spec":{"syncPaused":true}}`)
	waitPaused(gate)
	impatient, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("no time to wait"))
	fmt.Println("open:", gate.WaitOpen(impatient) == nil)

	parent.patch(`{"spec":{"syncPaused":false}}`)
	fmt.Println("open:", gate.WaitOpen(ctx) == nil)
	// Output:
	// open: false
	// open: true
}

// State says why a gate is closed and who holds it.
func ExampleGate_State() {
	parent, gate, stop := runningGate()
	defer stop()

	parent.patch(`{"metadata":{"annotations":{"hold.clusters.clusternet.io/upgrade":"kubelet 1.33"}}}`)
	waitPaused(gate)
	state := gate.State()
	fmt.Println(state.Phase, state.Reason, state.Object)
	for _, hold := range state.Holds {
		fmt.Printf("held by %s: %s\n", hold.Owner, hold.Reason)
	}
	// Output:
	// Paused Held clusternet-abcde/child
	// held by upgrade: kubelet 1.33
}

// A worker keeps the key of each write that a closed gate refuses. The key comes
// back once, when the gate opens.
func ExampleBacklog() {
	parent, gate, stop := runningGate()
	defer stop()
	ctx := context.Background()

	queue := make(chan string, 10) // in a controller: the Add of its workqueue
	backlog := syncgate.NewBacklog(func(key string) { queue <- key })
	handle := func(key string) {
		parked, err := backlog.Do(ctx, gate, key, func(context.Context) error {
			fmt.Println("apply", key)
			return nil
		})
		if err != nil {
			panic(err)
		}
		if parked {
			fmt.Println("parked", key)
		}
	}

	parent.patch(`{"spec":{"syncPaused":true}}`)
	waitPaused(gate)
	handle("shop/web")
	handle("shop/web") // changed again
	handle("shop/db")
	fmt.Println("keys:", backlog.Len())

	parent.patch(`{"spec":{"syncPaused":false}}`)
	handle(<-queue)
	handle(<-queue)
	fmt.Println("keys:", backlog.Len())
	// Output:
	// parked shop/web
	// parked shop/web
	// parked shop/db
	// keys: 2
	// apply shop/web
	// apply shop/db
	// keys: 0
}

// The agent learns when its flag and spec.syncMode do not leave exactly one side
// to deploy, and when they do again.
func ExampleGate_WatchMode() {
	parent, gate, stop := runningGate() // spec.syncMode is Dual
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	results := make(chan error)
	ended := make(chan error, 1)
	go func() {
		ended <- gate.WatchMode(ctx, syncgate.Pull, true, func(err error) { results <- err })
	}()

	var modes *syncgate.ModeError
	if errors.As(<-results, &modes) {
		fmt.Println(modes.Problem)
	}
	parent.patch(`{"spec":{"syncMode":"Pull"}}`)
	fmt.Println(<-results)

	cancel()
	fmt.Println("WatchMode returned:", <-ended)
	// Output:
	// BothDeploy
	// <nil>
	// WatchMode returned: <nil>
}

// An agent deploys, and so acknowledges pauses, by its flag and feature gate.
func ExampleAgentDeploys() {
	fmt.Println("Pull:", syncgate.AgentDeploys(syncgate.Pull, true))
	fmt.Println("Dual:", syncgate.AgentDeploys(syncgate.Dual, false))
	fmt.Println("Dual with AppPusher:", syncgate.AgentDeploys(syncgate.Dual, true))
	fmt.Println("Push:", syncgate.AgentDeploys(syncgate.Push, true))
	// Output:
	// Pull: true
	// Dual: true
	// Dual with AppPusher: false
	// Push: false
}

// A hub deploys by what the ManagedCluster says.
func ExampleHubDeploys() {
	fmt.Println("Push with AppPusher:", syncgate.HubDeploys(syncgate.Push, true))
	fmt.Println("Dual with AppPusher:", syncgate.HubDeploys(syncgate.Dual, true))
	fmt.Println("Dual:", syncgate.HubDeploys(syncgate.Dual, false))
	fmt.Println("Pull:", syncgate.HubDeploys(syncgate.Pull, true))
	// Output:
	// Push with AppPusher: true
	// Dual with AppPusher: true
	// Dual: false
	// Pull: false
}
