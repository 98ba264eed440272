package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/clusternet/syncgate/examples/internal/command"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/metrics"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

const crdName = "managedclusters.clusters.clusternet.io"

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func manifest(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join("..", "manifests", name))
	if err != nil {
		tb.Fatal(err)
	}
	return content
}

// documents parses each document of a YAML file strictly.
func documents(tb testing.TB, name string, into ...any) {
	tb.Helper()
	parts := bytes.Split(manifest(tb, name), []byte("\n---\n"))
	if len(parts) != len(into) {
		tb.Fatalf("%s has %d documents; want %d", name, len(parts), len(into))
	}
	for i, part := range parts {
		if err := yaml.UnmarshalStrict(part, into[i]); err != nil {
			tb.Errorf("document %d of %s: %v", i, name, err)
		}
	}
}

// patchCRD applies crd-patch.json as a client does.
func (p *parent) patchCRD() error {
	_, err := p.client.Resource(crds).Patch(context.Background(), crdName, types.JSONPatchType, manifest(p, "crd-patch.json"), metav1.PatchOptions{})
	return err
}

// selectable waits until the server selects by spec.clusterId.
func (p *parent) selectable() {
	p.Helper()
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		list, err := p.client.Resource(informer.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.clusterId=" + own})
		last = err
		if err == nil && len(list.Items) != 1 {
			last = fmt.Errorf("%d items; want 1", len(list.Items))
		}
		return last == nil, nil
	})
	if err != nil {
		p.Fatalf("selection by field: %v", last)
	}
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

func kubectl(t *testing.T, p *parent, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not in PATH")
	}
	out, err := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", p.Kubeconfig()}, args...)...).CombinedOutput()
	return string(out), err
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
			what, is := reason(syncgate.ReasonSyncPaused)
			eventually(t, gate, what, is)
			columns, row := p.row("child")
			want := []string{"Name", "CLUSTER ID", "CLUSTER TYPE", "SYNC MODE", "KUBERNETES", "STATUS", "PAUSED", "AGE", "AGENT VERSION"}
			if !slices.Equal(columns, want) || row["PAUSED"] != true {
				t.Errorf("columns = %q, PAUSED = %v; want %q, true", columns, row["PAUSED"], want)
			}
			_, err := p.client.Resource(informer.Resource).Namespace(namespace).
				Patch(t.Context(), "child", types.MergePatchType, []byte(`{"spec":{"syncPaused":"true"}}`), metav1.PatchOptions{})
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

