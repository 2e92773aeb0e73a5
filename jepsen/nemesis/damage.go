package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/disk"
	"github.com/belfrydb/belfry/jepsen/lab"
)

// damageFaults change what a disk has. Each strikes one node of a whole cluster and ends when the cluster is whole again: two of three damaged disks may
// lose what was promised.
func damageFaults() []Fault {
	return []Fault{
		{Number: 33, Name: "flip-log", What: "bits flipped in the log of a node, which is started again", Inject: damage("log/*.wal", flipBits)},
		{Number: 34, Name: "flip-snapshot", What: "bits flipped in a snapshot of a node", Inject: damage("snapshots/*.snap", flipBits)},
		{Number: 34, Name: "flip-vote", What: "bits flipped in the file of a node's terms and votes", Inject: damage("stable", flipBits)},
		{Number: 34, Name: "flip-meta", What: "bits flipped in a node's other files", Inject: damage("MANIFEST,high-water,segments,node.json", flipBits)},
		{Number: 33, Name: "flip-many", What: "one bit flipped in any file of a stopped node, which is started and has to notice, dozens of times", Inject: flipMany},
		{Number: 35, Name: "truncate", What: "a file of a node cut off", Inject: damage("log/*.wal,snapshots/*.snap,stable,high-water,MANIFEST", truncateFile)},
		{Number: 36, Name: "delete-file", What: "a file of a node deleted", Inject: damage("log/*.wal,snapshots/*.snap,stable,high-water,MANIFEST,segments", deleteFile)},
		{Number: 36, Name: "delete-shard", What: "the directory of one of a node's shards deleted", Inject: deleteShard},
		{Number: 37, Name: "roll-back", What: "a node's disk replaced by an older copy of it", Inject: rollBack},
		{Number: 37, Name: "roll-back-kill-leader", What: "a node's disk replaced by an older copy, and another node that leads killed as soon as it runs", Inject: rollBackKillLeader},
		{Number: 38, Name: "wipe", What: "a node's disk replaced by an empty one", Inject: wipe},
	}
}

// strikeDisk waits until the cluster is whole, stops one node, changes its disk and starts it again. If it is refused with its disk, it gets an empty one, as an
// operator would do; the fault ends when the cluster is whole again.
func (s *Scene) strikeDisk(ctx context.Context, change func(*lab.Node) (string, error)) (string, Heal, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	n.Kill()
	text, err := change(n)
	if err := errors.Join(err, s.settle(n)); err != nil {
		return "", nil, err
	}
	n.MayEnd()
	startErr := n.Start(ctx)
	if startErr != nil {
		text += ": refused at its start"
	}
	return fmt.Sprintf("%s: %s", n.Name, text), func(ctx context.Context) error {
		defer n.MustLive()
		if n.Running() {
			s.Count("damaged disks that a node went on with", 1)
			return s.awaitWhole(ctx)
		}
		s.Count("damaged disks that were refused", 1)
		return errors.Join(s.empty(n), s.settle(n), n.Start(ctx), s.awaitWhole(ctx))
	}, nil
}

// awaitWhole waits until the cluster has all that it should have.
func (s *Scene) awaitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, moveMax)
	defer cancel()
	return s.Lab.Await(ctx, "a cluster that is whole", lab.Healthy)
}

// damage changes one to three files of a node whose names match one of some patterns.
func damage(patterns string, change func(*Scene, string) (string, error)) func(context.Context, *Scene) (string, Heal, error) {
	return func(ctx context.Context, s *Scene) (string, Heal, error) {
		return s.strikeDisk(ctx, func(n *lab.Node) (string, error) {
			files, err := filesLike(n.Data, patterns)
			if err != nil || len(files) == 0 {
				return "has no such file", err
			}
			s.Rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
			var texts []string
			for _, path := range files[:min(len(files), 1+s.Rand.IntN(3))] {
				text, err := change(s, path)
				if err != nil {
					return "", err
				}
				texts = append(texts, strings.TrimPrefix(path, n.Data)+" "+text)
			}
			return strings.Join(texts, ", "), nil
		})
	}
}

// filesLike returns the files below a directory whose last elements match one of some patterns.
func filesLike(dir, patterns string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		for pattern := range strings.SplitSeq(patterns, ",") {
			last := filepath.Base(path)
			if strings.Contains(pattern, "/") {
				last = filepath.Join(filepath.Base(filepath.Dir(path)), last)
			}
			if ok, _ := filepath.Match(pattern, last); ok { // the patterns are this file's
				files = append(files, path)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for files to damage: %w", err)
	}
	return files, nil
}

func flipBits(s *Scene, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("flipping bits: %w", err)
	}
	used := len(b) // a segment of the log ends in zeros that were never written
	for used > 1 && b[used-1] == 0 {
		used--
	}
	n := 1 + s.Rand.IntN(4)
	for range min(n, len(b)) {
		bit := s.Rand.IntN(8 * used)
		b[bit/8] ^= 1 << (bit % 8)
	}
	s.Count("bits flipped in files", int64(n))
	return fmt.Sprintf("with %d bits flipped", n), replaceFile(path, b)
}

