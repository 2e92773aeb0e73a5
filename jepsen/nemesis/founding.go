package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
)

const (
	// foundingMax is the time after the start of all nodes in which their founder is lost.
	foundingMax = 15 * time.Second
	// answersMax is how long after the end of a node its last answers may still arrive.
	answersMax = 2 * time.Second
)

func foundingFaults() []Fault {
	return []Fault{{
		Number: 63, Name: "founder-lost", Inject: founderLost, Founding: true,
		What: "the founder killed at some moment of the first 15 s, half of the time with its disk lost, while clients " +
			"put through every node; once in a run, before all others",
	}}
}

// Strike strikes with one fault, as Run does.
func Strike(ctx context.Context, s *Scene, f Fault, rhythm Rhythm, log *Log) error {
	if err := s.strike(ctx, f, s.around(rhythm.Hold), log); err != nil {
		return fmt.Errorf("the nemesis %s: %w", f.Name, err)
	}
	return nil
}

// founderLost kills the node that founds the cluster, which is the first one by name, and may take
// its disk.
func founderLost(ctx context.Context, s *Scene) (string, Heal, error) {
	n, after := s.remaining()[0], s.between(0, foundingMax)
	if !pause(ctx, after) {
		return "", nil, fmt.Errorf("waiting for the founder to be lost: %w", context.Cause(ctx))
	}
	n.Kill()
	text := fmt.Sprintf("killed %s, which founds, %v after the start", n.Name, after.Round(time.Millisecond))
	if s.Rand.IntN(2) == 0 {
		return text, n.Start, nil
	}
	s.Count("founders whose disk was lost", 1)
	return text + "; its disk is lost", n.Start, errors.Join(s.empty(n), s.makeDurable(n), s.forgetUntold(ctx, n))
}

// forgetUntold removes the journals of a node that lost its disk if no caller was told anything:
// the nodes may found another cluster, whose log has nothing to do with the first.
func (s *Scene) forgetUntold(ctx context.Context, n *lab.Node) error {
	if pause(ctx, answersMax); s.Answered() {
		return nil
	}
	s.Count("founders whose disk was lost before any call was answered", 1)
	journals, err := filepath.Glob(filepath.Join(s.Lab.Journals(), n.Name+"-*.journal"))
	if err != nil {
		return fmt.Errorf("looking for the journals of %s: %w", n.Name, err)
	}
	for _, path := range journals {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
