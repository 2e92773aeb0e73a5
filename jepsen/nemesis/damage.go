package nemesis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/disk"
	"github.com/belfrydb/belfry/jepsen/lab"
)

// damageFaults change what a disk has. Each strikes one node of a whole cluster and ends when the
// cluster is whole again: two of three damaged disks may lose what was promised.
func damageFaults() []Fault {
	return []Fault{
		{Number: 33, Name: "flip-log", What: "bits flipped in the log of a node, which is started again",
			Inject: damage("log/*.wal", flipBits)},
		{Number: 34, Name: "flip-snapshot", What: "bits flipped in the newest snapshots of a node",
			Inject: damageOf(newestLike, "snapshots/*.snap", flipBits)},
		{Number: 34, Name: "flip-vote", What: "bits flipped in the file of a node's terms and votes",
			Inject: damage("stable", flipBits)},
		{Number: 34, Name: "flip-meta", What: "bits flipped in a node's other files",
			Inject: damage("MANIFEST,high-water,segments,node.json", flipBits)},
		{Number: 33, Name: "flip-many", What: "one bit flipped in any file of a stopped node, which is started and has to " +
			"notice, dozens of times", Inject: flipMany},
		{Number: 35, Name: "truncate", What: "a file of a node cut off",
			Inject: damage("log/*.wal,snapshots/*.snap,stable,high-water,MANIFEST", truncateFile)},
		{Number: 36, Name: "delete-file", What: "a file of a node deleted",
			Inject: damage("log/*.wal,snapshots/*.snap,stable,high-water,MANIFEST,segments", deleteFile)},
		{Number: 36, Name: "delete-shard", What: "the directory of one of a node's shards deleted", Inject: deleteShard},
		{Number: 37, Name: "roll-back", What: "a node's disk replaced by an older copy of it", Inject: rollBack},
		{Number: 37, Name: "roll-back-kill-leader", What: "a node's disk replaced by an older copy, and another node that " +
			"leads killed as soon as it runs", Inject: rollBackKillLeader},
		{Number: 38, Name: "wipe", What: "a node's disk replaced by an empty one", Inject: wipe},
	}
}

// strikeDisk waits until the cluster is whole, stops one node that has something on its disk,
// changes its disk and starts it again. If it is refused with its disk, it gets an empty one, as an
// operator would do; the fault ends when the cluster is whole again.
func (s *Scene) strikeDisk(ctx context.Context, what string, has func(*lab.Node) (bool, error),
	change func(*lab.Node) (string, error)) (string, Heal, error) {
	if err := s.awaitWhole(ctx); err != nil {
		return "", nil, err
	}
	n, err := s.anyoneWith(ctx, what, has)
	if err != nil {
		return "", nil, err
	}
	n.Kill()
	text, err := change(n)
	if err := errors.Join(err, s.makeDurable(n)); err != nil {
		return "", nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	n.MayEnd()
	if err := n.Start(ctx); err != nil {
		text += ": refused at its start"
	}
	return fmt.Sprintf("%s: %s", n.Name, text), func(ctx context.Context) error {
		defer n.MustLive()
		if n.Running() {
			s.Count("damaged disks that a node went on with", 1)
			return s.awaitWhole(ctx)
		}
		if err := refusedClearly(n.Name, n.ExitCode()); err != nil {
			return err
		}
		s.Count("damaged disks that were refused", 1)
		return errors.Join(s.empty(n), s.makeDurable(n), n.Start(ctx), s.awaitWhole(ctx))
	}, nil
}

// exitPanic is what a process of Go ends with that panics, and a server that does not understand
// what it was told.
const exitPanic = 2

// refusedClearly fails if a node that was started with a damaged disk panicked: that is no refusal.
func refusedClearly(name string, code int) error {
	if code == exitPanic {
		return fmt.Errorf("%s ended with %d because of its disk: a panic, or a usage error, is no refusal", name, code)
	}
	return nil
}

// anyoneWith returns a random running node that has something on its disk, once there is one.
func (s *Scene) anyoneWith(ctx context.Context, what string, has func(*lab.Node) (bool, error)) (*lab.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, moveMax)
	defer cancel()
	for {
		n, err := s.anyone()
		if err != nil {
			return nil, err
		}
		if ok, err := has(n); err != nil || ok {
			return n, err
		}
		if !pause(ctx, 100*time.Millisecond) {
			return nil, fmt.Errorf("no node has %s on its disk", what)
		}
	}
}

// awaitWhole waits until the cluster has all that it should have.
func (s *Scene) awaitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, moveMax)
	defer cancel()
	return s.Lab.Await(ctx, "a cluster that is whole", lab.Healthy)
}

// damage changes one to three files of a node whose names match one of some patterns, and that hold
// something. Some files are there only after a while.
func damage(patterns string, change func(*Scene, string) (string, error)) func(context.Context, *Scene) (string,
	Heal, error) {
	return damageOf(filesLike, patterns, change)
}

// finder returns the files below a directory that damage may strike.
type finder func(dir, patterns string) ([]string, error)

// damageOf is damage of those files that find finds.
func damageOf(find finder, patterns string, change func(*Scene, string) (string, error)) func(context.Context,
	*Scene) (string, Heal, error) {
	return func(ctx context.Context, s *Scene) (string, Heal, error) {
		has := func(n *lab.Node) (bool, error) {
			files, err := filesWith(find, n.Data, patterns)
			return len(files) > 0, err
		}
		return s.strikeDisk(ctx, "anything in files like "+patterns, has, func(n *lab.Node) (string, error) {
			return s.damageFiles(find, n.Data, patterns, change)
		})
	}
}

