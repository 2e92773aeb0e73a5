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

func networkFaults() []Fault {
	return []Fault{
		{Number: 1, Name: "isolate-one", What: "one node cut off from the others; clients still reach it",
			Inject: isolate(anyNode)},
		{Number: 2, Name: "halves", What: "the nodes in two halves", Inject: halves},
		{Number: 3, Name: "majorities-ring", What: "each node is heard by a majority, and no two by the same one; of " +
			"three nodes no connection is left", Inject: ring},
		{Number: 4, Name: "isolate-leader", What: "the node that leads most cut off from the others",
			Inject: isolate(leader)},
		{Number: 5, Name: "one-way", What: "what the leader sends arrives, what the others send it does not, or the other " +
			"way round", Inject: oneWay},
		{Number: 6, Name: "bridge", What: "two halves, and one node that reaches both", Inject: bridge},
		{Number: 7, Name: "flap", What: "a node cut off and back, many times a second to once in two seconds", Inject: flap},
		{Number: 7, Name: "swizzle", What: "the nodes cut off one after the other, and back in another order",
			Inject: swizzle},
		{Number: 8, Name: "delay", What: "everything between nodes takes 50 to 250 ms longer",
			Inject: between(network.All, network.Rule{Delay: 50 * time.Millisecond, Jitter: 200 * time.Millisecond})},
		{Number: 9, Name: "loss", What: "a fifth of the packets is lost",
			Inject: between(network.All, network.Rule{Loss: 0.2})},
		{Number: 10, Name: "reorder", What: "packets and connections arrive twice, and out of order",
			Inject: between(network.All, network.Rule{Duplicate: 0.2, Reorder: 0.2, Jitter: 20 * time.Millisecond})},
		{Number: 11, Name: "corrupt", What: "bits flip between nodes, where a checksum or TLS detects them",
			Inject: corrupt},
		{Number: 12, Name: "throttle", What: "64 KiB a second between nodes",
			Inject: between(network.Peer, network.Rule{BytesPerSecond: 64 << 10})},
		{Number: 13, Name: "reset", What: "connections between nodes are reset, again and again",
			Inject: between(network.Peer, network.Rule{Reset: true})},
		{Number: 13, Name: "half-open", What: "one side of each connection hears a reset, the other nothing",
			Inject: between(network.Peer, network.Rule{HalfOpen: true})},
		{Number: 13, Name: "mute", What: "new connections between nodes are taken and never answered",
			Inject: between(network.Peer, network.Rule{Mute: true})},
		{Number: 14, Name: "client-cut", What: "half of the clients do not reach one node, or hear nothing from it",
			Inject: clientCut},
		{Number: 14, Name: "client-reset", What: "the connections of clients to one node are reset", Inject: clientReset},
		{Number: 15, Name: "gossip-cut", What: "gossip of one node cut off, and nothing else",
			Inject: serviceCut(network.Gossip)},
		{Number: 16, Name: "raft-cut", What: "one node's connections for Raft and forwarding cut off, and nothing else",
			Inject: serviceCut(network.Peer)},
	}
}

// anyNode and leader say whom a fault strikes.
func anyNode(_ context.Context, s *Scene) (*lab.Node, error) { return s.anyone() }

func leader(ctx context.Context, s *Scene) (*lab.Node, error) { return s.Lab.Leader(ctx) }

// repair takes away all that was done to the network. Faults that strike together must not undo
// each other's: those that were set otherwise heal with the last.
func (s *Scene) repair(ctx context.Context) error { return s.Network.Heal(ctx) }

// members returns the names of the nodes that are part of the cluster, shuffled.
func (s *Scene) members() []string {
	var names []string
	for _, n := range s.remaining() {
		names = append(names, n.Name)
	}
	s.Rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// without returns the names but one.
func without(names []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == one })
}