// The stock CRD is put back while a cluster is paused: the server shows no flag
// any more and no new generation. No gate that has seen the pause opens.
func TestManifestDowngrade(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		p := newParent(t, localcluster.Options{}, localcluster.StockManagedClusterCRD())
		p.register("child", own)
		p.register("quiet", other)
		if err := p.patchCRD(); err != nil {
			t.Fatal(err)
		}
		p.selectable()
		hub := p.hub()
		gates := map[string]*syncgate.Gate{"agent": p.agent(own), "hub": hub.Gate(own), "quiet": hub.Gate(other)}
		var opened atomic.Bool
		for _, name := range []string{"child", "quiet"} {
			p.patch(name, pause)
		}
		all := func(want string) {
			t.Helper()
			for name, gate := range gates {
				what, is := reason(want)
				eventually(t, gate, name+": "+what, is)
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

		if err := p.patchCRD(); err != nil {
			t.Fatal(err)
		}
		p.selectable()
		what, is := reason(syncgate.ReasonSyncPaused) // nothing has written the object
		eventually(t, gates["quiet"], what, is)
		eventually(t, gates["agent"], "ByField", func(s syncgate.State) bool { return s.Selection == informer.ByField })
		p.heartbeat("child", 4)
		for _, name := range []string{"agent", "hub"} {
			if s := gates[name].State(); !s.Paused || s.Reason != syncgate.ReasonFieldNotVisible {
				t.Errorf("%s: State() = %+v; want closed until somebody says what is meant", name, s)
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
	what, is := reason(syncgate.ReasonSyncPaused)
	eventually(t, gate, what, is)
	p.apply(localcluster.StockManagedClusterCRD())
	what, is = reason(syncgate.ReasonFieldNotVisible)
	eventually(t, gate, what, is)
	if s := p.agent(own).State(); s.Paused {
		t.Errorf("State() = %+v of a gate made after the downgrade; want open: it can't know", s)
	}
	p.patch("child", `{"spec":{"syncPaused":false}}`) // pruned: no edit at all
	p.heartbeat("child", 1)
	p.patch("child", `{"spec":{"syncMode":"Push"}}`)
	what, is = reason(syncgate.ReasonSyncAllowed)
	eventually(t, gate, what, is)
	if s := gate.State(); s.Generation != 3 {
		t.Errorf("State() = %+v; want generation 3: only the edit of the mode counts", s)
	}
}

// requests is a server's handler that lets a client with the user agent
// recordedAgent do what the rules allow, and nothing else.
type requests struct {
	rules     []rbacv1.PolicyRule
	namespace string // "": all

	mu      sync.Mutex
	used    sets.Set[string] // "group/resource/subresource verb", guarded by mu
	refused []string         // guarded by mu
}

const recordedAgent = "syncgate-recorded"

func (r *requests) handler(next http.Handler) http.Handler {
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.UserAgent() == recordedAgent {
			info, err := infos.NewRequestInfo(req)
			if err != nil || !r.allows(info) {
				http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

func (r *requests) allows(info *request.RequestInfo) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	what := fmt.Sprintf("%s/%s %s", info.APIGroup, resource, info.Verb)
	if info.IsResourceRequest && (r.namespace == "" || r.namespace == info.Namespace) {
		for _, rule := range r.rules {
			if slices.Contains(rule.APIGroups, info.APIGroup) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, info.Verb) {
				r.used.Insert(what)
				return true
			}
		}
	}
	r.refused = append(r.refused, what+" in namespace "+info.Namespace)
	return false
}

// The roles are enough for a gate and its report, and allow nothing that they do
// not use.
func TestManifestRoles(t *testing.T) {
	var role rbacv1.Role
	var clusterRole rbacv1.ClusterRole
	var binding rbacv1.RoleBinding
	var clusterBinding rbacv1.ClusterRoleBinding
	documents(t, "rbac-agent.yaml", &role, &binding)
	documents(t, "rbac-hub.yaml", &clusterRole, &clusterBinding)
	if role.Kind != "Role" || clusterRole.Kind != "ClusterRole" || binding.Kind != "RoleBinding" || clusterBinding.Kind != "ClusterRoleBinding" ||
		binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}) || binding.Namespace != role.Namespace ||
		clusterBinding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name}) {
		t.Error("a binding does not bind its role")
	}

	for name, of := range map[string]struct {
		rules     []rbacv1.PolicyRule
		namespace string
		stock     bool
		lists     bool // what streams don't need
	}{
		"agent":                     {rules: role.Rules, namespace: role.Namespace},
		"agent, lists":              {rules: role.Rules, namespace: role.Namespace, lists: true},
		"agent under the stock CRD": {rules: role.Rules, namespace: role.Namespace, stock: true, lists: true},
		"hub":                       {rules: clusterRole.Rules},
		"hub, lists":                {rules: clusterRole.Rules, lists: true},
	} {
		t.Run(name, func(t *testing.T) {
			before := clientfeatures.FeatureGates()
			clientfeatures.ReplaceFeatureGates(gates{before, !of.lists})
			t.Cleanup(func() { clientfeatures.ReplaceFeatureGates(before) })
			seen := &requests{rules: of.rules, namespace: of.namespace, used: sets.New[string]()}
			crd := localcluster.ManagedClusterCRD()
			if of.stock {
				crd = localcluster.StockManagedClusterCRD()
			}
			p := newParent(t, localcluster.Options{Handler: seen.handler}, crd)
			p.register("child", own)
			config := p.Config()
			config.UserAgent = recordedAgent
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			admin := p.client
			p.client = client
			var all report.Gates
			var gate *syncgate.Gate
			if of.namespace == "" {
				hub := p.hub()
				all, gate = hub, hub.Gate(own)
			} else {
				gate = p.agent(own)
				all = gate
			}
			p.client = admin
			var ended sync.WaitGroup
			defer ended.Wait()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			recorder, err := command.Recorder(ctx, config, "syncgate")
			if err != nil {
				t.Fatal(err)
			}
			reporter, err := report.New(client, all, report.Options{Recorder: recorder})
			if err != nil {
				t.Fatal(err)
			}
			ended.Go(func() { _ = reporter.Run(ctx) })
			const held = "True Paused: held by backup (nightly); nothing is in flight"
			for _, hold := range []struct{ value, condition string }{{`"nightly"`, held}, {`null`, syncing}, {`"nightly"`, held}} {
				// The second pause has the same Event as the first, which is patched.
				p.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":`+hold.value+`}}}`)
				p.becomes("child", hold.condition)
			}
			what, is := reason(syncgate.ReasonHeld)
			eventually(t, gate, what, is)

			var allowed []string
			for _, rule := range of.rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							allowed = append(allowed, fmt.Sprintf("%s/%s %s", group, resource, verb))
						}
					}
				}
			}
			// A streamed list is a watch.
			allowed = slices.DeleteFunc(allowed, func(s string) bool { return strings.HasSuffix(s, " list") && !of.lists })
			_ = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, soon, true, func(context.Context) (bool, error) {
				seen.mu.Lock()
				defer seen.mu.Unlock()
				return seen.used.HasAll(allowed...), nil
			})
			obj, err := admin.Resource(informer.Resource).Namespace(namespace).Get(ctx, "child", metav1.GetOptions{})
			if err != nil || !strings.Contains(fmt.Sprint(obj.Object["status"]), "SyncPaused") {
				t.Errorf("status = %v, %v; want the condition SyncPaused", obj, err)
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if unused := sets.New(allowed...).Difference(seen.used); len(unused) > 0 {
				t.Errorf("allowed and not used: %v", sets.List(unused))
			}
			if len(seen.refused) > 0 {
				t.Errorf("not allowed and used: %v", seen.refused)
			}
		})
	}
}

