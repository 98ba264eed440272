// Package localcluster runs a real Kubernetes API server, for tests and examples that must see what a server
// does: field selectors, pruning, watches that end, 410 and 409, restarts.
//
// It is k8s.io/apiextensions-apiserver over an embedded etcd, in a child process: CustomResourceDefinitions
// and their objects, discovery, OpenAPI, kubectl. It listens on 127.0.0.1 only, over TLS, and whoever has the
// token of the kubeconfig may do everything. It is up in about a second and stops in less.
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
// # The server process
//
// The program is ./apiserver. [Start] and [Build] build it with the go command, without the race detector
// whatever the caller is built with; Go's build cache keeps it. So a test of a client links and compiles no
// API server. A checkout and the go command must be there at run time, or the environment variable
// LOCALCLUSTER_APISERVER names a program that is built.
//
// A server process never outlives the process that started it, however that ends. When the server process
// ends by itself, requests fail as on a server that is gone, and the errors of [Cluster.Apply],
// [Cluster.Compact] and [Cluster.Stop] say why, with the last lines that it wrote. Otherwise its log is not
// shown.
//
// # Concurrency
//
// Clusters share nothing: start as many as needed, one after the other or at once.
//
// It needs an operating system that lets a process inherit open files: not Windows.
package localcluster
