package report_test

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/record"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// A reporter runs next to the gates. No other program writes to the clusters of this
// one, so it acknowledges alone.
func ExampleReporter_Run() {
	// client-go's fake, which ignores field selectors; a program makes its client by
	// dynamic.NewForConfig, and its recorder by an EventBroadcaster of tools/record.
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), pausedCluster())
	recorder := record.NewFakeRecorder(10)
	ctx, stop := context.WithCancel(context.Background())

	inf, err := informer.ForHub(client, informer.Options{})
	if err != nil {
		panic(err)
	}
	hub, err := syncgate.NewHub(inf, syncgate.Options{})
	if err != nil {
		panic(err)
	}
	reporter, err := report.New(client, hub, report.Options{Recorder: recorder})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- hub.Run(ctx) }()
	go func() { ended <- reporter.Run(ctx) }()

	fmt.Println(firstWords(<-recorder.Events)) // recorded after the condition has been written
	object, err := client.Resource(informer.Resource).Namespace("clusternet-abcde").Get(ctx, "child", metav1.GetOptions{})
	if err != nil {
		panic(err)
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, each := range conditions {
		condition := each.(map[string]any)
		fmt.Println(condition["type"], condition["status"], condition["reason"])
	}

	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// Normal SyncPaused
	// SyncPaused True Paused
	// <nil> <nil>
}

// An agent records an Event when the modes do not leave exactly one side to deploy.
func ExampleModeEvents() {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), pausedCluster()) // spec.syncMode is Push
	recorder := record.NewFakeRecorder(10)
	ctx, stop := context.WithCancel(context.Background())

	gate, err := syncgate.New(client, "clusternet-abcde", "id-of-child", syncgate.Options{})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- gate.Run(ctx) }()
	go func() { ended <- gate.WatchMode(ctx, syncgate.Pull, true, report.ModeEvents(recorder, gate)) }()

	fmt.Println(firstWords(<-recorder.Events))

	stop()
	fmt.Println(<-ended, <-ended)
	// Output:
	// Warning SyncModeMismatch
	// <nil> <nil>
}

// firstWords returns the type and the reason of an Event, without its message.
func firstWords(event string) string {
	return strings.Join(strings.Fields(event)[:2], " ")
}

func pausedCluster() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": informer.Resource.GroupVersion().String(),
		"kind":       "ManagedCluster",
		"metadata":   map[string]any{"namespace": "clusternet-abcde", "name": "child", "generation": int64(1)},
		"spec":       map[string]any{"clusterId": "id-of-child", "syncMode": "Push", "syncPaused": true},
		"status":     map[string]any{"appPusher": true},
	}}
}
