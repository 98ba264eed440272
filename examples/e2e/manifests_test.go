package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/metrics"
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

func kubectl(t *testing.T, p *parent, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not in PATH")
	}
	out, err := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", p.Kubeconfig()}, args...)...).CombinedOutput()
	return string(out), err
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
	known := sets.New("job", "instance", "count_over_time", "max", "by", "and", "unless", "on", "labels", "value")
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
