package e2e

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

// A label says which cluster a Description is for, and who may write in one namespace can
// write it: it must not reach the cluster of another namespace.
func TestForeignLabel(t *testing.T) {
	f := fleettest.New(t, 2, syncgate.Push)
	own, victim := f.Children[0], f.Children[1]
	var mu sync.Mutex
	var clusters []string // that Child was called with
	byID := childOf(f, "hub")
	// Child goes by the ID alone, which is a mistake: the hub must not depend on it.
	runHub(f, "hub", "", func(namespace string, id types.UID) (*rest.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		clusters = append(clusters, namespace+"/"+string(id))
		return byID(namespace, id)
	}, report.PartyHub)
	for _, c := range f.Children {
		c.ReportAppPusher(true)
		c.Describe("web", fleettest.App("front", "1"))
		c.AwaitPhase("Success", "web")
	}
	victim.AwaitRecheck()
	alone, deployers := leave(victim), deployersRunning()
	if deployers != len(f.Children) {
		t.Errorf("there are %d deployers; want one for each cluster", deployers)
	}

	// The names of objects are the same too.
	labelled := func(id types.UID) *fleettest.Child {
		c := own.In(t)
		c.ID = id
		return c
	}
	labelled(victim.ID).Describe("web-2", fleettest.App("front", "evil"), fleettest.App("new", "evil"))
	labelled("0b1c2d3e-1111-4a6b-8c7d-999999999999").Describe("unknown", fleettest.App("unknown", "evil"))
	labelled("").Describe("unlabelled", fleettest.App("unlabelled", "evil"))
	own.Describe("web", fleettest.App("front", "2")) // the hub observes this last
	own.AwaitAllImages("edited", map[string]string{"front": "2"})
	victim.Quiet()
	alone.check(t, "with Descriptions of other namespaces")
	if got := deployersRunning(); got != deployers {
		t.Errorf("labels of no cluster of the namespace: %d deployers; want %d as before", got, deployers)
	}
	for _, name := range []string{"web-2", "unknown", "unlabelled"} {
		if phase, reason := own.Phase(name); phase != "" {
			t.Errorf("Description %s is %s (%s); want it left alone", name, phase, reason)
		}
	}
	foreignLabelOfDeployed(t, own, victim, alone)
	mu.Lock()
	defer mu.Unlock()
	for _, cluster := range clusters {
		if cluster != own.Namespace+"/"+string(own.ID) && cluster != victim.Namespace+"/"+string(victim.ID) {
			t.Errorf("Child was called with %s; want registered clusters only", cluster)
		}
	}
}

// foreignLabelOfDeployed puts the label on a Description that has been deployed.
func foreignLabelOfDeployed(t *testing.T, own, victim *fleettest.Child, alone *leftAlone) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, deploy.ClusterIDLabel, victim.ID)
	if _, err := own.Descriptions().Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	own.DeleteDescription("web-2")
	own.DeleteDescription("web")
	own.Describe("last", fleettest.App("last", "1"))
	own.AwaitPhase("Success", "last")
	victim.Quiet()
	alone.check(t, "with those deleted")
	victim.AwaitAllImages("at last", map[string]string{"front": "1"})
}

// deployersRunning returns how many deployers run in this process. No other test runs
// next to one that is not parallel.
func deployersRunning() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "deploy.(*Deployer).Run(")
}
