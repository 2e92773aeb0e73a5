package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// impostor puts a server of another cluster at the address of a node that is dead. Its peers must not take it for the node: what they would tell it, and
// it them, belongs to nobody. In the end the node comes back.
func impostor(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	name := n.Name // it claims to be that node, or another one
	if s.Rand.IntN(2) == 0 {
		name = "stranger"
	}
	dir := filepath.Join(s.Dir, "strangers", fmt.Sprintf("%s-%d", n.Name, s.Now()))
	other, err := s.Lab.Stranger(lab.Stranger{Place: n.Name, Name: name, Data: dir})
	if err != nil {
		return "", nil, err
	}
	before, err := s.nodesKnown(ctx)
	if err != nil {
		return "", nil, err
	}
	n.Kill()
	if err := other.Start(ctx); err != nil {
		return "", nil, fmt.Errorf("starting a stranger at the address of %s: %w", n.Name, err)
	}
	return fmt.Sprintf("%s of another cluster at the address of %s", name, n.Name), func(ctx context.Context) error {
		after, err := s.nodesKnown(ctx)
		if err == nil && !slices.Equal(before, after) {
			err = fmt.Errorf("the nodes of the cluster were %q, and are %q with a stranger at the address of %s", before, after, n.Name)
		}
		other.Kill()
		s.Count("strangers at the address of a node", 1)
		return errors.Join(err, os.RemoveAll(dir), n.Start(ctx), s.awaitWhole(ctx))
	}, nil
}

// nodesKnown returns the nodes that the cluster knows, each with the id of its data and its address.
func (s *Scene) nodesKnown(ctx context.Context) (known []string, err error) {
	status, err := s.Lab.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range status.GetNodes() {
		known = append(known, fmt.Sprintf("%s %s at %s", n.GetName(), n.GetIncarnation(), n.GetPeerAddress()))
	}
	return known, nil
}
