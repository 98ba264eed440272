//go:build go1.25

package informer_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/clusternet/syncgate/informer"
	"github.com/clusternet/syncgate/internal/testutil"
)

// Objects are trimmed before they are stored or passed to handlers.
func TestObjectsAreTrimmed(t *testing.T) {
	eachWay(t, func(t *testing.T, _ way) {
		extra := testutil.Annotated("not", "read")
		server := newServer(t, mine("a", extra), mine("b", extra))
		inf := forCluster(t, server, informer.Auto)
		var got []string
		if _, err := inf.AddEventHandler(handlerOf(func(event string, obj any) {
			o := obj.(*unstructured.Unstructured)
			got = append(got, event+" "+o.GetName())
			if len(o.GetAnnotations()) != 0 {
				t.Errorf("%s of %s with annotations %v; want none", event, o.GetName(), o.GetAnnotations())
			}
		})); err != nil {
			t.Fatal(err)
		}
		run(t, server, inf)
		server.Update(mine("a", testutil.Paused(true), extra))
		server.Create(mine("c", extra))
		server.Delete(namespace, "b")
		synctest.Wait()
		slices.Sort(got)
		if want := "add a add b add c delete b update a"; strings.Join(got, " ") != want {
			t.Errorf("events = %q; want %q", got, want)
		}
	})
}

func handlerOf(fn func(event string, obj any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { fn("add", obj) },
		UpdateFunc: func(_, obj any) { fn("update", obj) },
		DeleteFunc: func(obj any) { fn("delete", obj) },
	}
}
