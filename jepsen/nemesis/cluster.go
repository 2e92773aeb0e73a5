package nemesis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// moveMax is how long replicas may take to move: they do so under faults, one after the other.
const moveMax = 2 * time.Minute

func clusterFaults() []Fault {
	return []Fault{
		{Number: 46, Name: "replace-node", What: "a node joins, an old one is drained, killed and removed for good, and " +
			"started again all the same", Inject: replaceNode},
		{Number: 47, Name: "transfer", What: "leaderships moved over and over", Inject: transferStorm},
		{Number: 48, Name: "lag-install", What: "one node is down until the others have forgotten the log that it lacks",
			Inject: lagInstall},
		{Number: 49, Name: "backup", What: "a backup is made through one node under load, read, and restored into a new " +
			"server", Inject: takeBackup},
		{Number: 50, Name: "mixed-versions", What: "some nodes, never all, run a program that reads a later format, and " +
			"go back", Inject: mixedVersions},
		{Number: 51, Name: "shard-move", What: "one of the nodes is drained and taken back", Inject: shardMove},
		{Number: 52, Name: "impostor", What: "a node is dead, and a server of another cluster has its address",
			Inject: impostor},
		{Number: 52, Name: "twin", What: "a node runs, and an older copy of its directory is started at another address",
			Inject: twin},
		{Number: 53, Name: "rotate-keys", What: "the key of gossip is replaced without a stop, while one node stands still",
			Inject: rotateKeys},
	}
}

// transferStorm moves leaderships until ctx ends. That one cannot move now is no fault of the
// storm.
func (s *Scene) transferStorm(ctx context.Context) error {
	for pause(ctx, 100*time.Millisecond) {
		status, err := s.Lab.Status(ctx)
		if err != nil {
			continue
		}
		request := s.transfer(status)
		at, err := s.anyone()
		if request == nil || err != nil {
			continue
		}
		admin, err := s.Lab.Admin(at.Name)
		if err != nil {
			return err
		}
		answer, err := admin.TransferLeader(ctx, request)
		if err == nil && answer.GetLeader() != answer.GetPrevious() {
			s.Count("leaderships moved", 1)
		}
	}
	return nil
}

// transfer asks for a shard to be led by another of its voters; nil if there is none of which that
// could be asked.
func (s *Scene) transfer(status *belfryv1.GetClusterResponse) *belfryv1.TransferLeaderRequest {
	if len(status.GetShards()) == 0 {
		return nil
	}
	shard := status.GetShards()[s.Rand.IntN(len(status.GetShards()))]
	others := without(shard.GetVoters(), shard.GetLeader())
	if len(others) == 0 {
		return nil
	}
	return &belfryv1.TransferLeaderRequest{Shard: shard.GetShard(), To: others[s.Rand.IntN(len(others))]}
}

func transferStorm(ctx context.Context, s *Scene) (string, Heal, error) {
	return "moved leaderships", background(ctx, s.apart().transferStorm), nil
}

// installed is what the Raft library says when a snapshot has taken the place of a log.
const installed = "Installed remote snapshot"

// lagInstall keeps a node down for longer than others: with small snapshots their logs are trimmed
// meanwhile.
func lagInstall(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	n.Kill()
	said, err := logSize(n)
	if err != nil {
		return "", nil, err
	}
	pause(ctx, 2*s.Hold)
	return "kept down " + n.Name, func(ctx context.Context) error {
		if err := n.Start(ctx); err != nil {
			return err
		}
		return s.countInstall(ctx, n, said)
	}, nil
}

// installMax is how long a node that was down is given to be sent a snapshot.
const installMax = 10 * time.Second

// countInstall counts whether a node was sent a snapshot, behind a place in its log: if not, the
// others still had what it lacked.
func (s *Scene) countInstall(ctx context.Context, n *lab.Node, said int64) error {
	ctx, cancel := context.WithTimeout(ctx, installMax)
	defer cancel()
	for {
		text, err := logSince(n, said)
		switch {
		case err != nil:
			return err
		case strings.Contains(text, installed):
			s.Count("nodes that had been down and were sent a snapshot", 1)
			return nil
		case !pause(ctx, 100*time.Millisecond):
			s.Count("nodes that had been down and found the log that they lacked", 1)
			return nil
		}
	}
}

