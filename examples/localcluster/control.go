package localcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/clusternet/syncgate/examples/localcluster/internal/control"
)

// controlClient goes to the server process, past Options.Handler.
type controlClient struct {
	host string
	http *http.Client
	kube *clientset.Clientset
}

func newControlClient(config *rest.Config) (*controlClient, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	kube, err := clientset.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	return &controlClient{host: config.Host, http: client, kube: kube}, nil
}

// waitReady returns nil when the server is ready, and an error when ctx ends.
func (c *controlClient) waitReady(ctx context.Context) error {
	return poll(ctx, func(ctx context.Context) (bool, error, error) {
		if err := c.kube.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error(); err != nil {
			return false, err, nil
		}
		_, err := c.kube.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, err, nil
	})
}

func (c *controlClient) compact(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, control.CompactPath)
	return err
}

// serversCRD returns the CRD as the server itself goes by it, which is a moment behind what it answers.
func (c *controlClient) serversCRD(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	body, err := c.do(ctx, http.MethodGet, control.CRDPath+name)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	return crd, json.Unmarshal(body, crd)
}

func (c *controlClient) do(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}

// poll calls try until it is done or returns a final error (its second). When ctx ends, the error wraps its
// cause and tells the last reason to go on (try's first error).
func poll(ctx context.Context, try func(context.Context) (done bool, notYet, final error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		done, notYet, final := try(ctx)
		if notYet != nil {
			last = notYet
		}
		return done, final
	})
	if err == nil || ctx.Err() == nil {
		return err
	}
	if last != nil {
		return fmt.Errorf("%w (at last: %w)", context.Cause(ctx), last)
	}
	return context.Cause(ctx)
}
