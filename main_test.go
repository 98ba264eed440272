package syncgate_test

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	tu "github.com/clusternet/syncgate/internal/testutil"
)

const (
	ns = "clusternet-abcde"
	id = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
)

func TestMain(m *testing.M) {
	// client-go says a lot about the faults that these tests make.
	if os.Getenv("SYNCGATE_TEST_LOG") == "" {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
	}
	goleak.VerifyTestMain(m)
}

func cluster(opts ...tu.Option) *unstructured.Unstructured {
	return tu.ManagedCluster(ns, "child", id, opts...)
}