// replaceNode takes a new node into the cluster and an old one out of it.
func replaceNode(ctx context.Context, s *Scene) (string, Heal, error) {
	old, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	fresh, err := s.Lab.Add(ctx, fmt.Sprintf("n%d", len(s.Lab.Nodes())+1))
	if err != nil {
		return "", nil, err
	}
	if err := fresh.Start(ctx); err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("%s for %s", fresh.Name, old.Name), func(ctx context.Context) error {
		return s.takeOut(ctx, old)
	}, nil
}

// takeOut drains a node, kills it and removes it.
func (s *Scene) takeOut(ctx context.Context, n *lab.Node) error {
	ctx, cancel := context.WithTimeout(ctx, moveMax)
	defer cancel()
	if err := s.drain(ctx, n, true); err != nil {
		return err
	}
	if err := s.awaitEmpty(ctx, n); err != nil {
		return err
	}
	n.Kill()
	n.Remove()
	err := s.untilDone(ctx, "removing "+n.Name, func(ctx context.Context, at *lab.Node) error {
		admin, err := s.Lab.Admin(at.Name)
		if err != nil {
			return err
		}
		_, err = admin.RemoveNode(ctx, &belfryv1.RemoveNodeRequest{Name: n.Name})
		return err
	})
	if err != nil {
		return err
	}
	s.Left(n.Name, s.Now())
	// It must not serve. That it ends, before it serves or soon after, is right.
	n.MayEnd()
	_ = n.Start(ctx)
	pause(ctx, removedLook)
	n.Kill()
	return nil
}

// awaitEmpty waits until a node holds no replica of a shard.
func (s *Scene) awaitEmpty(ctx context.Context, n *lab.Node) error {
	return s.Lab.Await(ctx, n.Name+" to be empty", func(status *belfryv1.GetClusterResponse) bool {
		return emptied(status, n.Name)
	})
}

// emptied reports whether a node holds no replica, whether that is heard of or not.
func emptied(status *belfryv1.GetClusterResponse, node string) bool {
	for _, shard := range status.GetShards() {
		if slices.Contains(shard.GetVoters(), node) || slices.Contains(shard.GetNonvoters(), node) ||
			len(shard.GetVoters()) == 0 {
			return false
		}
	}
	return len(status.GetShards()) > 0
}

// removedLook is how long a node that was removed is left running: longer than the others may take
// to hear of it, so that the check has calls to look at.
const removedLook = 6 * time.Second

// drain says that a node is to be emptied, or no longer.
func (s *Scene) drain(ctx context.Context, n *lab.Node, to bool) error {
	return s.untilDone(ctx, "draining "+n.Name, func(ctx context.Context, at *lab.Node) error {
		admin, err := s.Lab.Admin(at.Name)
		if err != nil {
			return err
		}
		_, err = admin.DrainNode(ctx, &belfryv1.DrainNodeRequest{Name: n.Name, Draining: &to})
		return err
	})
}

// untilDone asks one running node after the other until one has done it.
func (s *Scene) untilDone(ctx context.Context, what string, ask func(context.Context, *lab.Node) error) error {
	for {
		n, err := s.anyone()
		if err == nil {
			one, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = ask(one, n)
			cancel()
		}
		if err == nil {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// shardMove needs a fourth node, which it adds for good if there is none.
func shardMove(ctx context.Context, s *Scene) (string, Heal, error) {
	if len(s.Lab.Running()) < 4 {
		fresh, err := s.Lab.Add(ctx, fmt.Sprintf("n%d", len(s.Lab.Nodes())+1))
		if err != nil {
			return "", nil, err
		}
		if err := fresh.Start(ctx); err != nil {
			return "", nil, err
		}
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	moving, cancel := context.WithTimeout(ctx, moveMax)
	defer cancel()
	if err := s.drain(moving, n, true); err != nil {
		return "", nil, err
	}
	return "drained " + n.Name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, moveMax)
		defer cancel()
		if err := s.awaitEmpty(ctx, n); err != nil { // or nothing may have moved
			return err
		}
		s.Count("nodes emptied of their shards and taken back", 1)
		return s.drain(ctx, n, false)
	}, nil
}
