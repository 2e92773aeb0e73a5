package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/nemesis/intruder"
	"github.com/belfrydb/belfry/jepsen/network"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// hostileAtOnce is how many hostile connections each service has at a time.
	hostileAtOnce = 24
	// servedMax is how long a node may take to answer an honest question meanwhile.
	servedMax = 10 * time.Second
)

// clientFaults are what connections from outside do to nodes. What the clients of workloads do is
// in Elsewhere.
func clientFaults() []Fault {
	return []Fault{
		{Number: 58, Name: "hostile", What: "garbage, half requests, slow senders, huge bodies and many connections at " +
			"one node's ports", Inject: hostile},
	}
}

// hostile misuses the ports of one node, as neither a node nor a client would. The cluster must go
// on serving.
func hostile(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	crowd, seed := s.intruders(n), s.Rand.Uint64()
	heal := background(ctx, func(ctx context.Context) error {
		var all sync.WaitGroup
		for i := range 3 * hostileAtOnce {
			service := []network.Service{network.Client, network.Peer, network.Gossip}[i%3]
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			all.Go(func() { crowd.Intrude(ctx, service, random) })
		}
		all.Go(func() { crowd.SendPackets(ctx, rand.New(rand.NewPCG(seed, 1<<32))) })
		err := s.honest(ctx, n)
		all.Wait()
		s.Count("hostile connections", crowd.Connections())
		s.Count("hostile packets", crowd.Packets())
		if crowd.Connections() == 0 && n.Running() {
			err = errors.Join(err, fmt.Errorf("nobody could connect to %s, so nothing hostile was done", n.Name))
		}
		return err
	})
	return "garbage, half requests and slow senders at " + n.Name, heal, nil
}

// honest asks the node for the state of the cluster again and again until ctx ends. It allows a
// node that was killed meanwhile not to answer.
func (s *Scene) honest(ctx context.Context, n *lab.Node) error {
	admin, err := s.Lab.Admin(n.Name)
	if err != nil {
		return err
	}
	var problem error
	answered := time.Now()
	for pause(ctx, 200*time.Millisecond) {
		_, err := admin.GetCluster(ctx, &belfryv1.GetClusterRequest{})
		if err == nil || ctx.Err() != nil || !n.Running() {
			answered = time.Now()
			continue
		}
		if waited := time.Since(answered); waited > servedMax && problem == nil {
			problem = fmt.Errorf("%s has answered nobody for %v beside hostile connections: %w", n.Name,
				waited.Round(time.Millisecond), err)
		}
	}
	return problem
}

// intruders returns a crowd that misuses the ports of a node.
func (s *Scene) intruders(n *lab.Node) *intruder.Crowd {
	return intruder.New(s.Network.Host(n.Name), s.Network.Advertised(n.Name))
}
