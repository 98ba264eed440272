package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// patchCRD applies crd-patch.json as a client does.
func (p *parent) patchCRD() error {
	_, err := p.client.Resource(crds).Patch(context.Background(), crdName, types.JSONPatchType, manifest(p, "crd-patch.json"), metav1.PatchOptions{})
	return err
}

// upgrade applies it and waits until it is in force.
func (p *parent) upgrade() {
	p.Helper()
	if err := p.patchCRD(); err != nil {
		p.Fatal(err)
	}
	p.selectable()
}

// selectable waits until the server selects by spec.clusterId.
func (p *parent) selectable() {
	p.Helper()
	var last error
	fleettest.Eventually(p, soon, func() bool {
		list, err := p.managedClusters().List(p.Context(), metav1.ListOptions{FieldSelector: "spec.clusterId=" + own})
		last = err
		if err == nil && len(list.Items) != 1 {
			last = fmt.Errorf("%d items; want 1", len(list.Items))
		}
		return last == nil
	}, func() string { return fmt.Sprintf("selection by field: %v", last) })
}

// row returns the columns of kubectl get, and what they show of an object.
func (p *parent) row(name string) (columns []string, row map[string]any) {
	p.Helper()
	client, err := rest.HTTPClientFor(p.Config())
	if err != nil {
		p.Fatal(err)
	}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("%s/apis/clusters.clusternet.io/v1beta1/namespaces/%s/managedclusters/%s", p.URL(), namespace, name)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		p.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := client.Do(req)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(body, &table); err != nil || len(table.Rows) != 1 {
		p.Fatalf("GET %s = %s, %v; want a row", url, body, err)
	}
	row = map[string]any{}
	for i, column := range table.ColumnDefinitions {
		columns = append(columns, column.Name)
		row[column.Name] = table.Rows[0].Cells[i]
	}
	return columns, row
}

// The patch brings a CRD of the stock one's shape to what the gates want, under a
// gate that runs, and changes nothing a second time.
func TestManifestCRDPatch(t *testing.T) {
	for name, patch := range map[string]func(*testing.T, *parent) error{
		"client": func(_ *testing.T, p *parent) error { return p.patchCRD() },
		"kubectl": func(t *testing.T, p *parent) error {
			out, err := kubectl(t, p, "patch", "crd", crdName, "--type=json", "--patch-file", filepath.Join("..", "manifests", "crd-patch.json"))
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newParent(t, localcluster.Options{}, localcluster.StockManagedClusterCRD())
			p.register("child", own)
			p.register("neighbour", other)
			gate := p.agent(own)
			p.patch("child", pause)
			if s := gate.State(); s.Paused {
				t.Errorf("State() = %+v under the stock CRD; want open", s)
			}
			if err := patch(t, p); err != nil {
				t.Fatal(err)
			}
			p.selectable()
			eventually(t, gate, "ByField", func(s syncgate.State) bool { return s.Selection == informer.ByField })
			p.patch("child", pause)
			awaitReason(t, syncgate.ReasonSyncPaused, gate)
			columns, row := p.row("child")
			want := []string{"Name", "CLUSTER ID", "CLUSTER TYPE", "SYNC MODE", "KUBERNETES", "STATUS", "PAUSED", "AGE", "AGENT VERSION"}
			if !slices.Equal(columns, want) || row["PAUSED"] != true {
				t.Errorf("columns = %q, PAUSED = %v; want %q, true", columns, row["PAUSED"], want)
			}
			_, err := p.managedClusters().Patch(t.Context(), "child", types.MergePatchType, []byte(`{"spec":{"syncPaused":"true"}}`), metav1.PatchOptions{})
			if !apierrors.IsInvalid(err) {
				t.Errorf(`patch with syncPaused "true": %v; want it refused as invalid`, err)
			}

			before, err := p.client.Resource(crds).Get(t.Context(), crdName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := patch(t, p); err != nil {
				t.Errorf("the second patch: %v; want no change", err)
			}
			after, err := p.client.Resource(crds).Get(t.Context(), crdName, metav1.GetOptions{})
			if err != nil || after.GetGeneration() != before.GetGeneration() {
				t.Errorf("the second patch left generation %d, %v; want %d", after.GetGeneration(), err, before.GetGeneration())
			}
			if columns, _ := p.row("child"); !slices.Equal(columns, want) {
				t.Errorf("columns = %q after the second patch; want %q", columns, want)
			}
		})
	}
}

