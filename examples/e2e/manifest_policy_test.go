package e2e

import (
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The policy refuses what looks like a hold and is none. The API server of localcluster
// serves no admission policies, so the expression is evaluated as an API server would.
func TestManifestHoldNames(t *testing.T) {
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	documents(t, "hold-names.yaml", &policy, &binding)
	if binding.Spec.PolicyName != policy.Name || len(policy.Spec.Validations) != 1 {
		t.Fatalf("the binding is for %q, and %q has %d validations; want one policy with one",
			binding.Spec.PolicyName, policy.Name, len(policy.Spec.Validations))
	}
	env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.NewExpressionsEnv().Compile(policy.Spec.Validations[0].Expression)
	if err := issues.Err(); err != nil {
		t.Fatal(err)
	}
	program, err := env.NewExpressionsEnv().Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	object := func(annotations ...string) map[string]any {
		metadata := map[string]any{"name": "child"}
		if len(annotations) > 0 {
			all := map[string]any{}
			for _, name := range annotations {
				all[name] = "why"
			}
			metadata["annotations"] = all
		}
		return map[string]any{"metadata": metadata}
	}
	const hold, miss = "hold.clusters.clusternet.io/backup", "holds.clusters.clusternet.io/backup"
	for name, tt := range map[string]struct {
		object, old any // old is nil for a new object
		allowed     bool
	}{
		"no annotations":              {object(), nil, true},
		"a hold":                      {object("other", hold, "hold-until.clusters.clusternet.io/backup"), nil, true},
		"plural":                      {object(hold, miss), nil, false},
		"singular":                    {object("hold.cluster.clusternet.io/backup"), nil, false},
		"no owner":                    {object("hold.clusters.clusternet.io"), object(), false},
		"another case":                {object("Hold.clusters.clusternet.io/backup"), object(hold), false},
		"exchanged":                   {object("clusters.clusternet.io/hold"), object(), false},
		"it was there before":         {object(miss, hold), object(miss), true},
		"it was there, another comes": {object(miss, "hold.clusters.clusternet.io"), object(miss), false},
		"it is removed":               {object(), object(miss), true},
	} {
		out, _, err := program.Eval(map[string]any{"object": tt.object, "oldObject": tt.old})
		if err != nil || out.Value() != tt.allowed {
			t.Errorf("%s: allowed = %v, %v; want %t", name, out, err, tt.allowed)
		}
	}
}
