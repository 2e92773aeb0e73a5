package nemesis

import (
	"context"
	"fmt"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// mixedVersions has some nodes, never all, run a program that reads one format more, and go back to
// their own at the end: what they wrote meanwhile has to be what the old program reads.
func mixedVersions(ctx context.Context, s *Scene) (string, Heal, error) {
	later, err := s.Later(ctx)
	if err != nil {
		return "", nil, err
	}
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	nodes := s.Lab.Running()
	if len(nodes) < 2 {
		return "", nil, fmt.Errorf("%d nodes run: with one there are no mixed versions", len(nodes))
	}
	s.Rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	changed := nodes[:len(nodes)-1]
	for i, n := range changed {
		if err := s.runWith(ctx, n, later); err != nil {
			return "", nil, err
		}
		if i == (len(nodes)-1)/2-1 {
			pause(ctx, s.Hold) // a minority is later for a while
		}
	}
	s.Count("nodes that ran another version", int64(len(changed)))
	return namesOf(changed) + " run a later version", func(ctx context.Context) error {
		for _, n := range changed {
			if err := s.runWith(ctx, n, ""); err != nil {
				return err
			}
		}
		return s.awaitWhole(ctx)
	}, nil
}

// runWith has a node go on with another program, as an upgrade does.
func (s *Scene) runWith(ctx context.Context, n *lab.Node, program string) error {
	if err := n.Stop(); err != nil {
		return err
	}
	n.Use(program)
	if err := n.Start(ctx); err != nil {
		return err
	}
	return s.awaitWhole(ctx)
}
