package testutil

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// Main runs the tests of a package. It fails when they leave a goroutine behind. It
// discards all logs, since client-go logs the faults that the tests make; set
// SYNCGATE_TEST_LOG=1 in the environment to see them.
func Main(m *testing.M) {
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		flags := flag.NewFlagSet("", flag.PanicOnError)
		klog.InitFlags(flags)
		_ = flags.Set("logtostderr", "false")
		_ = flags.Set("stderrthreshold", "FATAL") // errors go to stderr otherwise
		klog.SetOutput(io.Discard)
	}
	code := m.Run()
	if code == 0 {
		if err := NoLeaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// NoLeaks waits up to a minute until no goroutine is left but those that opts
// ignore, and returns an error that lists what is left. On a busy machine a
// goroutine may need more than the second that goleak gives it.
func NoLeaks(opts ...goleak.Option) error {
	for deadline := time.Now().Add(time.Minute); ; {
		if err := goleak.Find(opts...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
