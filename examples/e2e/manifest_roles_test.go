package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/clusternet/syncgate/examples/internal/command"
	"github.com/clusternet/syncgate/examples/internal/fleettest"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/report"
	"github.com/clusternet/syncgate/syncgate"
)

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

// allowed returns what the rules allow, as in used. A streamed list is a watch.
func (r *requests) allowed(lists bool) (all []string) {
	for _, rule := range r.rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if verb != "list" || lists {
						all = append(all, fmt.Sprintf("%s/%s %s", group, resource, verb))
					}
				}
			}
		}
	}
	return all
}

// roleTest is one way to use a role.
type roleTest struct {
	rules     []rbacv1.PolicyRule
	namespace string
	stock     bool
	lists     bool // without streams
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
	for name, test := range map[string]roleTest{
		"agent":                     {rules: role.Rules, namespace: role.Namespace},
		"agent, lists":              {rules: role.Rules, namespace: role.Namespace, lists: true},
		"agent under the stock CRD": {rules: role.Rules, namespace: role.Namespace, stock: true, lists: true},
		"hub":                       {rules: clusterRole.Rules},
		"hub, lists":                {rules: clusterRole.Rules, lists: true},
	} {
		t.Run(name, test.run)
	}
}

func (test roleTest) run(t *testing.T) {
	fleettest.SetWatchList(t, !test.lists)
	requests := &requests{rules: test.rules, namespace: test.namespace, used: sets.New[string]()}
	crd := localcluster.ManagedClusterCRD()
	if test.stock {
		crd = localcluster.StockManagedClusterCRD()
	}
	admin := newParent(t, localcluster.Options{Handler: requests.handler}, crd)
	admin.register("child", own)
	config := admin.Config()
	config.UserAgent = recordedAgent
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p := *admin
	p.client = client
	var all report.Gates
	var gate *syncgate.Gate
	if test.namespace == "" {
		hub := p.hub()
		all, gate = hub, hub.Gate(own)
	} else {
		gate = p.agent(own)
		all = gate
	}
	recorder, err := command.Recorder(t.Context(), config, "syncgate")
	if err != nil {
		t.Fatal(err)
	}
	p.acknowledgeWith(all, klog.Background(), report.Options{Recorder: recorder})
	const held = "True Paused: held by backup (nightly); nothing is in flight"
	for _, hold := range []struct{ value, condition string }{{`"nightly"`, held}, {`null`, syncing}, {`"nightly"`, held}} {
		// The second pause has the same Event as the first, which is patched.
		admin.patch("child", `{"metadata":{"annotations":{"hold.clusters.clusternet.io/backup":`+hold.value+`}}}`)
		admin.becomes("child", hold.condition)
	}
	awaitReason(t, syncgate.ReasonHeld, gate)

	var unused, refused []string
	allowed := sets.New(requests.allowed(test.lists)...)
	fleettest.Eventually(t, soon, func() bool {
		requests.mu.Lock()
		defer requests.mu.Unlock()
		unused, refused = sets.List(allowed.Difference(requests.used)), slices.Clone(requests.refused)
		return len(unused) == 0
	}, func() string { return fmt.Sprintf("allowed and not used: %v", unused) })
	if len(refused) > 0 {
		t.Errorf("not allowed and used: %v", refused)
	}
}
