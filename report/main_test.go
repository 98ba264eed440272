package report_test

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	// client-go says a lot about the faults that these tests make.
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	goleak.VerifyTestMain(m)
}
