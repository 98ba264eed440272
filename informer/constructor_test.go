package informer_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

func TestForClusterRefusesBadInput(t *testing.T) {
	server := testutil.NewAPIServer()
	defer server.Close()
	client := server.Client()
	for name, tt := range map[string]struct {
		client    dynamic.Interface
		namespace string
		clusterID types.UID
		opts      informer.Options
		want      string // of the error; empty: none
	}{
		"good":                  {client, "clusternet-7xk2p", "5f2b1a9e-8c3d", informer.Options{}, ""},
		"longest cluster ID":    {client, "ns", types.UID(strings.Repeat("a", 63)), informer.Options{Selection: informer.ByLabel}, ""},
		"nil client":            {nil, "ns", "id", informer.Options{}, "client is nil"},
		"nil pointer as client": {(*dynamic.DynamicClient)(nil), "ns", "id", informer.Options{}, "client is nil"},
		"empty namespace":       {client, "", "id", informer.Options{}, `namespace ""`},
		"malformed namespace":   {client, "Not_A/Namespace", "id", informer.Options{}, `namespace "Not_A/Namespace"`},
		"empty cluster ID":      {client, "ns", "", informer.Options{}, "cluster ID is empty"},
		"long cluster ID":       {client, "ns", types.UID(strings.Repeat("a", 64)), informer.Options{}, "is not valid"},
		"selector as cluster ID": {
			client, "ns", "a,metadata.name=b", informer.Options{}, `cluster ID "a,metadata.name=b" is not valid`,
		},
		"unknown selection":  {client, "ns", "id", informer.Options{Selection: 3}, "unknown Selection(3)"},
		"negative selection": {client, "ns", "id", informer.Options{Selection: -1}, "unknown Selection(-1)"},
	} {
		t.Run(name, func(t *testing.T) {
			inf, err := informer.ForCluster(tt.client, tt.namespace, tt.clusterID, tt.opts)
			checkConstructor(t, inf, err, "informer: make an informer for a cluster: ", tt.want)
		})
	}
	if got := server.Requests(); len(got) > 0 {
		t.Errorf("requests of constructors = %v; want none", got)
	}
}

func TestForHubRefusesBadInput(t *testing.T) {
	server := testutil.NewAPIServer()
	defer server.Close()
	for name, tt := range map[string]struct {
		client dynamic.Interface
		opts   informer.Options
		want   string
	}{
		"good":                  {server.Client(), informer.Options{}, ""},
		"nil client":            {nil, informer.Options{}, "client is nil"},
		"nil pointer as client": {(*dynamic.DynamicClient)(nil), informer.Options{}, "client is nil"},
		"selection":             {server.Client(), informer.Options{Selection: informer.ByField}, "Selection is ByField"},
	} {
		t.Run(name, func(t *testing.T) {
			inf, err := informer.ForHub(tt.client, tt.opts)
			checkConstructor(t, inf, err, "informer: make an informer for a hub: ", tt.want)
		})
	}
}

func checkConstructor(t *testing.T, inf *informer.Informer, err error, prefix, want string) {
	t.Helper()
	switch {
	case want == "":
		if inf == nil || err != nil {
			t.Errorf("constructor = %v, %v; want an informer", inf, err)
		}
	case inf != nil || err == nil:
		t.Errorf("constructor = %v, %v; want an error about %q", inf, err, want)
	case !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), want):
		t.Errorf("constructor: error %q; want %q and %q in it", err, prefix, want)
	}
}

func TestSelectionString(t *testing.T) {
	for sel, want := range map[informer.Selection]string{
		informer.Auto: "Auto", informer.ByField: "ByField", informer.ByLabel: "ByLabel", 7: "Selection(7)",
	} {
		if got := sel.String(); got != want {
			t.Errorf("Selection(%d).String() = %q; want %q", int(sel), got, want)
		}
	}
}
