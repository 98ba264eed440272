package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/internal/deploy"
	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/syncgate"
)

// The application is three objects of a kind of its own, since the child clusters here have no other.
var (
	appResource = schema.GroupVersionResource{Group: "demo.example.com", Version: "v1", Resource: "apps"}
	apps        = []string{"api", "db", "web"}
)

const (
	appNamespace = "default"
	hotfix       = "hotfix" // the version of db that somebody changes by hand
)

// images returns what the apps are to be. An edit of the application changes all but db.
func images(version, ofDB string) []string {
	return []string{"api:" + version, "db:" + ofDB, "web:" + version}
}

// changed returns of apps or images those that an edit changes.
func changed(all []string) []string { return []string{all[0], all[2]} }

// site is a child cluster of the fleet: an API server, and what it is to get from deployers.
type site struct {
	child
	appPusher bool // of its agent

	parent  dynamic.Interface
	cluster *localcluster.Cluster
	client  dynamic.Interface
	log     requestLog

	due       []string      // the apps to be written, in this order, from the start
	held      time.Time     // since then; zero: it is not
	before    int           // requests until then
	heldFor   time.Duration // of the last time
	meanwhile []request     // in that time
}

// newSites returns the children, of which the hub deploys to all but the first.
func newSites() []*site {
	var sites []*site
	for i, c := range children {
		c.annotations = nil
		if i == 0 {
			c.mode = syncgate.Pull
		}
		sites = append(sites, &site{child: c, appPusher: i > 0})
	}
	return sites
}

func (s *site) start(ctx context.Context) (err error) {
	if s.cluster, err = startCluster(ctx, localcluster.Options{Handler: s.log.wrap}, appCRD()); err != nil {
		return err
	}
	config := as(tourName, s.cluster)
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("creating a client of %s: %w", s.name, err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client of %s: %w", s.name, err)
	}
	// A deployer that comes before would only try again, but say so.
	return until(ctx, s.name+" to tell that it serves apps", func(ctx context.Context) (bool, error) {
		_, err := kinds.ServerResourcesForGroupVersionWithContext(ctx, appResource.GroupVersion().String())
		return err == nil, ctx.Err()
	})
}

// startCluster returns the cluster that it has started, if any, with an error too.
func startCluster(ctx context.Context, opts localcluster.Options, crds ...*apiextensionsv1.CustomResourceDefinition) (*localcluster.Cluster, error) {
	cluster, err := localcluster.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if err := cluster.Apply(ctx, crd); err != nil {
			return cluster, err
		}
	}
	return cluster, nil
}

func (s *site) isHeld() bool { return !s.held.IsZero() }

// deployer is who is to deploy to it, by the name in its requests.
func (s *site) deployer() string {
	if syncgate.HubDeploys(s.mode, s.appPusher) {
		return hubName
	}
	return agentName
}

// reported returns what the agent has told the hub, if it has.
func (s *site) reported(ctx context.Context) (appPusher, known bool, err error) {
	object, err := s.parent.Resource(informer.Resource).Namespace(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return false, false, err
	}
	return unstructured.NestedBool(object.Object, "status", "appPusher")
}

// description is the name of the application in the parent.
const description = "shop"

// describe says in the parent what the child is to have.
func (s *site) describe(ctx context.Context, images []string) error {
	raw := make([]any, 0, len(images))
	for _, image := range images {
		name, _, _ := strings.Cut(image, ":")
		data, err := json.Marshal(map[string]any{
			"apiVersion": appResource.GroupVersion().String(), "kind": "App",
			"metadata": map[string]any{"namespace": appNamespace, "name": name},
			"spec":     map[string]any{"image": image},
		})
		if err != nil {
			return fmt.Errorf("describing the application for %s: %w", s, err)
		}
		raw = append(raw, base64.StdEncoding.EncodeToString(data))
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"deployer": "Generic", "raw": raw}}}
	object.SetGroupVersionKind(deploy.Resource.GroupVersion().WithKind("Description"))
	object.SetName(description)
	object.SetLabels(map[string]string{deploy.ClusterIDLabel: string(s.id)})
	_, err := s.parent.Resource(deploy.Resource).Namespace(s.namespace).
		Apply(ctx, description, object, metav1.ApplyOptions{FieldManager: tourName})
	if err != nil {
		return fmt.Errorf("describing the application for %s: %w", s, causeOf(ctx, err))
	}
	return nil
}

