// Package fleettest has clusters for tests of deployers: a parent and its children, each
// an API server. A test knows what is written to a child from two sources
// that do not depend on the deployer: the request log of the child's server, and a watch
// of its objects.
//
// No test fails because something is slow: all waits here are generous, and end with the
// context of their test.
package fleettest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/syncgate"
)

// Soon is how long a test waits for what should happen at once. It is generous, since the
// machine may be busy with something else.
const Soon = time.Minute

// Fleet is a parent cluster with its children.
type Fleet struct {
	testing.TB
	Parent   *Parent
	Children []*Child
}

// Parent is the parent cluster.
type Parent struct {
	*localcluster.Cluster
	Client dynamic.Interface
	log    *requestLog
}

// Child is a child cluster, which the parent knows as a ManagedCluster.
type Child struct {
	*localcluster.Cluster
	testing.TB
	Client          dynamic.Interface
	Namespace, Name string // of its ManagedCluster
	ID              types.UID
	parent          *Parent
	log             *requestLog
}

// New starts a parent and n children, which are registered with a sync mode.
func New(tb testing.TB, n int, mode syncgate.Mode) *Fleet {
	tb.Helper()
	if err := localcluster.Build(context.Background()); err != nil { // the first time it takes longer than Soon
		tb.Fatal(err)
	}
	f := &Fleet{TB: tb, Parent: &Parent{log: &requestLog{}}, Children: make([]*Child, n)}
	var starting sync.WaitGroup
	starting.Go(func() {
		f.Parent.Cluster, f.Parent.Client = start(tb, f.Parent.log,
			localcluster.ManagedClusterCRD(), localcluster.DescriptionCRD(), leaseCRD())
	})
	for i := range f.Children {
		c := &Child{
			TB: tb, parent: f.Parent, log: &requestLog{},
			Namespace: fmt.Sprintf("clusternet-%05d", i+1), Name: fmt.Sprintf("child-%d", i+1),
			ID: types.UID(fmt.Sprintf("0b1c2d3e-1111-4a6b-8c7d-%012d", i+1)),
		}
		f.Children[i] = c
		starting.Go(func() { c.Cluster, c.Client = start(tb, c.log, appCRD(), leaseCRD()) })
	}
	starting.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	for _, c := range f.Children {
		c.Register(mode)
	}
	return f
}

// start may be called on a goroutine of its own, so it fails by tb.Error.
func start(tb testing.TB, log *requestLog, crds ...*apiextensionsv1.CustomResourceDefinition) (*localcluster.Cluster, dynamic.Interface) {
	ctx, cancel := context.WithTimeout(context.Background(), Soon)
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{Handler: log.wrap})
	if err != nil {
		tb.Error(err)
		return nil, nil
	}
	tb.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			tb.Error(err)
		}
	})
	for _, crd := range crds {
		if err := cluster.Apply(ctx, crd); err != nil {
			tb.Error(err)
		}
	}
	config := cluster.Config()
	config.UserAgent = userAgent
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Error(err)
	}
	return cluster, client
}

// In returns the fleet, or some of its children, for a subtest: failures are those of tb,
// and what ends with a test ends with tb.
func (f *Fleet) In(tb testing.TB, children ...*Child) *Fleet {
	if len(children) == 0 {
		children = f.Children
	}
	part := &Fleet{TB: tb, Parent: f.Parent}
	for _, c := range children {
		part.Children = append(part.Children, c.In(tb))
	}
	return part
}

// In is the same for a child.
func (c *Child) In(tb testing.TB) *Child {
	part := *c
	part.TB = tb
	return &part
}

// As returns config for a deployer of that name, which the request log shows.
func As(name string, config *rest.Config) *rest.Config {
	config.UserAgent = name
	config.ContentType = runtime.ContentTypeJSON // custom resources, which the Leases are here, have no other
	return config
}

// Run runs an agent or a hub until stop is called, or the test ends.
func Run(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := run(ctx); err != nil {
			tb.Errorf("Run = %v", err)
		}
	})
	stop = func() { cancel(); ended.Wait() }
	tb.Cleanup(stop)
	return stop
}
