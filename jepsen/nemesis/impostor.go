package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// impostor puts a server of another cluster at the address of a dead node. Its peers must not take
// it for the node, and must not exchange messages with it. In the end the node comes back.
func impostor(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyoneOfWhole(ctx)
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
			err = fmt.Errorf("the nodes of the cluster were %q, and are %q with a stranger at the address of %s", before,
				after, n.Name)
		}
		other.Kill()
		s.Count("strangers at the address of a node", 1)
		return errors.Join(err, os.RemoveAll(dir), n.Start(ctx), s.awaitWhole(ctx))
	}, nil
}

// twin starts an older copy of a node's directory at another address, with the node's name and id,
// while the node runs. Its peers must go on with the node that they know, at the address that they
// know, and what the copy does or says must change nothing.
func twin(ctx context.Context, s *Scene) (string, Heal, error) {
	copied := filepath.Join(s.Dir, "strangers", fmt.Sprintf("twin-%d", s.Now()))
	n, err := s.olderCopy(ctx, copied)
	if err != nil {
		return "", nil, err
	}
	place := "twin" + strconv.FormatInt(int64(s.Now()), 36)
	if err := s.Network.Add(ctx, place); err != nil {
		return "", nil, err
	}
	other, err := s.Lab.Stranger(lab.Stranger{Place: place, Name: n.Name, Data: copied, Joins: true})
	if err != nil {
		return "", nil, err
	}
	before, err := s.nodesKnown(ctx)
	if err != nil {
		return "", nil, err
	}
	// Whether it serves, waits or ends is its own business; that its process began is seen in its log.
	started := background(ctx, func(held context.Context) error {
		_ = other.Start(held)
		<-held.Done()
		return nil
	})
	return fmt.Sprintf("an older copy of %s at another address", n.Name), func(ctx context.Context) error {
		after, err := s.nodesKnown(ctx)
		if err == nil && !slices.Equal(before, after) {
			err = fmt.Errorf("the nodes of the cluster were %q, and are %q beside an older copy of %s", before, after, n.Name)
		}
		alive := other.Running()
		err = errors.Join(err, started(ctx))
		other.Kill()
		return errors.Join(err, s.countTwin(other.Log, alive), os.RemoveAll(copied), s.awaitWhole(ctx))
	}, nil
}

// countTwin counts a copy of a node that was started. One that said nothing was none.
func (s *Scene) countTwin(log string, alive bool) error {
	info, err := os.Stat(log)
	switch {
	case err != nil:
		return fmt.Errorf("looking at the log of a copy of a node: %w", err)
	case info.Size() <= 1: // the line that a life begins with
		return errors.New("the older copy of a node never ran")
	case alive:
		s.Count("older copies of nodes that ran beside them", 1)
	default:
		s.Count("older copies of nodes that ended by themselves", 1)
	}
	return nil
}

// nodesKnown returns the nodes that the cluster knows, each with the id of its data and its
// address.
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
