package syncgate_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// An agent has the gate of the one cluster that it runs in.
func ExampleNew() {
	server := tu.NewAPIServer(cluster()) // stands for the parent cluster
	defer server.Close()
	client := server.Client()
	namespace, clusterID := ns, types.UID(id)
	apply := func(context.Context) error { fmt.Println("applied"); return nil }

	ctx, stop := context.WithCancel(context.Background())
	gate, err := syncgate.New(client, namespace, clusterID, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- gate.Run(ctx) }()
	if err := gate.WaitForSync(ctx); err != nil {
		panic(err)
	}
	if err := gate.Do(ctx, apply); errors.Is(err, syncgate.ErrPaused) {
		fmt.Println("not now:", err)
	}

	stop()
	fmt.Println("ended:", <-ended)
	fmt.Println("paused for ever:", gate.Paused())
	// Output:
	// applied
	// ended: <nil>
	// paused for ever: true
}

// A hub has the gates of all clusters.
func ExampleNewHub() {
	server := tu.NewAPIServer(cluster(), tu.ManagedCluster("clusternet-fghij", "paused-child", "another", tu.Paused(true)))
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())

	inf, err := informer.ForHub(server.Client(), informer.Options{})
	if err != nil {
		panic(err)
	}
	hub, err := syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	if err := hub.WaitForSync(ctx); err != nil {
		panic(err)
	}
	fmt.Println(hub.Gate(id).Paused(), hub.Gate("another").Paused(), hub.Gate("nobody's").Paused())
	err = hub.Gate("another").Do(ctx, func(context.Context) error { return nil })
	fmt.Println(err)

	stop()
	fmt.Println(<-ended)
	// Output:
	// false true true
	// syncgate: cluster another is paused (SyncPaused): ManagedCluster clusternet-fghij/paused-child is held by spec.syncPaused
	// <nil>
}

// Work that a closed gate refuses is kept, and done when the gate opens.
func ExampleGate_OnChange() {
	paused := cluster(tu.Paused(true))
	server := tu.NewAPIServer(paused)
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())
	gate, err := syncgate.New(server.Client(), ns, id, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- gate.Run(ctx) }()

	resumed := make(chan struct{})
	stopTelling := gate.OnChange(func(c syncgate.Change) {
		fmt.Println(c.New.Phase, c.New.Reason)
		switch {
		case c.Resumed():
			close(resumed)
		case c.New.Phase == syncgate.Paused:
			server.Update(tu.With(paused, tu.Paused(false))) // the operator resumes
		}
	})
	defer stopTelling()
	<-resumed

	stop()
	fmt.Println(<-ended)
	// Output:
	// Paused SyncPaused
	// Open SyncAllowed
	// <nil>
}