// A CRD that the patch was not made for is left alone.
func TestManifestCRDPatchOfAnother(t *testing.T) {
	crd := localcluster.StockManagedClusterCRD()
	next := *crd.Spec.Versions[0].DeepCopy()
	next.Name, next.Storage = "v1", false
	crd.Spec.Versions = slices.Insert(crd.Spec.Versions, 0, next)
	p := newParent(t, localcluster.Options{}, crd)
	if err := p.patchCRD(); !apierrors.IsInvalid(err) {
		t.Errorf("the patch of a CRD whose first version is another: %v; want it refused", err)
	}
}

// The stock CRD is put back while a cluster is paused: the server sends no flag any more,
// and no new generation. No gate that has observed the pause opens.
func TestManifestDowngrade(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.StockManagedClusterCRD())
		p.register("child", own)
		p.register("quiet", other)
		p.upgrade()
		hub := p.hub()
		gates := map[string]*syncgate.Gate{"agent": p.agent(own), "hub": hub.Gate(own), "quiet": hub.Gate(other)}
		var opened atomic.Bool
		for _, name := range []string{"child", "quiet"} {
			p.patch(name, pause)
		}
		all := func(want string) {
			t.Helper()
			for name, gate := range gates {
				eventually(t, gate, name+": "+want, func(s syncgate.State) bool { return s.Reason == want })
			}
		}
		all(syncgate.ReasonSyncPaused)
		for _, gate := range gates {
			defer gate.OnChange(func(c syncgate.Change) {
				if !c.New.Paused {
					opened.Store(true)
				}
			})()
		}

		p.apply(localcluster.StockManagedClusterCRD())
		all(syncgate.ReasonFieldNotVisible)
		// The heartbeat rewrites the object, and drops the flag for good.
		for i := range 3 {
			p.heartbeat("child", i)
		}
		if s := gates["agent"].State(); !s.Paused || s.Generation != 2 || !strings.Contains(s.Message, "the CRD has lost the field") {
			t.Errorf("State() = %+v; want closed, of the generation that paused, and why", s)
		}

		p.upgrade()
		awaitReason(t, syncgate.ReasonSyncPaused, gates["quiet"]) // nothing has written the object
		eventually(t, gates["agent"], "ByField", func(s syncgate.State) bool { return s.Selection == informer.ByField })
		p.heartbeat("child", 4)
		for _, name := range []string{"agent", "hub"} {
			if s := gates[name].State(); !s.Paused || s.Reason != syncgate.ReasonFieldNotVisible {
				t.Errorf("%s: State() = %+v; want closed until somebody sets the flag", name, s)
			}
		}
		if opened.Load() {
			t.Error("a gate has opened; want none to")
		}
		p.patch("child", pause)
		all(syncgate.ReasonSyncPaused)
		p.patch("child", `{"spec":{"syncPaused":false}}`)
		p.patch("quiet", resume)
		all(syncgate.ReasonSyncAllowed)
	})
}

// Under the stock CRD, and after the flag is lost, what the README says to do
// opens the gate.
func TestManifestDowngradeResumed(t *testing.T) {
	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	gate := p.agent(own)
	p.patch("child", pause)
	awaitReason(t, syncgate.ReasonSyncPaused, gate)
	p.apply(localcluster.StockManagedClusterCRD())
	awaitReason(t, syncgate.ReasonFieldNotVisible, gate)
	if s := p.agent(own).State(); s.Paused {
		t.Errorf("State() = %+v of a gate made after the downgrade; want open: it can't know", s)
	}
	p.patch("child", `{"spec":{"syncPaused":false}}`) // pruned: no edit at all
	p.heartbeat("child", 1)
	p.patch("child", `{"spec":{"syncMode":"Push"}}`)
	awaitReason(t, syncgate.ReasonSyncAllowed, gate)
	if s := gate.State(); s.Generation != 3 {
		t.Errorf("State() = %+v; want generation 3: only the edit of the mode counts", s)
	}
}
