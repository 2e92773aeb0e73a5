package nemesis

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
)

// rekeyMax is how long nodes may take to read their keys again.
const rekeyMax = 30 * time.Second

// rotateKeys replaces the key of gossip without a stop, in the steps of the handbook. First every
// node can decrypt with the new key, then every node encrypts with it, then the old key is removed.
// One node stands still during a part of that, and reads the keys when it continues.
func rotateKeys(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	old, fresh := s.Lab.Keys()[0], lab.NewKey()
	stalled := s.Rand.IntN(3)
	s = s.apart()
	heal := background(ctx, func(context.Context) error {
		for step, keys := range [][]lab.Key{{old, fresh}, {fresh, old}, {fresh}} {
			if err := s.rekey(ctx, keys, step == stalled); err != nil {
				return fmt.Errorf("step %d of the rotation: %w", step+1, err)
			}
			pause(ctx, s.Hold/3)
		}
		return nil
	})
	return fmt.Sprintf("the key of gossip replaced, with one node paused in step %d", stalled+1),
		func(ctx context.Context) error {
			return errors.Join(heal(ctx), s.awaitWhole(ctx))
		}, nil
}

// rekey gives all nodes other keys, and returns when each has read them.
func (s *Scene) rekey(ctx context.Context, keys []lab.Key, stall bool) error {
	s.Lab.SetKeys(keys)
	nodes := s.remaining()
	paused := nodes[s.Rand.IntN(len(nodes))]
	read := map[*lab.Node]int{}
	for _, n := range nodes {
		count, err := n.Rekeyed()
		if err != nil {
			return err
		}
		read[n] = count
	}
	if stall {
		if err := paused.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := n.Rekey(keys); err != nil {
			return err
		}
	}
	if stall {
		pause(ctx, s.Hold)
		if err := paused.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := s.awaitRead(ctx, n, read[n], n.Rekeyed); err != nil {
			return err
		}
	}
	s.Count("times that all nodes read other gossip keys", 1)
	return nil
}

// awaitRead waits until a node, if it runs, has said once more than before that it had read its
// files again.
func (s *Scene) awaitRead(ctx context.Context, n *lab.Node, before int, said func() (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, rekeyMax)
	defer cancel()
	for n.Running() {
		count, err := said()
		if err != nil {
			return err
		}
		if count > before {
			break
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s does not read its files again: %w", n.Name, context.Cause(ctx))
		}
	}
	return nil
}