func isolate(whom func(context.Context, *Scene) (*lab.Node, error)) func(context.Context, *Scene) (string,
	Heal, error) {
	return func(ctx context.Context, s *Scene) (string, Heal, error) {
		n, err := whom(ctx, s)
		if err != nil {
			return "", nil, err
		}
		s.spares(n.Name)
		return "isolated " + n.Name, s.repair, s.Network.Partition(ctx, []string{n.Name}, without(s.members(), n.Name))
	}
}

func halves(ctx context.Context, s *Scene) (string, Heal, error) {
	names := s.members()
	a, b := names[:len(names)/2], names[len(names)/2:]
	s.spares(a...)
	return fmt.Sprintf("%v apart from %v", a, b), s.repair, s.Network.Partition(ctx, a, b)
}

// ring lets each node send to the next ones of a circle only, as many as make a majority with
// itself.
func ring(ctx context.Context, s *Scene) (string, Heal, error) {
	names := s.members()
	for i, from := range names {
		for step := 1; step < len(names); step++ {
			if step <= len(names)/2 {
				continue
			}
			to := names[(i+step)%len(names)]
			if err := s.Network.Set(ctx, network.Link{From: from, To: to}, network.Rule{Drop: true}); err != nil {
				return "", nil, errors.Join(err, s.repair(ctx))
			}
		}
	}
	return fmt.Sprintf("a ring %v", names), s.repair, nil
}

func oneWay(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := leader(ctx, s)
	if err != nil {
		return "", nil, err
	}
	deaf := s.Rand.IntN(2) == 0
	s.spares(n.Name)
	for _, other := range without(s.members(), n.Name) {
		link := network.Link{From: n.Name, To: other}
		if deaf {
			link.From, link.To = link.To, link.From
		}
		if err := s.Network.Set(ctx, link, network.Rule{Drop: true}); err != nil {
			return "", nil, errors.Join(err, s.repair(ctx))
		}
	}
	if deaf {
		return n.Name + " hears nothing", s.repair, nil
	}
	return n.Name + " is not heard", s.repair, nil
}

func bridge(ctx context.Context, s *Scene) (string, Heal, error) {
	names := s.members()
	middle := len(names) / 2
	a, b := names[:middle+1], names[middle:]
	return fmt.Sprintf("%s between %v and %v", names[middle], a, b), s.repair, s.Network.Partition(ctx, a, b)
}

func flap(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	others := without(s.members(), n.Name)
	every := s.between(50*time.Millisecond, 2*time.Second)
	heal := background(ctx, func(ctx context.Context) error {
		going := context.WithoutCancel(ctx)
		for {
			if err := s.Network.Partition(going, []string{n.Name}, others); err != nil {
				return err
			}
			more := pause(ctx, every)
			if err := s.Network.Partition(going); err != nil || !more || !pause(ctx, every) {
				return err
			}
		}
	})
	return fmt.Sprintf("%s flaps every %v", n.Name, every), heal, nil
}

func swizzle(ctx context.Context, s *Scene) (string, Heal, error) {
	out, back := s.members(), s.members()
	step := max(s.Hold/time.Duration(2*len(out)), 100*time.Millisecond)
	heal := background(ctx, func(ctx context.Context) error {
		going := context.WithoutCancel(ctx)
		cut := map[string]bool{}
		apply := func() error {
			together := slices.DeleteFunc(slices.Clone(out), func(name string) bool { return cut[name] })
			groups := [][]string{together}
			for _, name := range out {
				if cut[name] {
					groups = append(groups, []string{name})
				}
			}
			return s.Network.Partition(going, groups...)
		}
		for _, side := range []struct {
			names []string
			cut   bool
		}{{out, true}, {back, false}} {
			for _, name := range side.names {
				cut[name] = side.cut
				if err := apply(); err != nil || !pause(ctx, step) {
					return errors.Join(err, s.Network.Partition(going))
				}
			}
		}
		return s.Network.Partition(going)
	})
	return fmt.Sprintf("cut off in the order %v, back in the order %v", out, back), heal, nil
}

