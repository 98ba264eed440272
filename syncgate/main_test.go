package syncgate_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	tu "github.com/clusternet/syncgate/internal/testutil"
)

const (
	ns = "clusternet-abcde"
	id = "6f1f5ae2-0e33-4f3c-9a0e-5a2f1c0d7e11"
)

func TestMain(m *testing.M) { tu.Main(m) }

func cluster(opts ...tu.Option) *unstructured.Unstructured {
	return tu.ManagedCluster(ns, "child", id, opts...)
}
