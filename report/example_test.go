package report_test

import (
	"context"
	"log"

	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// A hub acknowledges for the clusters that it deploys to, and leaves the others to
// their agents.
func ExampleNew() {
	var (
		ctx    context.Context
		client dynamic.Interface
		hub    *syncgate.Hub // runs elsewhere
	)
	reporter, err := report.New(client, hub, report.Options{
		Component: "clusternet-controller-manager",
		Acknowledge: func(g *syncgate.Gate) bool {
			s := g.State()
			return s.AppPusher != nil && syncgate.HubDeploys(s.SyncMode, *s.AppPusher)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Print(reporter.Run(ctx)) }()
}
