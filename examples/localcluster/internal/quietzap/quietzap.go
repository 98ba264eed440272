// Package quietzap silences the logger that k8s.io/apiserver creates for its etcd clients while packages
// are initialised, for which there is no option. Otherwise it writes a warning to stderr for each request
// that Stop cuts off.
//
// Packages are initialised in the order of their import paths, as far as their imports allow. So this one,
// which imports nothing but what defines the default, comes before k8s.io/apiserver (the language
// guarantees it since Go 1.21), and localcluster, which imports both, after it: there Restore undoes the change.
package quietzap

import "go.etcd.io/etcd/client/pkg/v3/logutil"

var outputs = logutil.DefaultZapLoggerConfig.OutputPaths

func init() { logutil.DefaultZapLoggerConfig.OutputPaths = []string{"/dev/null"} }

// Restore gives other users of etcd's default logger their output back. Call it in an init function.
func Restore() { logutil.DefaultZapLoggerConfig.OutputPaths = outputs }
