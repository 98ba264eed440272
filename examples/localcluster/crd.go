package localcluster

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagedClusterCRD returns a new CustomResourceDefinition of managedclusters.clusters.clusternet.io
// (v1beta1, namespaced, short name mcls, status subresource) with what syncgate needs at its best: the
// boolean spec.syncPaused, spec.clusterId as a selectable field, and a PAUSED column for kubectl.
//
// It has the shape of the CRD that Clusternet ships: the same fields, required fields, patterns, enums and
// columns; an unknown field of the spec is pruned there and here. The caller may change what it gets.
func ManagedClusterCRD() *apiextensionsv1.CustomResourceDefinition {
	crd := StockManagedClusterCRD()
	version := &crd.Spec.Versions[0]

	version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["syncPaused"] = apiextensionsv1.JSONSchemaProps{
		Type:        "boolean",
		Description: "Pauses the synchronisation of applications to this cluster. What runs there keeps running.",
	}
	version.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.clusterId"}}

	// AGE and the wide columns stay last.
	at := slices.IndexFunc(version.AdditionalPrinterColumns, func(c apiextensionsv1.CustomResourceColumnDefinition) bool {
		return c.Name == "AGE"
	})
	version.AdditionalPrinterColumns = slices.Insert(version.AdditionalPrinterColumns, at, apiextensionsv1.CustomResourceColumnDefinition{
		Name: "PAUSED", Type: "boolean", JSONPath: ".spec.syncPaused",
		Description: "Whether the synchronisation to this cluster is paused",
	})
	return crd
}

// StockManagedClusterCRD returns a new CustomResourceDefinition like [ManagedClusterCRD] without the three
// additions. Under it the server prunes spec.syncPaused and answers a field selector on spec.clusterId with
// 400 "field label not supported": what a parent cluster with an older Clusternet does.
func StockManagedClusterCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "managedclusters.clusters.clusternet.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "clusters.clusternet.io",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: "ManagedCluster", ListKind: "ManagedClusterList",
				Plural: "managedclusters", Singular: "managedcluster",
				ShortNames: []string{"mcls"}, Categories: []string{"clusternet"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
					{Name: "CLUSTER ID", Type: "string", JSONPath: ".spec.clusterId"},
					{Name: "CLUSTER TYPE", Type: "string", JSONPath: ".spec.clusterType", Priority: 100},
					{Name: "SYNC MODE", Type: "string", JSONPath: ".spec.syncMode"},
					{Name: "KUBERNETES", Type: "string", JSONPath: ".status.k8sVersion"},
					{Name: "STATUS", Type: "string", JSONPath: ".status.conditions[?(@.type=='Ready')].status"},
					{Name: "AGE", Type: "date", JSONPath: ".metadata.creationTimestamp"},
					{Name: "AGENT VERSION", Type: "string", JSONPath: ".status.agentVersion", Priority: 100},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: object("A child cluster registered with this parent cluster.", properties{
						"apiVersion": {Type: "string"},
						"kind":       {Type: "string"},
						"metadata":   {Type: "object"},
						"spec":       *managedClusterSpec(),
						"status":     *managedClusterStatus(),
					}),
				},
			}},
		},
	}
}

// DescriptionCRD returns a new CustomResourceDefinition of descriptions.apps.clusternet.io (v1alpha1,
// namespaced, short name desc, status subresource): what a child cluster is to have, as Clusternet's parent
// cluster tells it to deployers. It has the shape of the CRD that Clusternet ships, as [StockManagedClusterCRD]
// has. The caller may change what it gets.
func DescriptionCRD() *apiextensionsv1.CustomResourceDefinition {
	encoded := func() *apiextensionsv1.JSONSchemaProps {
		return &apiextensionsv1.JSONSchemaProps{Type: "string", Format: "byte"}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "descriptions.apps.clusternet.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "apps.clusternet.io",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: "Description", ListKind: "DescriptionList",
				Plural: "descriptions", Singular: "description",
				ShortNames: []string{"desc"}, Categories: []string{"clusternet"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
					{Name: "DEPLOYER", Type: "string", JSONPath: ".spec.deployer"},
					{Name: "STATUS", Type: "string", JSONPath: ".status.phase"},
					{Name: "AGE", Type: "date", JSONPath: ".metadata.creationTimestamp"},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: object("What a child cluster is to have.", properties{
						"apiVersion": {Type: "string"},
						"kind":       {Type: "string"},
						"metadata":   {Type: "object"},
						"spec": *object("The objects or charts, and who installs them.", properties{
							"deployer": {Type: "string", Description: "What installs it.", Enum: enum("Helm", "Generic")},
							"raw":      *described(list(encoded()), "The objects, each as JSON."),
							"chartRaw": *described(list(encoded()), "The HelmCharts, each as JSON."),
							"charts": *list(object("A HelmChart to install.", properties{
								"name":      {Type: "string"},
								"namespace": {Type: "string"},
							}, "name", "namespace")),
						}, "deployer"),
						"status": *object("How far the installation has come.", properties{
							"phase": {
								Type: "string",
								Enum: enum("Pending", "Success", "Failure", "Installing", "Upgrading", "Uninstalling", "Superseded", "Unknown"),
							},
							"reason": {Type: "string", Description: "Why it is in this phase."},
							"manifestStatuses": *list(object("One of the objects.", properties{
								"apiVersion":     {Type: "string"},
								"kind":           {Type: "string"},
								"namespace":      {Type: "string"},
								"name":           {Type: "string"},
								"observedStatus": anything(),
							}, "apiVersion", "kind", "name")),
						}),
					}, "spec"),
				},
			}},
		},
	}
}

