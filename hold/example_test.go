package hold_test

import (
	"context"
	"log"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/hold"
)

// A backup runs while nothing is deployed to the cluster.
func ExampleHold_Do() {
	var (
		ctx    context.Context
		client dynamic.Interface // of the parent cluster
	)
	backup, err := hold.New(client, types.NamespacedName{Namespace: "clusternet-abcde", Name: "child"}, "backup")
	if err != nil {
		log.Fatal(err)
	}
	err = backup.Do(ctx, "nightly", func(ctx context.Context) error {
		return nil // make the backup
	})
	if err != nil {
		log.Fatal(err)
	}
}
