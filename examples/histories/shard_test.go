package histories

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/localcluster"
	"github.com/clusternet/syncgate/informer"
)

// shard is an API server with the clusters that share it. What happens to the server
// happens to all of them.
type shard struct {
	testing.TB
	seed     uint64
	number   int
	base     time.Time
	opts     localcluster.Options
	server   *localcluster.Cluster
	parent   *rest.Config      // valid through restarts
	client   dynamic.Interface // of the operators and the observer: without faults
	clusters map[string]*cluster
	recorder recorder // of the server's own events
	troubles map[string]int
	lived    time.Duration // how long the part with faults took
}

func newShard(tb testing.TB, seed uint64, number, clusters int) *shard {
	s := &shard{
		TB: tb, seed: seed, number: number, base: time.Now(),
		opts: localcluster.Options{DataDir: tb.TempDir()}, clusters: map[string]*cluster{}, troubles: map[string]int{},
	}
	s.recorder.base = s.base
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.start(ctx)
	tb.Cleanup(func() {
		if err := s.server.Stop(); err != nil {
			tb.Error(err)
		}
	})
	s.opts.Port = s.server.Port()
	s.parent = s.server.Config()
	for _, crd := range []func() error{
		func() error { return s.server.Apply(ctx, localcluster.ManagedClusterCRD()) },
		func() error { return s.server.Apply(ctx, localcluster.DescriptionCRD()) },
	} {
		if err := crd(); err != nil {
			tb.Fatal(err)
		}
	}
	var err error
	if s.client, err = dynamic.NewForConfig(s.config()); err != nil {
		tb.Fatal(err)
	}
	for i := range clusters {
		c := newCluster(s, number*clusters+i)
		s.clusters[c.namespace] = c
	}
	return s
}

// start starts the server. Its port is free while it is down, so this may take more than
// one attempt.
func (s *shard) start(ctx context.Context) {
	for {
		server, err := localcluster.Start(ctx, s.opts)
		if err == nil {
			s.server = server
			return
		}
		if !sleep(ctx, 100*time.Millisecond) {
			s.Fatal(err)
		}
	}
}

func (s *shard) config() *rest.Config { return rest.CopyConfig(s.parent) }

func (s *shard) managedClusters(namespace string) dynamic.ResourceInterface {
	return s.client.Resource(informer.Resource).Namespace(namespace)
}

// run runs the histories: first with faults, then without.
func (s *shard) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var observing, living, troubling, settling sync.WaitGroup
	observing.Go(func() { s.observe(ctx) })
	for _, c := range s.clusters {
		living.Go(func() { c.live(ctx) })
	}
	troubled, calm := context.WithCancel(ctx)
	troubling.Go(func() { s.trouble(troubled, ctx, rand.New(rand.NewPCG(s.seed, uint64(s.number)))) })
	living.Wait()
	calm()
	troubling.Wait()
	s.lived = time.Since(s.base)
	for _, c := range s.clusters {
		settling.Go(func() { c.settle(ctx) })
	}
	settling.Wait()
	cancel()
	observing.Wait()
}

// trouble disturbs the server until troubled ends, and leaves it as it was.
func (s *shard) trouble(troubled, ctx context.Context, random *rand.Rand) {
	stock := false
	for sleep(troubled, time.Duration(2000+random.IntN(6000))*time.Millisecond) {
		kind := []string{"restart", "kill", "compact", "compact and restart", "swap", "swap", "swap"}[random.IntN(7)]
		s.troubles[kind]++
		switch kind {
		case "restart", "kill":
			s.restart(ctx, kind == "kill")
		case "compact", "compact and restart":
			if err := s.server.Compact(ctx); err != nil {
				s.Error(err)
			}
			if kind != "compact" {
				s.restart(ctx, false)
			}
		case "swap":
			stock = !stock
			s.swap(ctx, stock)
		}
	}
	if stock {
		s.swap(ctx, false)
	}
}

func (s *shard) restart(ctx context.Context, kill bool) {
	end := s.server.Stop
	if kill {
		end = s.server.Kill
	}
	if err := end(); err != nil && !kill {
		s.Error(err)
	}
	s.start(ctx)
}

// swap replaces the CRD while all run.
func (s *shard) swap(ctx context.Context, stock bool) {
	crd := localcluster.ManagedClusterCRD()
	if stock {
		crd = localcluster.StockManagedClusterCRD()
	}
	e := Event{Kind: Swap, Stock: stock, Start: s.recorder.now()}
	if err := s.server.Apply(ctx, crd); err != nil {
		s.Error(err)
	}
	s.recorder.add(e)
}

// observe follows all ManagedClusters, and skips no version unless the server has
// forgotten it.
func (s *shard) observe(ctx context.Context) {
	client := s.client.Resource(informer.Resource)
	for version := ""; ctx.Err() == nil; {
		if version == "" {
			list, err := client.List(ctx, metav1.ListOptions{})
			if err != nil {
				sleep(ctx, 20*time.Millisecond)
				continue
			}
			for i := range list.Items {
				s.observed(&list.Items[i], false, true)
			}
			version = list.GetResourceVersion()
		}
		w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				version = ""
			}
			sleep(ctx, 20*time.Millisecond)
			continue
		}
		version = s.follow(w, version)
	}
}

// follow returns the version to go on from; empty: list again.
func (s *shard) follow(w watch.Interface, version string) string {
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return ""
		}
		s.observed(o, e.Type == watch.Deleted, false)
		version = o.GetResourceVersion()
	}
	return version
}

func (s *shard) observed(o *unstructured.Unstructured, deleted, gap bool) {
	if c := s.clusters[o.GetNamespace()]; c != nil {
		c.observe(o, deleted, gap)
	}
}

// history returns what happened to a cluster.
func (s *shard) history(c *cluster) *History {
	return &History{Objects: c.objects, Events: append(c.all(), s.recorder.all()...)}
}
