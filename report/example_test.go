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

// In Clusternet the agent writes to a cluster, and so does the hub. So each of them runs a
// reporter, and a pause is acknowledged when both have drained. This is the hub's; the
// agent's has its one gate, and the party report.PartyAgent.
func ExampleNew() {
	var (
		ctx      context.Context
		client   dynamic.Interface
		recorder record.EventRecorder
		hub      *syncgate.Hub // runs elsewhere
	)
	reporter, err := report.New(client, hub, report.Options{
		Recorder: recorder,
		Party:    report.PartyHub,
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
