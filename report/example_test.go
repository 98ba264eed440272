package report_test

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// A hub acknowledges for the clusters that it deploys to, and leaves the others to
// their agents.
func ExampleNew() {
	var (
		ctx      context.Context
		client   dynamic.Interface
		recorder record.EventRecorder
		hub      *syncgate.Hub // runs elsewhere
	)
	reporter, err := report.New(client, hub, report.Options{
		Recorder: recorder,
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

// A program without a recorder makes one. The typed client and its rate limit are then
// its own. The broadcaster ends with ctx.
func ExampleOptions_recorder() {
	var (
		ctx    context.Context
		config *rest.Config // of the parent cluster
	)
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	// Events refer to ManagedClusters by reference, so the scheme may be empty.
	recorder := broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "clusternet-agent"})
	_ = report.Options{Recorder: recorder}
}
