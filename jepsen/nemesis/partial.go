package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
	"github.com/belfrydb/belfry/jepsen/network"
)

// reachFaults take paths between some nodes away, or some of what a node can do, and leave a
// majority whole: they are held until status must have named them.
func reachFaults() []Fault {
	faults := []Fault{
		{Number: 59, Name: "undialable", What: "nobody can dial the peer port of the node that leads most; its own " +
			"connections to others work", Inject: undialable},
		{Number: 60, Name: "partial", What: "the node that leads most and another one cut off from each other; both reach " +
			"all others", Inject: partial},
		{Number: 62, Name: "wrong-advertise", What: "one node restarted with an advertised address that leads nowhere, " +
			"and back", Inject: wrongAdvertise},
	}
	for i := range faults {
		faults[i].HoldMin = namingHold
	}
	return faults
}

// undialable has connections to the peer port of a node refused, or taken and never answered. Those
// that were open break. Gossip, clients and its own connections are left alone.
func undialable(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitSteady(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.Lab.Leader(ctx)
	if err != nil {
		return "", nil, err
	}
	others := without(s.members(), n.Name)
	set := func(rule network.Rule) error {
		var problems []error
		for _, other := range others {
			problems = append(problems, s.Network.Set(ctx, network.Link{From: other, To: n.Name, Service: network.Peer}, rule))
		}
		return errors.Join(problems...)
	}
	silent := s.Rand.IntN(2) == 0
	s.spares(n.Name)
	err, text := set(network.Rule{Reset: true}), "refused"
	if err == nil && silent {
		err, text = set(network.Rule{Mute: true}), "never answered"
	}
	if err != nil {
		return "", nil, errors.Join(err, s.repair(ctx))
	}
	return fmt.Sprintf("connections to the peer port of %s are %s", n.Name, text), s.repair, nil
}

// partial cuts two nodes off from each other, and no others. Each of them is part of a majority.
func partial(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitSteady(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.Lab.Leader(ctx)
	if err != nil {
		return "", nil, err
	}
	names := s.members()
	others := without(names, n.Name)
	if len(others) < 2 {
		return "", nil, errors.New("a partial partition takes three nodes")
	}
	other := others[0]
	s.spares().Victims = slices.Sorted(slices.Values([]string{n.Name, other}))
	err = s.Network.Partition(ctx, without(names, n.Name), without(names, other))
	return fmt.Sprintf("%s and %s cut off from each other", n.Name, other), s.repair, err
}

// awaitSteady waits until every node says that the cluster has all that it should have: only then a
// fault can be judged by what it spares. A node that was low on space or out of reach is named for
// half a minute after that.
func (s *Scene) awaitSteady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, moveMax)
	defer cancel()
	if err := s.Lab.AwaitEverywhere(ctx, "a cluster that is whole", lab.Healthy); err != nil {
		return err
	}
	pause(ctx, steadyPause) // until the prober has seen it as well
	return nil
}

// steadyPause is longer than the time between two questions of the prober to a node.
const steadyPause = 2 * time.Second

// nowhere is an address at which no node listens, in no kind of network.
const nowhere = "127.255.255.254"

func wrongAdvertise(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitSteady(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	restart := func(ctx context.Context, address string) error {
		if err := n.Stop(); err != nil {
			return err
		}
		n.Advertise(address)
		return n.Start(ctx)
	}
	s.spares(n.Name)
	if err := restart(ctx, nowhere); err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("%s advertises %s", n.Name, nowhere), func(ctx context.Context) error {
		return restart(ctx, "")
	}, nil
}