// replaceFile writes a file in place, durably.
func replaceFile(path string, b []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("damaging a file: %w", err)
	}
	_, err = file.Write(b)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("damaging a file: %w", err)
	}
	return nil
}

func truncateFile(s *Scene, path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("cutting off a file: %w", err)
	}
	to := s.Rand.Int64N(info.Size() + 1)
	if err := os.Truncate(path, to); err != nil {
		return "", fmt.Errorf("cutting off a file: %w", err)
	}
	return fmt.Sprintf("cut off at %d of %d", to, info.Size()), nil
}

func deleteFile(_ *Scene, path string) (string, error) {
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("deleting a file: %w", err)
	}
	return "deleted", nil
}

func deleteShard(ctx context.Context, s *Scene) (string, Heal, error) {
	return s.strikeDisk(ctx, func(n *lab.Node) (string, error) {
		dirs, err := filepath.Glob(filepath.Join(n.Data, "shards", "*"))
		if err != nil || len(dirs) == 0 {
			return "has no shard", err
		}
		dir := dirs[s.Rand.IntN(len(dirs))]
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("deleting a shard: %w", err)
		}
		return strings.TrimPrefix(dir, n.Data) + " deleted", nil
	})
}

// settle makes what was done to a stopped node's disk durable.
func (s *Scene) settle(n *lab.Node) error {
	if s.Disk == nil {
		return nil // the system's disk keeps it
	}
	_, err := s.Disk(n.Name).Crash(disk.KeepAll, disk.KeepNames)
	return err
}

// empty gives a node an empty disk.
func (s *Scene) empty(n *lab.Node) error {
	entries, err := os.ReadDir(n.Data)
	if err != nil {
		return fmt.Errorf("emptying a disk: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(n.Data, e.Name())); err != nil {
			return fmt.Errorf("emptying a disk: %w", err)
		}
	}
	return nil
}

func wipe(ctx context.Context, s *Scene) (string, Heal, error) {
	return s.strikeDisk(ctx, func(n *lab.Node) (string, error) { return "an empty disk", s.empty(n) })
}

// rollBack puts back what a node's disk was some seconds ago.
func rollBack(ctx context.Context, s *Scene) (string, Heal, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.anyone()
	if err != nil {
		return "", nil, err
	}
	// A copy that fits together is made while the node is down.
	copied := filepath.Join(s.Dir, "older-"+n.Name)
	n.Kill()
	if err := errors.Join(os.RemoveAll(copied), os.CopyFS(copied, os.DirFS(n.Data)), n.Start(ctx)); err != nil {
		return "", nil, fmt.Errorf("copying a disk: %w", err)
	}
	pause(ctx, s.Hold)
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	n.Kill()
	if err := errors.Join(s.empty(n), os.CopyFS(n.Data, os.DirFS(copied)), s.settle(n)); err != nil {
		return "", nil, fmt.Errorf("putting an older disk in place: %w", err)
	}
	n.MayEnd()
	text := fmt.Sprintf("%s: its disk as it was %v before", n.Name, s.Hold.Round(time.Millisecond))
	if err := n.Start(ctx); err != nil {
		text += ": refused at its start"
	}
	return text, func(ctx context.Context) error {
		defer n.MustLive()
		if !n.Running() {
			s.Count("older disks that were refused", 1)
			if err := errors.Join(s.empty(n), s.settle(n), n.Start(ctx)); err != nil {
				return err
			}
		}
		return s.awaitWhole(ctx)
	}, nil
}

// rollBackKillLeader leaves the node with the older disk and one other to elect a leader.
func rollBackKillLeader(ctx context.Context, s *Scene) (string, Heal, error) {
	text, heal, err := rollBack(ctx, s)
	if err != nil {
		return "", nil, err
	}
	for _, n := range s.Lab.Running() {
		if leader, err := s.Lab.Leader(ctx); err == nil && leader == n && !strings.HasPrefix(text, n.Name+":") {
			n.Kill()
			s.Count("leaders killed beside an older disk", 1)
			return text + "; killed " + n.Name, func(ctx context.Context) error { return errors.Join(n.Start(ctx), heal(ctx)) }, nil
		}
	}
	return text + "; the node with the older disk leads", heal, nil
}
