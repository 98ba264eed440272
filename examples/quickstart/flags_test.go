package main

import (
	"strings"
	"testing"
)

func TestBadFlags(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		want string
	}{
		"unknown":                 {[]string{"-foo"}, "-foo"},
		"argument":                {[]string{"tour"}, `"tour"`},
		"argument after flags":    {[]string{"-keep", "yes"}, `"yes"`},
		"bad value":               {[]string{"-keep=maybe"}, "maybe"},
		"bad duration":            {[]string{"-kubeconfig", "f", "-timeout", "soon"}, "soon"},
		"no timeout":              {[]string{"-kubeconfig", "f", "-namespace", "n", "-cluster-id", "i", "-timeout", "0s"}, "-timeout"},
		"missing value":           {[]string{"-kubeconfig"}, "-kubeconfig"},
		"empty kubeconfig":        {[]string{"-kubeconfig", ""}, "-kubeconfig is empty"},
		"no namespace":            {[]string{"-kubeconfig", "f", "-cluster-id", "i"}, "-namespace"},
		"no cluster ID":           {[]string{"-kubeconfig", "f", "-namespace", "n"}, "-cluster-id"},
		"keep and kubeconfig":     {[]string{"-keep", "-kubeconfig", "f", "-namespace", "n", "-cluster-id", "i"}, "-keep"},
		"namespace without file":  {[]string{"-namespace", "n"}, "-namespace goes with -kubeconfig"},
		"cluster ID without file": {[]string{"-keep", "-cluster-id", "i"}, "-cluster-id goes with -kubeconfig"},
		"timeout without file":    {[]string{"-timeout", "1s"}, "-timeout goes with -kubeconfig"},
		"fleet and keep":          {[]string{"-fleet", "-keep"}, "-fleet and -keep exclude each other"},
		"fleet and kubeconfig":    {[]string{"-fleet", "-kubeconfig", "f", "-namespace", "n", "-cluster-id", "i"}, "-fleet and -kubeconfig"},
		"fleet and an empty file": {[]string{"-fleet", "-kubeconfig", ""}, "-fleet and -kubeconfig"},
		"fleet and a namespace":   {[]string{"-fleet", "-namespace", "n"}, "-namespace goes with -kubeconfig"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, test.args...)
			s.ends(2)
			got := s.stderr.String()
			if strings.Count(got, "\n") != 1 || !strings.Contains(got, test.want) || !strings.Contains(got, "-h") {
				t.Errorf("run(%q): stderr = %q; want one line with %q and a hint at -h", test.args, got, test.want)
			}
			if got := s.stdout.String(); got != "" {
				t.Errorf("run(%q): stdout = %q; want nothing", test.args, got)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	s := start(t, "-h")
	s.ends(0)
	checkLines(t, s.stdout.String())
	for _, want := range []string{"-keep", "-fleet", "-kubeconfig", "-namespace", "-cluster-id", "-timeout", "130"} {
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("the help does not mention %s", want)
		}
	}
}
