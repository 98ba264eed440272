// Package e2e tests on a real API server what a stub can only claim: that the
// server selects, what it does to watches when a CRD changes, and how a gate comes
// through its restarts.
package e2e

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/leaks"
)

func TestMain(m *testing.M) {
	// client-go logs a lot about the faults that these tests make.
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.SetLogger(logr.Discard())
	}
	leaks.Main(m)
}
