//go:build !race

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

type etcdServer struct {
	etcd     *embed.Etcd
	endpoint string
}

// startEtcd starts a one-member etcd that only a Unix socket leads to: no port, and nobody else gets in.
func startEtcd(ctx context.Context, dir, socket string) (*etcdServer, error) {
	client := url.URL{Scheme: "unix", Path: socket}

	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.Name = "localcluster"
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenPeerUrls = nil // it has no peers
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.EnableGRPCGateway = false
	cfg.UnsafeNoFsync = true
	cfg.LogLevel = "error"
	// The only member has nobody to wait for, so it may elect itself soon.
	cfg.TickMs, cfg.ElectionMs = 20, 100

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	s := &etcdServer{etcd: etcd, endpoint: client.String()}
	select {
	case <-etcd.Server.ReadyNotify():
		return s, nil
	case err = <-etcd.Err():
		err = fmt.Errorf("it ended while starting: %w", err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, s.stop())
}

func (s *etcdServer) compact(ctx context.Context) error {
	// Physical: return when the old revisions are gone, not only marked.
	_, err := s.etcd.Server.Compact(ctx, &pb.CompactionRequest{Revision: s.etcd.Server.KV().Rev(), Physical: true})
	if errors.Is(err, mvcc.ErrCompacted) {
		return nil // nothing was written since
	}
	return err
}

func (s *etcdServer) stop() error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.etcd.Close()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(giveUp):
		return fmt.Errorf("still running after %v", giveUp)
	}
}
