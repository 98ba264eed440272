package localcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Apply creates or updates the CRD (crd itself is not changed) and blocks until it is established and
// served: a list succeeds. When an update changes the selectable fields, it also waits until that shows: a
// list by each declared field is answered 200, by each removed one 400. An update that leaves them alone
// takes effect a moment after Apply returns, as on any API server.
//
// Nor does the server end the open watches at once when a CRD changes: they go on for about a second, and
// show objects as the old schema has them, then end without an error event. A change made in that second is
// thus seen without the fields that are new, and a watch that resumes after it does not repeat it.
//
// Updates that meet another writer are tried again. Apply goes on until it is done, the server refuses the
// CRD, or ctx ends; give ctx a deadline. The error starts with what was attempted and wraps the cause.
func (c *Cluster) Apply(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if crd == nil {
		return errors.New("applying a CRD: it is nil; pass ManagedClusterCRD() or another one")
	}
	ctx, cancel := c.process.during(ctx)
	defer cancel()
	before, err := c.control.createOrUpdate(ctx, crd)
	if err := c.process.explain(ctx, err); err != nil {
		return fmt.Errorf("applying the CRD %s: %w", crd.Name, err)
	}
	if err := c.process.explain(ctx, c.control.waitServed(ctx, crd, before)); err != nil {
		return fmt.Errorf("waiting for the CRD %s to be served: %w", crd.Name, err)
	}
	return nil
}

// createOrUpdate returns what was there before, nil if nothing.
func (c *controlClient) createOrUpdate(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (before *apiextensionsv1.CustomResourceDefinition, _ error) {
	crds := c.kube.ApiextensionsV1().CustomResourceDefinitions()
	return before, poll(ctx, func(ctx context.Context) (bool, error, error) {
		before = nil
		existing, err := crds.Get(ctx, crd.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = crds.Create(ctx, crd.DeepCopy(), metav1.CreateOptions{})
		case err == nil:
			before = existing.DeepCopy()
			crd.Spec.DeepCopyInto(&existing.Spec)
			// Only what is named here: other writers' labels and annotations stay.
			if existing.Labels == nil {
				existing.Labels = map[string]string{}
			}
			maps.Copy(existing.Labels, crd.Labels)
			if existing.Annotations == nil {
				existing.Annotations = map[string]string{}
			}
			maps.Copy(existing.Annotations, crd.Annotations)
			_, err = crds.Update(ctx, existing, metav1.UpdateOptions{})
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return false, err, nil
		}
		return err == nil, nil, err
	})
}

func (c *controlClient) waitServed(ctx context.Context, crd, before *apiextensionsv1.CustomResourceDefinition) error {
	if err := c.waitEstablished(ctx, crd.Name); err != nil {
		return err
	}
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		path := fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, version.Name, crd.Spec.Names.Plural)
		if err := c.waitListed(ctx, path, "", true); err != nil {
			return err
		}
		now, then := selectableFields(crd, version.Name), selectableFields(before, version.Name)
		for _, field := range now {
			if err := c.waitListed(ctx, path, field, true); err != nil {
				return err
			}
		}
		for _, field := range then {
			if slices.Contains(now, field) {
				continue
			}
			if err := c.waitListed(ctx, path, field, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitEstablished waits until the CRD is established, and for the server to believe that it has been for a
// while: during the first two seconds it delays each creation of an object by two seconds, for the sake of
// other API servers that lag behind.
func (c *controlClient) waitEstablished(ctx context.Context, name string) error {
	crds := c.kube.ApiextensionsV1().CustomResourceDefinitions()
	err := poll(ctx, func(ctx context.Context) (bool, error, error) {
		got, err := crds.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil, err
		}
		if refused := condition(got, apiextensionsv1.NamesAccepted, apiextensionsv1.ConditionFalse); refused != nil {
			return false, nil, fmt.Errorf("its names are refused: %s; rename it, or delete the CRD that has them", refused.Message)
		}
		established := condition(got, apiextensionsv1.Established, apiextensionsv1.ConditionTrue)
		if established == nil {
			return false, errors.New("it is not established"), nil
		}
		if !justNow(established) {
			return true, nil, nil
		}
		established.LastTransitionTime = metav1.NewTime(established.LastTransitionTime.Add(-time.Minute))
		_, err = crds.UpdateStatus(ctx, got, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, err, nil
		}
		return err == nil, nil, err
	})
	if err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) (bool, error, error) {
		got, err := c.serversCRD(ctx, name)
		if err != nil {
			return false, err, nil
		}
		established := condition(got, apiextensionsv1.Established, apiextensionsv1.ConditionTrue)
		return established != nil && !justNow(established), errors.New("the server has not noticed it"), nil
	})
}

func justNow(established *apiextensionsv1.CustomResourceDefinitionCondition) bool {
	return time.Since(established.LastTransitionTime.Time) < 5*time.Second
}

// condition returns the condition of crd when it has this status, nil otherwise.
func condition(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus) *apiextensionsv1.CustomResourceDefinitionCondition {
	for i := range crd.Status.Conditions {
		if c := &crd.Status.Conditions[i]; c.Type == kind && c.Status == status {
			return c
		}
	}
	return nil
}

// waitListed waits until a list by the field ("" for all) is answered, or refused as a bad request.
func (c *controlClient) waitListed(ctx context.Context, path, field string, answered bool) error {
	return poll(ctx, func(ctx context.Context) (bool, error, error) {
		// No retries in the client: it would sleep for a second while the server fills its watch cache.
		request := c.kube.RESTClient().Get().AbsPath(path).Param("limit", "1").MaxRetries(0)
		if field != "" {
			request = request.Param("fieldSelector", field+"=0")
		}
		err := request.Do(ctx).Error()
		switch {
		case answered:
			return err == nil, err, nil
		case err == nil:
			return false, fmt.Errorf("%s is still selectable", field), nil
		default:
			return apierrors.IsBadRequest(err), err, nil
		}
	})
}

// selectableFields returns the paths as field selectors spell them, without the leading dot.
func selectableFields(crd *apiextensionsv1.CustomResourceDefinition, version string) []string {
	if crd == nil {
		return nil
	}
	var fields []string
	for _, v := range crd.Spec.Versions {
		if v.Name != version || !v.Served {
			continue
		}
		for _, field := range v.SelectableFields {
			fields = append(fields, strings.TrimPrefix(field.JSONPath, "."))
		}
	}
	return fields
}
