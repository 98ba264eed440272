package testutil

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// Main runs the tests of a package and fails when they leave a goroutine behind. It
// drops what is logged, for client-go says a lot about the faults that the tests
// make; SYNCGATE_TEST_LOG=1 in the environment shows it.
func Main(m *testing.M) {
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	goleak.VerifyTestMain(m)
}
