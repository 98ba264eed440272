package hub_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusternet/syncgate/examples/hub"
)

// A cluster ID is what somebody has written into a ManagedCluster of one namespace. It must
// not lead to the file of a cluster of another namespace.
func TestChildrenIn(t *testing.T) {
	const id = "0b1c2d3e-1111-4a6b-8c7d-000000000001"
	dir := t.TempDir()
	const kubeconfig = `{"clusters":[{"name":"c","cluster":{"server":"https://victim"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	for _, namespace := range []string{"victim", "own"} {
		if err := os.Mkdir(filepath.Join(dir, namespace), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "victim", id+".kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	child := hub.ChildrenIn(dir)
	if _, err := child("victim", id); err != nil {
		t.Fatal(err)
	}
	for _, clusterID := range []types.UID{"../victim/" + id, "x/../../victim/" + id, "./../victim/" + id} {
		if config, err := child("own", clusterID); err == nil {
			t.Errorf("the ID %q of another namespace leads to %s", clusterID, config.Host)
		}
	}
}
