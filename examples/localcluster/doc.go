// Package localcluster runs a real Kubernetes API server in this process, for tests and examples that must
// see what a server does: field selectors, pruning, watches that end, 410 and 409, restarts.
//
// It is k8s.io/apiextensions-apiserver over an embedded etcd: CustomResourceDefinitions and their objects,
// discovery, OpenAPI, kubectl. It listens on 127.0.0.1 only, over TLS, and whoever has the token of the
// kubeconfig may do everything. It is up in a fraction of a second and stops in about one.
//
//	cluster, err := localcluster.Start(ctx, localcluster.Options{})
//	if err != nil { ... }
//	defer cluster.Stop()
//	err = cluster.Apply(ctx, localcluster.ManagedClusterCRD())
//	client, err := dynamic.NewForConfig(cluster.Config())
//
// # What it is not
//
// There is no core API (no Namespaces, Secrets, Events, Leases), no controller and no admission. An object
// can be created in any namespace, and no Namespace object need exist. Deleting an owner deletes no
// dependents. RBAC is not evaluated.
//
// # Concurrency
//
// Clusters share nothing but read-only settings of the Kubernetes libraries (feature gates, schemes) and
// their metrics, which are registered once and not served: start as many as needed, one after the other or
// at once.
//
// # Logging
//
// The server's context and etcd's logger discard what they get, and nothing parses flags. But the server
// also calls klog's package functions, which write to stderr unless klog as a whole is told otherwise. So
// importing this package sets a klog logger, in an init function because klog allows no later moment safely:
// it drops what k8s.io/apiserver and k8s.io/apiextensions-apiserver write (also errors: they write one for
// every request without a valid token), except what ends the process, and passes everything else on to
// stderr in klog's format: every line of the program and of other libraries. Klog's verbosity flags keep
// their meaning; those that choose files do not, so a program that uses them, or that wants to see the
// server's lines, calls klog.ClearLogger or klog.SetLogger first thing in main. The logger of
// k8s.io/apiserver's etcd clients, created while packages are initialised, writes nowhere.
//
// # Goroutines
//
// After Stop a few goroutines of the server sit out a timer before they end: for up to a second after the
// last change of a CRD, for up to three after the last consistent list. A check for leaks has to look again.
package localcluster