// await waits until the child has these images, by the writes that are due, and returns when it answered the
// last one.
func (s *site) await(ctx context.Context, want []string) (at time.Time, err error) {
	err = until(ctx, "the application to arrive at "+s.name, func(ctx context.Context) (bool, error) {
		got, err := s.images(ctx)
		if err != nil || !slices.Equal(got, want) {
			return false, err
		}
		for _, r := range writes(s.log.requests()) {
			if at = r.answered; at.IsZero() {
				return false, nil
			}
		}
		return true, s.wrote()
	})
	return at, err
}

// awaitPending waits until the Description says that it is not in the child yet, and returns why.
func (s *site) awaitPending(ctx context.Context) (reason string, err error) {
	err = until(ctx, "the Description of "+s.name+" to say Pending", func(ctx context.Context) (bool, error) {
		if err := s.wrote(); err != nil { // then it won't
			return false, err
		}
		object, err := s.parent.Resource(deploy.Resource).Namespace(s.namespace).Get(ctx, description, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		reason, _, _ = unstructured.NestedString(object.Object, "status", "reason")
		return phase == "Pending", nil
	})
	return reason, err
}

// drift changes an app of the child behind the back of its deployer.
func (s *site) drift(ctx context.Context) error {
	patch := fmt.Sprintf(`{"spec":{"image":"db:%s"}}`, hotfix)
	_, err := s.client.Resource(appResource).Namespace(appNamespace).
		Patch(ctx, "db", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("changing an app on %s: %w", s.name, causeOf(ctx, err))
	}
	return nil
}

// images returns what the child has, by name.
func (s *site) images(ctx context.Context) ([]string, error) {
	found, err := s.client.Resource(appResource).Namespace(appNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the apps of %s: %w", s.name, causeOf(ctx, err))
	}
	var all []string
	for _, item := range found.Items {
		image, _, _ := unstructured.NestedString(item.Object, "spec", "image")
		all = append(all, image)
	}
	slices.Sort(all)
	return all, nil
}

// check proves that the child has these images, by the writes that were due.
func (s *site) check(ctx context.Context, want []string) error {
	got, err := s.images(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return bug("checking %s: it has %s; want %s", s.name, list(got), list(want))
	}
	return s.wrote()
}

// wrote proves that the child got just the writes that were due, from the start, and from nobody but its
// deployer.
func (s *site) wrote() error {
	var got []string
	for _, r := range writes(s.log.requests()) {
		if r.from != s.deployer() {
			return bug("checking %s: %s wrote %s to it; only %s deploys to it", s.name, r.from, r.object, s.deployer())
		}
		got = append(got, r.object)
	}
	if !slices.Equal(got, s.due) {
		return bug("checking %s: deployers wrote %v to it; want %v", s.name, got, s.due)
	}
	return nil
}

// Who makes requests, for the log. Those of the tour are not in it.
const (
	hubName   = "the hub"
	agentName = "its agent"
	tourName  = "quickstart"
)

func as(name string, cluster *localcluster.Cluster) *rest.Config {
	config := cluster.Config()
	config.UserAgent = name
	return config
}

// requestLog is what a server was asked for, but for the tour's own requests.
type requestLog struct {
	mu  sync.Mutex
	all []request // guarded by mu
}

type request struct {
	from, object string
	write        bool
	answered     time.Time // zero: not yet
}

func (l *requestLog) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == tourName {
			next.ServeHTTP(w, r)
			return
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.URL.Query().Has("dryRun")
		l.mu.Lock()
		i := len(l.all)
		l.all = append(l.all, request{from: r.UserAgent(), object: path.Base(r.URL.Path), write: !reads})
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.all[i].answered = time.Now()
		}()
		next.ServeHTTP(w, r)
	})
}

func (l *requestLog) requests() []request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func writes(requests []request) []request {
	return slices.DeleteFunc(slices.Clone(requests), func(r request) bool { return !r.write })
}

func appCRD() *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: appResource.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: appResource.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: "App", ListKind: "AppList", Plural: appResource.Resource, Singular: "app",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: appResource.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
}
