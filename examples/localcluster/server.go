package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

type serverOptions struct {
	conns    *connTracker
	creds    *credentials
	loopback *rest.Config // of the server's own client
	etcd     string
	wrap     func(http.Handler) http.Handler
}

type apiServer struct {
	port   int
	conns  *connTracker
	client *clientset.Clientset                      // with the server's own token: past Options.Handler
	crds   crdlisters.CustomResourceDefinitionLister // what the server itself goes by
	cancel context.CancelFunc
	drain  <-chan struct{} // closed when requests and watches have ended, after cancel
	done   chan struct{}   // closed when the server has ended
	err    error           // why; read after done
}

// startAPIServer configures the server without its command's options: those want kubeconfigs of a core
// API server for authentication, authorization and admission, which does not exist here.
func startAPIServer(ctx context.Context, opts serverOptions) (*apiServer, error) {
	port := opts.conns.Addr().(*net.TCPAddr).Port

	config := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress = opts.conns.Addr().String()
	config.LoopbackClientConfig = opts.loopback
	config.EnableProfiling = false
	config.EnableMetrics = false
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	// No admission plugin: all of them need core resources. So no Namespace need exist either.
	config.AdmissionControl = admission.NewChainHandler()

	cert, err := dynamiccertificates.NewStaticCertKeyContent("localcluster", opts.creds.cert, opts.creds.key)
	if err != nil {
		return nil, fmt.Errorf("loading its certificate: %w", err)
	}
	config.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: opts.conns, Cert: cert, HTTP2MaxStreamsPerConnection: 1000,
	}

	// Whoever has the token may do everything, nobody else anything. The server adds its own token.
	config.Authentication.Authenticator = authenticatorfactory.NewFromTokens(map[string]*user.DefaultInfo{
		opts.creds.token: {
			Name: "localcluster-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
		},
	}, nil)
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()

	// On shutdown end the watches and wait for them, instead of waiting until their clients hang up.
	config.ShutdownWatchTerminationGracePeriod = drainTime / 2

	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		chain := genericapiserver.DefaultBuildHandlerChain(api, c)
		if opts.wrap != nil {
			chain = opts.wrap(chain)
		}
		// The server's own informer, which it ends itself, must not see its watch end before that: it would
		// log it.
		own := *c
		own.ShutdownWatchTerminationGracePeriod = 0
		ownChain, ownHeader := genericapiserver.DefaultBuildHandlerChain(api, &own), "Bearer "+opts.loopback.BearerToken
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == ownHeader {
				ownChain.ServeHTTP(w, r)
				return
			}
			chain.ServeHTTP(w, r)
		})
	}

	// kubectl wants both documents; without the first the second has no custom resources.
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)

	storage := storagebackend.NewDefaultConfig("/registry", apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	storage.Transport.ServerList = []string{opts.etcd}
	storage.StorageObjectCountTracker = config.StorageObjectCountTracker
	etcd := genericoptions.NewEtcdOptions(storage)
	// Not etcd.ApplyTo: it would set a process-wide getter for metrics that nobody serves here.
	config.RESTOptionsGetter = etcd.CreateRESTOptionsGetter(
		&genericoptions.SimpleStorageFactory{StorageConfig: etcd.StorageConfig}, nil)

	// Not the default checks: one of them leaves a goroutine behind for the rest of the process.
	checks := []healthz.HealthChecker{healthz.PingHealthz}
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = checks, checks, checks

	completed := (&apiserver.Config{
		GenericConfig: config,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: options.NewCRDRESTOptionsGetter(*etcd, nil, config.StorageObjectCountTracker),
			ServiceResolver:      noServices{},
			AuthResolverWrapper: webhook.NewDefaultAuthenticationInfoResolverWrapper(
				nil, nil, opts.loopback, noopoteltrace.NewTracerProvider()),
		},
	}).Complete()
	// Such a server normally leaves /apis to an aggregator in front of it; clients discover through it.
	completed.GenericConfig.EnableDiscovery = true

	server, err := completed.New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	server.GenericAPIServer.ShutdownTimeout = drainTime

	client, err := clientset.NewForConfig(opts.loopback)
	if err != nil {
		return nil, fmt.Errorf("creating its own client: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	s := &apiServer{
		port: port, conns: opts.conns, client: client,
		crds:   server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister(),
		cancel: cancel, drain: config.DrainedNotify(), done: make(chan struct{}),
	}
	prepared := server.GenericAPIServer.PrepareRun()
	go func() {
		defer close(s.done)
		defer cancel()
		s.err = prepared.RunWithContext(ctx)
		if s.err == nil && ctx.Err() == nil {
			s.err = errors.New("no reason given")
		}
	}()
	return s, nil
}

// waitReady returns nil when the server is ready, and an error when it has ended or ctx ends.
func (s *apiServer) waitReady(ctx context.Context) error {
	return poll(ctx, func(ctx context.Context) (bool, error, error) {
		select {
		case <-s.done:
			return false, nil, fmt.Errorf("it has ended: %w", s.err)
		default:
		}
		if err := s.client.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error(); err != nil {
			return false, err, nil
		}
		_, err := s.client.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, err, nil
	})
}

var errLeftRunning = errors.New("it is left running, with etcd, since it did not get ready to be stopped; end the process")

// stop ends the server and closes its connections.
func (s *apiServer) stop() error {
	// Ended before its start hooks have succeeded, the server would end the process (klog.Fatal).
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	if err := s.waitReady(ctx); err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errLeftRunning, err)
	}

	s.cancel()
	select {
	case <-s.drain:
	case <-s.done:
	case <-time.After(drainTime):
	}
	// HTTP/2 would keep idle connections for another second, and requests that a Handler holds back would
	// keep theirs. The last answers need a moment to get out.
	select {
	case <-s.done:
	case <-time.After(flushTime):
	}
	s.conns.closeConns()
	select {
	case <-s.done:
		return s.err
	case <-time.After(giveUp):
		return fmt.Errorf("still running after %v; end the process to be rid of it", drainTime+giveUp)
	}
}

// noServices refuses webhooks by Service: there are no Services here.
type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("resolving the Service %s/%s: a local cluster has no Services; give the webhook a url", namespace, name)
}
