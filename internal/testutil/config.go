package testutil

import "k8s.io/client-go/rest"

// Config returns the configuration of a real client of s, without a limit on its rate.
func (s *APIServer) Config() *rest.Config {
	return &rest.Config{Host: "http://apiserver.test", Transport: transport{s}, QPS: -1}
}