// damageFiles changes one to three files below a directory.
func (s *Scene) damageFiles(find finder, dir, patterns string,
	change func(*Scene, string) (string, error)) (string, error) {
	files, err := filesWith(find, dir, patterns)
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("there is nothing in files like %s", patterns)
	}
	s.Rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	var texts []string
	for _, path := range files[:min(len(files), 1+s.Rand.IntN(3))] {
		text, err := change(s, path)
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.TrimPrefix(path, dir)+" "+text)
	}
	return strings.Join(texts, ", "), nil
}

// filesWith returns the files that match and hold something: to damage what was never written is no
// damage.
func filesWith(find finder, dir, patterns string) (files []string, err error) {
	all, err := find(dir, patterns)
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a server that runs removes some
			return nil, fmt.Errorf("looking for files to damage: %w", err)
		}
		if used(b) > 0 {
			files = append(files, path)
		}
	}
	return files, nil
}

// used returns how much of a file was written: a segment of the log ends in zeros that were never.
func used(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }

// filesLike returns the files below a directory whose last elements match one of some patterns.
func filesLike(dir, patterns string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a server that runs removes some
		}
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

// newestLike returns of the files that filesLike finds the last one of each directory: of snapshots
// the newest, which a start reads.
func newestLike(dir, patterns string) ([]string, error) {
	files, err := filesLike(dir, patterns)
	slices.Reverse(files)
	return slices.CompactFunc(files, func(a, b string) bool { return filepath.Dir(a) == filepath.Dir(b) }), err
}

// flipBits flips one to four different bits of what was written to a file.
func flipBits(s *Scene, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("flipping bits: %w", err)
	}
	flipped := map[int]bool{}
	for n := min(1+s.Rand.IntN(4), 8*used(b)); len(flipped) < n; {
		flipped[s.Rand.IntN(8*used(b))] = true
	}
	for bit := range flipped {
		b[bit/8] ^= 1 << (bit % 8)
	}
	s.Count("bits flipped in files", int64(len(flipped)))
	return fmt.Sprintf("with %d bits flipped", len(flipped)), replaceFile(path, b)
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

// truncateFile cuts off some of what was written to a file, never only what was not.
func truncateFile(s *Scene, path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cutting off a file: %w", err)
	}
	to := s.Rand.IntN(max(used(b), 1))
	if err := os.Truncate(path, int64(to)); err != nil {
		return "", fmt.Errorf("cutting off a file: %w", err)
	}
	return fmt.Sprintf("cut off at %d of %d", to, len(b)), nil
}

func deleteFile(_ *Scene, path string) (string, error) {
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("deleting a file: %w", err)
	}
	return "deleted", nil
}

func deleteShard(ctx context.Context, s *Scene) (string, Heal, error) {
	shards := func(n *lab.Node) ([]string, error) { return filepath.Glob(filepath.Join(n.Data, "shards", "*")) }
	has := func(n *lab.Node) (bool, error) {
		dirs, err := shards(n)
		return len(dirs) > 0, err
	}
	return s.strikeDisk(ctx, "a shard", has, func(n *lab.Node) (string, error) {
		dirs, err := shards(n)
		if err != nil || len(dirs) == 0 {
			return "", errors.Join(errors.New("it has no shard any more"), err)
		}
		dir := dirs[s.Rand.IntN(len(dirs))]
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("deleting a shard: %w", err)
		}
		return strings.TrimPrefix(dir, n.Data) + " deleted", nil
	})
}

// makeDurable makes what was done to a stopped node's disk durable.
func (s *Scene) makeDurable(n *lab.Node) error {
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
	has := func(*lab.Node) (bool, error) { return true, nil }
	return s.strikeDisk(ctx, "anything", has, func(n *lab.Node) (string, error) { return "an empty disk", s.empty(n) })
}

// olderCopy copies the disk of a node, which is whole again and runs for a while after that.
func (s *Scene) olderCopy(ctx context.Context, copied string) (*lab.Node, error) {
	n, err := s.anyoneOfWhole(ctx)
	if err != nil {
		return nil, err
	}
	// A copy that fits together is made while the node is down.
	n.Kill()
	if err := errors.Join(os.RemoveAll(copied), os.CopyFS(copied, os.DirFS(n.Data)), n.Start(ctx)); err != nil {
		return nil, fmt.Errorf("copying a disk: %w", err)
	}
	pause(ctx, s.Hold)
	return n, s.awaitWhole(ctx)
}

// rollBack puts back what a node's disk was some seconds ago.
func rollBack(ctx context.Context, s *Scene) (string, Heal, error) {
	copied := filepath.Join(s.Dir, "older")
	n, err := s.olderCopy(ctx, copied)
	if err != nil {
		return "", nil, err
	}
	n.Kill()
	if err := errors.Join(s.empty(n), os.CopyFS(n.Data, os.DirFS(copied)), s.makeDurable(n)); err != nil {
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
			if err := errors.Join(refusedClearly(n.Name, n.ExitCode()), s.empty(n), s.makeDurable(n), n.Start(ctx)); err != nil {
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
	leader, err := s.Lab.Leader(ctx)
	if err != nil {
		return "", nil, errors.Join(err, heal(ctx))
	}
	if strings.HasPrefix(text, leader.Name+":") {
		s.Count("older disks whose node leads", 1)
		return text + "; the node with the older disk leads", heal, nil
	}
	leader.Kill()
	s.Count("leaders killed beside an older disk", 1)
	return text + "; killed " + leader.Name, func(ctx context.Context) error {
		return errors.Join(leader.Start(ctx), heal(ctx))
	}, nil
}
