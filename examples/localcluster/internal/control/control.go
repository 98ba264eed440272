// Package control is what package localcluster and its server process agree on.
package control

// Config is the one line of JSON on the standard input of the server process. The process ends when its
// standard input does.
type Config struct {
	CA        []byte // PEM, what clients trust
	Cert, Key []byte // PEM, what the server shows
	Token     string // the bearer token of the kubeconfig's user
	Private   string // the bearer token of Start, Apply and Compact, and of the server itself
	EtcdDir   string // where etcd keeps its data
	TempDir   string // for etcd's socket; the process removes it at its end
}

// Files that the process inherits.
const (
	ListenerFD = 3
	LockFD     = 4 // keeps the data directory locked as long as the process lives
)

// MaxStreams is how many requests, watches among them, a client may have open on one connection.
const MaxStreams = 1000

// Paths that the server answers to the private token only.
const (
	CompactPath = "/localcluster/compact" // POST: compacts etcd to its newest revision
	CRDPath     = "/localcluster/crds/"   // GET, with a name: the CRD as the server itself goes by it, 404 if it knows none
)
