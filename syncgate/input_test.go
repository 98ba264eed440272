//go:build go1.25

package syncgate_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
	tu "github.com/clusternet/syncgate/internal/testutil"
	"github.com/clusternet/syncgate/syncgate"
)

// These tests check that constructors refuse bad input and name it.

func TestHubBadInput(t *testing.T) {
	var source *tu.Source
	for name, tc := range map[string]struct {
		make func() error
		want string
	}{
		"nil informer": {func() error { _, err := syncgate.NewHub(nil, syncgate.Options{}); return err }, "informer is nil"},
		"nil pointer":  {func() error { _, err := syncgate.NewHub(source, syncgate.Options{}); return err }, "informer is nil"},
		"negative StaleAfter": {func() error {
			_, err := syncgate.NewHub(tu.NewSource(), syncgate.Options{StaleAfter: -1})
			return err
		}, "StaleAfter is negative"},
		"StaleAfter without LastContact": {func() error {
			plain := struct{ cache.SharedIndexInformer }{tu.NewSource()}
			_, err := syncgate.NewHub(plain, syncgate.Options{StaleAfter: time.Hour})
			return err
		}, "StaleAfter is set"},
		"nil client": {func() error { _, err := syncgate.New(nil, ns, id, syncgate.Options{}); return err }, "client is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.make(); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "syncgate: make a ") {
				t.Errorf("error = %v; want one with %q", err, tc.want)
			}
		})
	}
}

func TestAgentBadInput(t *testing.T) {
	server := tu.NewAPIServer()
	defer server.Close()
	client := server.Client()
	var none *dynamic.DynamicClient
	for name, tc := range map[string]struct {
		client    dynamic.Interface
		namespace string
		id        string
		opts      syncgate.Options
		want      string
	}{
		"nil client":          {nil, ns, id, syncgate.Options{}, "client is nil"},
		"nil pointer":         {none, ns, id, syncgate.Options{}, "client is nil"},
		"empty namespace":     {client, "", id, syncgate.Options{}, "namespace"},
		"malformed namespace": {client, "a/b", id, syncgate.Options{}, "namespace"},
		"empty ID":            {client, ns, "", syncgate.Options{}, "cluster ID is empty"},
		"malformed ID":        {client, ns, "a b", syncgate.Options{}, "is not valid"},
		"long ID":             {client, ns, strings.Repeat("x", 64), syncgate.Options{}, "is not valid"},
		"negative StaleAfter": {client, ns, id, syncgate.Options{StaleAfter: -time.Second}, "StaleAfter is negative"},
		"unknown selection":   {client, ns, id, syncgate.Options{Informer: informer.Options{Selection: 9}}, "Selection(9)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := syncgate.New(tc.client, tc.namespace, types.UID(tc.id), tc.opts)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "syncgate: make a gate: ") {
				t.Errorf("New = %v; want an error with %q", err, tc.want)
			}
		})
	}
	t.Run("a hub has no selection", func(t *testing.T) {
		inf, err := informer.ForHub(client, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := syncgate.NewHub(inf, syncgate.Options{Informer: informer.Options{Selection: informer.ByField}}); err == nil {
			t.Error("NewHub took options of an informer")
		}
	})
}
