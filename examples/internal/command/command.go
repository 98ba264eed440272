// Package command has what the commands of the examples share: how they begin and end,
// how they reach clusters, and how they tell about themselves.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// Main is the main function of a command. It calls define with the flags to add its own
// to, and after parsing what that returns, with a context that an interrupt or SIGTERM
// ends and a listener for Serve. Exit status: 0 ended, 1 failed, 2 wrong flags.
func Main(name string, define func(*flag.FlagSet) func(context.Context, net.Listener) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second interrupt ends it at once
	code := run(ctx, name, os.Args[1:], define)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, name string, args []string, define func(*flag.FlagSet) func(context.Context, net.Listener) error) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	flags.Var(logging.Lookup("v").Value, "v", "how much to log: 2 transitions and writes, 4 details")
	address := flags.String("listen", ":8080", "`address` for /healthz, /readyz and /metrics; empty: none")
	start := define(flags)
	if err := flags.Parse(args); err != nil { // it has said why
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: unexpected argument %q: there are flags only (-h tells which)\n", name, flags.Arg(0))
		return 2
	}
	err := func() error {
		var listener net.Listener
		if *address != "" {
			var err error
			if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", *address); err != nil {
				return fmt.Errorf("listening for health and metrics (-listen): %w", err)
			}
			defer func() { _ = listener.Close() }()
		}
		return start(ctx, listener)
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// ClientConfig returns how to reach a cluster by the file of a kubeconfig, or, where it
// is empty, as the pod that this runs in. An error says that hint is what to do.
func ClientConfig(kubeconfig, hint string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding out how to reach a cluster: %w; %s", err, hint)
	}
	// client-go's 5 requests a second are fewer than a resume of many applications
	// needs; the server has limits of its own.
	config.QPS, config.Burst = 100, 200
	return config, nil
}

// Recorder returns a recorder of Events in a cluster, with component as their source. It
// ends with ctx. A server without the core API, such as a localcluster, refuses each
// Event, which is logged.
func Recorder(ctx context.Context, config *rest.Config, component string) (record.EventRecorder, error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for Events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	// The Events refer to their objects by reference, so the scheme may be empty.
	return broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: component}), nil
}
