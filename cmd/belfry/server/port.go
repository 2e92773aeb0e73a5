package server

import (
	"context"

	"github.com/belfrydb/belfry/cluster/gossip"
	"github.com/belfrydb/belfry/node/peer"
	"github.com/belfrydb/belfry/rpc/portcheck"
)

// PortProbes ask an address in the protocols of nodes.
func PortProbes() portcheck.Probes {
	return portcheck.Probes{
		Peer: func(ctx context.Context, addr string) (string, bool) {
			intro, err := peer.Hello(ctx, nil, addr)
			return intro.ServerID, err == nil
		},
		Gossip: gossip.Answers,
	}
}