// between sets a rule for every link between nodes.
func between(service network.Service, rule network.Rule) func(context.Context, *Scene) (string, Heal, error) {
	return func(ctx context.Context, s *Scene) (string, Heal, error) {
		if err := s.setBetween(ctx, service, rule); err != nil {
			return "", nil, errors.Join(err, s.repair(ctx))
		}
		return "between all nodes", s.repair, nil
	}
}

// corrupt flips bits on the connections between nodes. Without TLS it spares the client ports: the
// mirror in a node is a client of the other nodes, and a client's bytes then have no checksum but
// TCP's, as docs/security.md says.
func corrupt(ctx context.Context, s *Scene) (string, Heal, error) {
	services := []network.Service{network.Peer, network.Gossip}
	if s.Lab.Secrets() != nil {
		services = append(services, network.Client)
	}
	for _, service := range services {
		if err := s.setBetween(ctx, service, network.Rule{Corrupt: 0.01}); err != nil {
			return "", nil, errors.Join(err, s.repair(ctx))
		}
	}
	return "between all nodes", s.repair, nil
}

// setBetween sets a rule for a service of every node, on the ways from all other nodes.
func (s *Scene) setBetween(ctx context.Context, service network.Service, rule network.Rule) error {
	names := s.members()
	for _, from := range names {
		for _, to := range without(names, from) {
			if err := s.Network.Set(ctx, network.Link{From: from, To: to, Service: service}, rule); err != nil {
				return err
			}
		}
	}
	return nil
}

// errNoClients says that a fault between clients and a node found no client.
var errNoClients = errors.New("there are no clients")

// clients returns the names of the clients of workloads: the harness itself is none, and goes on
// asking nodes.
func (s *Scene) clients() []string { return without(s.Clients(), lab.Harness) }

func clientCut(ctx context.Context, s *Scene) (string, Heal, error) {
	clients := s.clients()
	if len(clients) == 0 {
		return "", nil, errNoClients
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	s.Rand.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
	half := clients[:(len(clients)+1)/2]
	for _, client := range half {
		link := network.Link{From: client, To: n.Name, Service: network.Client}
		if s.Rand.IntN(2) == 0 {
			link.From, link.To = link.To, link.From // the call arrives, its answer does not
		}
		if err := s.Network.Set(ctx, link, network.Rule{Drop: true}); err != nil {
			return "", nil, errors.Join(err, s.repair(ctx))
		}
	}
	return fmt.Sprintf("%d clients cut off from %s", len(half), n.Name), s.repair, nil
}

func clientReset(ctx context.Context, s *Scene) (string, Heal, error) {
	if len(s.clients()) == 0 {
		return "", nil, errNoClients
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	heal := background(ctx, func(ctx context.Context) error {
		going := context.WithoutCancel(ctx)
		for on := true; ; on = !on {
			for _, client := range s.clients() {
				link := network.Link{From: client, To: n.Name, Service: network.Client}
				if err := s.Network.Set(going, link, network.Rule{Reset: on}); err != nil {
					return err
				}
			}
			if !on && ctx.Err() != nil {
				return nil
			}
			pause(ctx, 200*time.Millisecond)
		}
	})
	return "resets between clients and " + n.Name, heal, nil
}

func serviceCut(service network.Service) func(context.Context, *Scene) (string, Heal, error) {
	return func(ctx context.Context, s *Scene) (string, Heal, error) {
		n, err := s.anyone()
		if err != nil {
			return "", nil, err
		}
		if service == network.Peer {
			s.spares(n.Name)
		}
		for _, other := range without(s.members(), n.Name) {
			for _, link := range []network.Link{{From: n.Name, To: other, Service: service},
				{From: other, To: n.Name, Service: service}} {
				if err := s.Network.Set(ctx, link, network.Rule{Drop: true}); err != nil {
					return "", nil, errors.Join(err, s.repair(ctx))
				}
			}
		}
		return fmt.Sprintf("%s of %s cut off", service, n.Name), s.repair, nil
	}
}