// properties keeps the schemas below readable.
type properties = map[string]apiextensionsv1.JSONSchemaProps

func managedClusterSpec() *apiextensionsv1.JSONSchemaProps {
	const hex = "[0-9a-fA-F]"
	spec := object("What the cluster should be.", properties{
		"clusterId": {
			Type: "string", Description: "The unique ID of the child cluster, a random UUID.",
			// Not anchored, as in the stock CRD.
			Pattern: hex + "{8}-" + hex + "{4}-" + hex + "{4}-" + hex + "{4}-" + hex + "{12}",
		},
		"clusterType": {Type: "string", Description: "The type of the child cluster."},
		"clusterInitBaseName": {
			Type: "string", Description: "The Base that initialises the cluster; fixed once set.",
			MaxLength: pointerTo[int64](512),
			XValidations: apiextensionsv1.ValidationRules{
				{Rule: "self == oldSelf", Message: "clusterInitBaseName cannot be changed"},
			},
		},
		"syncMode": {
			Type: "string", Description: "Who deploys: the parent (Push), the agent (Pull) or both (Dual).",
			Enum: enum("Push", "Pull", "Dual"),
		},
		"taints": *list(object("Keeps applications away that do not tolerate it.", properties{
			"effect":    {Type: "string"},
			"key":       {Type: "string"},
			"timeAdded": {Type: "string", Format: "date-time"},
			"value":     {Type: "string"},
		}, "effect", "key")),
	}, "clusterId", "syncMode")
	spec.XValidations = apiextensionsv1.ValidationRules{{
		Rule:    "!has(oldSelf.clusterInitBaseName) || has(self.clusterInitBaseName)",
		Message: "clusterInitBaseName cannot be removed",
	}}
	return spec
}

func managedClusterStatus() *apiextensionsv1.JSONSchemaProps {
	return object("What the agent reported last.", properties{
		"agentVersion": {Type: "string"},
		"apiserverURL": {Type: "string"},
		"appPusher": {
			Type: "boolean", Description: "Whether the parent cluster may deploy to this cluster.",
		},
		"clusterCIDR": {Type: "string"},
		"conditions": *list(object("One aspect of the cluster's state.", properties{
			"lastTransitionTime": {Type: "string", Format: "date-time"},
			"message":            {Type: "string", MaxLength: pointerTo[int64](32768)},
			"observedGeneration": {Type: "integer", Format: "int64", Minimum: pointerTo(0.0)},
			"reason": {
				Type: "string", MinLength: pointerTo[int64](1), MaxLength: pointerTo[int64](1024),
				Pattern: `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`,
			},
			"status": {Type: "string", Enum: enum("True", "False", "Unknown")},
			"type": {
				Type: "string", MaxLength: pointerTo[int64](316),
				Pattern: `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?` +
					`(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`,
			},
		}, "lastTransitionTime", "message", "reason", "status", "type")),
		"healthz":                   {Type: "boolean"},
		"heartbeatFrequencySeconds": {Type: "integer", Format: "int64"},
		"k8sVersion":                {Type: "string"},
		"kubeBurst":                 {Type: "integer", Format: "int32"},
		"kubeQPS":                   {Type: "number"},
		"lastObservedTime":          {Type: "string", Format: "date-time"},
		"livez":                     {Type: "boolean"},
		"platform":                  {Type: "string"},
		"predictorAddress":          {Type: "string"},
		"predictorDirectAccess":     {Type: "boolean"},
		"predictorEnabled":          {Type: "boolean"},
		"readyz":                    {Type: "boolean"},
		"serviceCIDR":               {Type: "string"},
		"useSocket":                 {Type: "boolean"},

		// Sums and counts that nothing here reads: kept as sent, not checked.
		"allocatable":    anything(),
		"capacity":       anything(),
		"nodeStatistics": anything(),
		"podStatistics":  anything(),
		"resourceUsage":  anything(),
	})
}

func object(description string, fields properties, required ...string) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{
		Type: "object", Description: description, Properties: fields, Required: required,
	}
}

func list(items *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{
		Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: items},
	}
}

func described(schema *apiextensionsv1.JSONSchemaProps, description string) *apiextensionsv1.JSONSchemaProps {
	schema.Description = description
	return schema
}

func anything() apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: pointerTo(true)}
}

func enum(values ...string) []apiextensionsv1.JSON {
	quoted := make([]apiextensionsv1.JSON, 0, len(values))
	for _, value := range values {
		quoted = append(quoted, apiextensionsv1.JSON{Raw: []byte(`"` + value + `"`)})
	}
	return quoted
}

func pointerTo[T any](value T) *T { return &value }
