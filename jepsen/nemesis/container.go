package nemesis

import (
	"context"
	"errors"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// ContainerFaults returns the faults that only containers can have.
func ContainerFaults() []Fault {
	return []Fault{
		{Number: 1, Name: "compose-disconnect", What: "one container taken off its network, from the other nodes and from " +
			"clients (with --compose)", Inject: disconnect},
		{Number: 1, Name: "compose-isolate", What: "one container cut off from the other nodes; clients still reach it " +
			"(with --compose)", Inject: cutContainer(anyNode)},
		{Number: 4, Name: "compose-isolate-leader", What: "the same to the node that leads most (with --compose)",
			Inject: cutContainer(leader)},
	}
}

// errNoContainers says that a run that needs containers has none.
var errNoContainers = errors.New("the nodes do not run in containers")

func disconnect(ctx context.Context, s *Scene) (string, Heal, error) {
	containers := s.Lab.Containers()
	if containers == nil {
		return "", nil, errNoContainers
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	if err := containers.Disconnect(ctx, n.Name); err != nil {
		return "", nil, err
	}
	return "took " + n.Name + " off the network", func(ctx context.Context) error {
		return containers.Connect(ctx, n.Name)
	}, nil
}

func cutContainer(whom func(context.Context, *Scene) (*lab.Node, error)) func(context.Context, *Scene) (string,
	Heal, error) {
	return func(ctx context.Context, s *Scene) (string, Heal, error) {
		containers := s.Lab.Containers()
		if containers == nil {
			return "", nil, errNoContainers
		}
		n, err := whom(ctx, s)
		if err != nil {
			return "", nil, err
		}
		var others []string
		for _, other := range s.Lab.Running() {
			if other != n {
				others = append(others, other.Name)
			}
		}
		restore, err := containers.Cut(ctx, n.Name, others)
		return "cut off " + n.Name, restore, err
	}
}
