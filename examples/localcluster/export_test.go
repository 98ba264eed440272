package localcluster

import (
	"context"

	"k8s.io/client-go/rest"
)

// Program is the path of the server's program.
func Program(ctx context.Context) (string, error) { return program(ctx) }

// ServerPID is the server process.
func (c *Cluster) ServerPID() int { return c.process.cmd.Process.Pid }

// Direct is the client configuration that goes past Options.Handler.
func (c *Cluster) Direct() *rest.Config {
	config := c.Config()
	config.Host = c.control.host
	return config
}
