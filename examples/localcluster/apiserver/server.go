//go:build !race

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
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

	"github.com/clusternet/syncgate/examples/localcluster/internal/control"
)

type apiServer struct {
	conns  *connTracker
	cancel context.CancelFunc
	drain  <-chan struct{} // closed when requests and watches have ended, after cancel
	done   chan struct{}   // closed when the server has ended
	err    error           // why; read after done
}

func startAPIServer(config control.Config, conns *connTracker, etcd *etcdServer) (*apiServer, error) {
	generic, err := genericConfig(config, conns)
	if err != nil {
		return nil, err
	}
	private := &controlHandler{etcd: etcd, token: config.Private}
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return private.inFrontOf(genericapiserver.DefaultBuildHandlerChain(api, c))
	}
	storage := etcdOptions(generic, etcd.endpoint)
	// Not storage.ApplyTo: it adds health checks, which nothing here reads.
	generic.RESTOptionsGetter = storage.CreateRESTOptionsGetter(
		&genericoptions.SimpleStorageFactory{StorageConfig: storage.StorageConfig}, nil)

	completed := (&apiserver.Config{
		GenericConfig: generic,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: options.NewCRDRESTOptionsGetter(*storage, nil, generic.StorageObjectCountTracker),
			ServiceResolver:      noServices{},
			AuthResolverWrapper: webhook.NewDefaultAuthenticationInfoResolverWrapper(
				nil, nil, generic.LoopbackClientConfig, noopoteltrace.NewTracerProvider()),
		},
	}).Complete()
	// Such a server normally leaves /apis to an aggregator in front of it; clients discover through it.
	completed.GenericConfig.EnableDiscovery = true

	server, err := completed.New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	server.GenericAPIServer.ShutdownTimeout = drainTime
	private.crds = server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister()

	ctx, cancel := context.WithCancel(context.Background())
	s := &apiServer{conns: conns, cancel: cancel, drain: generic.DrainedNotify(), done: make(chan struct{})}
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

// genericConfig configures the server without its command's options: those want kubeconfigs of a core
// API server for authentication, authorization and admission, which does not exist here.
func genericConfig(from control.Config, conns *connTracker) (*genericapiserver.RecommendedConfig, error) {
	config := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress = conns.Addr().String()
	config.LoopbackClientConfig = &rest.Config{
		Host: "https://" + conns.Addr().String(), BearerToken: from.Private,
		TLSClientConfig: rest.TLSClientConfig{CAData: from.CA},
		QPS:             -1,
	}
	config.EnableProfiling = false
	config.EnableMetrics = false
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	// No admission plugin: all of them need core resources. So no Namespace need exist either.
	config.AdmissionControl = admission.NewChainHandler()

	cert, err := dynamiccertificates.NewStaticCertKeyContent("localcluster", from.Cert, from.Key)
	if err != nil {
		return nil, fmt.Errorf("loading its certificate: %w", err)
	}
	config.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: conns, Cert: cert, HTTP2MaxStreamsPerConnection: control.MaxStreams,
	}

	// Whoever has the token may do everything, nobody else anything. The server adds its own token.
	config.Authentication.Authenticator = authenticatorfactory.NewFromTokens(map[string]*user.DefaultInfo{
		from.Token: {
			Name: "localcluster-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
		},
	}, nil)
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()

	// On shutdown end the watches and wait for them, instead of waiting until their clients hang up.
	config.ShutdownWatchTerminationGracePeriod = drainTime / 2

	// kubectl wants both documents; without the first the second has no custom resources.
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)

	checks := []healthz.HealthChecker{healthz.PingHealthz}
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = checks, checks, checks
	return config, nil
}

func etcdOptions(config *genericapiserver.RecommendedConfig, endpoint string) *genericoptions.EtcdOptions {
	storage := storagebackend.NewDefaultConfig("/registry", apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	storage.Transport.ServerList = []string{endpoint}
	storage.StorageObjectCountTracker = config.StorageObjectCountTracker
	return genericoptions.NewEtcdOptions(storage)
}

// stop ends the server and closes its connections.
func (s *apiServer) stop() error {
	s.cancel()
	select {
	case <-s.drain:
	case <-s.done:
	case <-time.After(drainTime):
	}
	// HTTP/2 would keep idle connections for another second. The last answers need a moment to get out.
	select {
	case <-s.done:
	case <-time.After(flushTime):
	}
	s.conns.closeConns()
	select {
	case <-s.done:
		return s.err
	case <-time.After(giveUp):
		return fmt.Errorf("still running after %v", drainTime+giveUp)
	}
}

// noServices refuses webhooks by Service: there are no Services here.
type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("resolving the Service %s/%s: a local cluster has no Services; give the webhook a url", namespace, name)
}
