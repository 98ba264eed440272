// Command quickstart shows a pause of a Clusternet child cluster take hold, against a genuine Kubernetes
// API server that it runs itself. Try it with
//
//	go run -C examples ./quickstart
//
// With -fleet it shows the deployers of package agent and package hub at many clusters.
//
// It doubles as an example: stage.go has a gate and a hub as an agent and a hub would have them, and
// deployer.go a deployer that asks the gate at each write.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const help = `quickstart shows a pause of a Clusternet child cluster take hold.

  quickstart         A tour of about ten seconds: it starts a parent cluster (a Kubernetes API server with
                     etcd, as a child process), registers three child clusters, pauses one, and measures.
  quickstart -keep   The same parent cluster, but you pause and resume: it prints the kubectl commands, then
                     a line for each change, until Ctrl-C. There is no tour.
  quickstart -fleet  A tour with the real deployers of examples/agent and examples/hub: they deploy to three
                     child clusters (API servers too), of which it pauses one, then another.
  quickstart -kubeconfig FILE -namespace NS -cluster-id ID
                     The gate of an agent against your parent cluster, until Ctrl-C. It only lists and watches
                     ManagedClusters in that namespace. It writes nothing, but counts what a deployer would.

  -kubeconfig FILE   of your parent cluster
  -namespace NS      the dedicated namespace of the child cluster there (kubectl get mcls -A)
  -cluster-id ID     the spec.clusterId of its ManagedCluster
  -timeout D         with -kubeconfig: how long to wait for the first answer (default 30s)

Ctrl-C, SIGTERM and SIGHUP end it at once, and nothing is left behind.
Exit status: 0 done (Ctrl-C is the regular end of -keep and -kubeconfig), 1 failed, 2 wrong flags,
130 interrupted during the start or a tour.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A closed pipe must not kill the process (quickstart | head): the parent cluster would leave its files.
	signal.Ignore(syscall.SIGPIPE)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the command: it returns the exit status, when ctx ends at the latest.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprint(stdout, help)
		return 0
	}
	if err == nil {
		inner, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		out := newPrinter(stdout, cancel)
		switch {
		case opts.kubeconfig != "":
			err = observe(inner, out, opts)
		case opts.fleet:
			err = onFleet(inner, out)
		case opts.keep:
			err = onStage(inner, out, keep)
		default:
			err = onStage(inner, out, tour)
		}
		// When it ended because its output can't be written, that is the error to tell.
		if cause := context.Cause(inner); cause != nil && ctx.Err() == nil && !errors.Is(err, errLeft) {
			err = cause
		}
	}
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(usageError)):
		_, _ = fmt.Fprintf(stderr, "quickstart: %v (-h tells more)\n", err)
		return 2
	case ctx.Err() != nil && !errors.Is(err, errLeft):
		_, _ = fmt.Fprintln(stderr, "quickstart: interrupted")
		return 130
	default:
		_, _ = fmt.Fprintf(stderr, "quickstart: %v\n", err)
		return 1
	}
}

type options struct {
	keep       bool
	fleet      bool
	kubeconfig string
	namespace  string
	clusterID  types.UID
	timeout    time.Duration
}

// usageError is for what the user has to write otherwise.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func parse(args []string) (options, error) {
	var opts options
	var clusterID string
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run says it in one line
	flags.BoolVar(&opts.keep, "keep", false, "")
	flags.BoolVar(&opts.fleet, "fleet", false, "")
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "")
	flags.StringVar(&opts.namespace, "namespace", "", "")
	flags.StringVar(&clusterID, "cluster-id", "", "")
	flags.DurationVar(&opts.timeout, "timeout", 30*time.Second, "")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return opts, err
		}
		return opts, usageError{err}
	}
	opts.clusterID = types.UID(clusterID)
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	refuse := func(format string, args ...any) (options, error) {
		return opts, usageError{fmt.Errorf(format, args...)}
	}

	if flags.NArg() > 0 {
		return refuse("unexpected argument %q: there are flags only", flags.Arg(0))
	}
	switch {
	case opts.fleet && opts.keep:
		return refuse("-fleet and -keep exclude each other: -keep is for the clusters of the tour without -fleet")
	case opts.fleet && given["kubeconfig"]:
		return refuse("-fleet and -kubeconfig exclude each other: -fleet starts all clusters here")
	}
	if !given["kubeconfig"] {
		for _, name := range []string{"namespace", "cluster-id", "timeout"} {
			if given[name] {
				return refuse("-%s goes with -kubeconfig only: add -kubeconfig FILE, or leave it out", name)
			}
		}
		return opts, nil
	}
	switch {
	case opts.keep:
		return refuse("-keep and -kubeconfig exclude each other: -keep is for the parent cluster that is started here")
	case opts.kubeconfig == "":
		return refuse("-kubeconfig is empty: pass the file")
	case opts.namespace == "":
		return refuse("-kubeconfig needs -namespace: pass the dedicated namespace of the child cluster")
	case opts.clusterID == "":
		return refuse("-kubeconfig needs -cluster-id: pass the spec.clusterId of the ManagedCluster")
	case opts.timeout <= 0:
		return refuse("-timeout is %v: pass more than 0", opts.timeout)
	}
	return opts, nil
}