// prometheusRule has the fields of a PrometheusRule that ours uses, so that a
// misspelt one is an error.
type prometheusRule struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

// The alerts are about metrics and labels that there are.
func TestManifestPrometheusRule(t *testing.T) {
	var rule prometheusRule
	documents(t, "prometheusrule.yaml", &rule)
	if rule.APIVersion != "monitoring.coreos.com/v1" || rule.Kind != "PrometheusRule" {
		t.Errorf("%s %s; want a PrometheusRule", rule.APIVersion, rule.Kind)
	}

	p := newParent(t, localcluster.Options{}, localcluster.ManagedClusterCRD())
	p.register("child", own)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(p.agent(own)))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	// What a scrape adds, and what the language has.
	known := sets.New("job", "instance", "count_over_time", "max", "by", "and", "on", "labels", "value")
	for _, f := range families {
		known.Insert(f.GetName())
		for _, l := range f.GetMetric()[0].GetLabel() {
			known.Insert(l.GetName())
		}
	}
	alerts := sets.New[string]()
	word := regexp.MustCompile(`[a-z_]{2,}`)
	text := regexp.MustCompile(`"[^"]*"`)
	label := regexp.MustCompile(`{{[^}]*}}`)
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			alerts.Insert(r.Alert)
			words := word.FindAllString(text.ReplaceAllString(r.Expr, ""), -1)
			for _, annotation := range r.Annotations {
				words = append(words, word.FindAllString(strings.Join(label.FindAllString(annotation, -1), " "), -1)...)
			}
			if len(words) == 0 || !known.HasAll(words...) {
				t.Errorf("%s uses %v; want what there is", r.Alert, sets.List(sets.New(words...).Difference(known)))
			}
		}
	}
	if want := sets.New("SyncgatePauseForgotten", "SyncgatePauseNotAcknowledged"); !alerts.Equal(want) {
		t.Errorf("alerts = %v; want %v", sets.List(alerts), sets.List(want))
	}
}

// The patch can be read by whoever reviews it.
func TestManifestCRDPatchParses(t *testing.T) {
	var ops []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	decoder := json.NewDecoder(bytes.NewReader(manifest(t, "crd-patch.json")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&ops); err != nil || len(ops) == 0 {
		t.Errorf("crd-patch.json: %d operations, %v", len(ops), err)
	}
}
