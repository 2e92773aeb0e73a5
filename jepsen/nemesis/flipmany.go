package nemesis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/jepsen/lab"
)

const (
	// flipsLeast is how often a bit is flipped in each strike, however short.
	flipsLeast = 20
	// flipLook is how long a node that went on with a flipped bit is left to find it.
	flipLook = time.Second
	// exitStorage is what a server ends with whose storage is damaged.
	exitStorage = 11
)

// bitFlip is one bit that was flipped in a file of a stopped node.
type bitFlip struct {
	path string
	at   int64
	bit  byte
	// had is the file with the flipped bit.
	had []byte
}

// flipMany flips one bit in one file of a stopped node and starts it, again and again. The node
// must refuse the damage that it reads. Afterwards flipMany examines a bit that was not noticed. If
// the bit is unchanged, it was never read or does not matter, because the digests of the node are
// compared with all others. If the node has replaced it, it must have reported damage.
func flipMany(ctx context.Context, s *Scene) (string, Heal, error) {
	n, err := s.anyoneOfWhole(ctx)
	if err != nil {
		return "", nil, err
	}
	n.MayEnd()
	s = s.apart()
	heal := background(ctx, func(held context.Context) error {
		for i := 0; i < flipsLeast || held.Err() == nil; i++ {
			if err := s.flipOnce(ctx, n); err != nil {
				return err
			}
		}
		return nil
	})
	return n.Name + ": a bit flipped, again and again", func(ctx context.Context) error {
		err := heal(ctx)
		n.MustLive()
		return errors.Join(err, n.Start(ctx), s.awaitWhole(ctx))
	}, nil
}

// flipOnce flips a bit, lets the node have a look, and repairs it.
func (s *Scene) flipOnce(ctx context.Context, n *lab.Node) error {
	// In peace: of a node that is killed the last write may be torn, and a bit of that need not be
	// noticed.
	if err := n.Stop(); err != nil {
		return err
	}
	flip, err := s.flipAnywhere(n)
	if err != nil {
		return err
	}
	said, err := logSize(n)
	if err != nil {
		return err
	}
	s.Flipped(1, 0, 0)
	startErr := n.Start(ctx)
	if startErr == nil {
		look := time.NewTimer(flipLook)
		select {
		case <-n.Ended():
		case <-look.C:
		}
		look.Stop()
	}
	ended := !n.Running()
	if startErr != nil && !ended {
		return startErr
	}
	_ = n.Stop() // with an error if it finds the bit only now, which its log tells
	text, err := logSince(n, said)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(flip.path, n.Data)
	kind := filepath.Base(flip.path)
	if strings.HasSuffix(kind, ".wal") || strings.HasSuffix(kind, ".snap") {
		kind = "*" + filepath.Ext(kind)
	}
	after, err := flip.after()
	if err != nil {
		return err
	}
	damage := namesDamage(text, n.Data, s.Dir)
	switch {
	case ended && n.ExitCode() != exitStorage && !damage:
		return fmt.Errorf("%s ended with %d and named no damage after bit %d of byte %d in %s was flipped; the end of its "+
			"log: %s",
			n.Name, n.ExitCode(), flip.bit, flip.at, name, text[max(0, len(text)-1500):])
	case ended, damage:
		s.Flipped(0, 1, 0)
		s.Count("flipped bits noticed in "+kind, 1)
	case after != rewritten || slices.Contains(doubled(), kind):
		s.Flipped(0, 0, 1)
		s.Count(fmt.Sprintf("flipped bits %s in %s", after, kind), 1)
	default:
		s.Count("flipped bits rewritten without a word in "+kind, 1)
		s.Logger.Warn("a flipped bit was rewritten without a word", "node", n.Name, "file", name, "byte", flip.at,
			"bit", flip.bit)
	}
	switch {
	case after == unread:
		return errors.Join(flip.repair(), s.makeDurable(n))
	case !ended:
		return nil // the server has replaced it itself
	}
	// The file is another one, and no older state may be put back under a node that has served since.
	s.Count("nodes that got an empty disk after a flipped bit", 1)
	if err := errors.Join(s.empty(n), s.makeDurable(n), n.Start(ctx)); err != nil {
		return err
	}
	return s.awaitWhole(ctx)
}

// doubled are the files of which the server may replace a damaged part without a word: the one says
// where to look for other nodes and is only a hint, the other has every mark twice, and the marks
// are lower bounds.
func doubled() []string { return []string{"gossip-addresses.json", "high-water"} }

// namesDamage reports whether a log says that something on the disk is not as it was written. Names
// of directories do not count. A server that takes a flipped bit for a write that a crash cut off
// has not noticed it.
func namesDamage(log string, directories ...string) bool {
	for _, dir := range directories {
		log = strings.ReplaceAll(log, dir, "")
	}
	words := []string{"damaged", "corrupt", "checksum", "storage failed", "starting without the addresses of other nodes"}
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "cut off by a crash") &&
			slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
			return true
		}
	}
	return false
}

// flipAnywhere flips one bit of a stopped node's disk, in any file but those that hold nothing.
func (s *Scene) flipAnywhere(n *lab.Node) (*bitFlip, error) {
	files, err := filesLike(n.Data, "log/*.wal,*.snap,stable,high-water,MANIFEST,segments,node.json,gossip-addresses.json")
	if err != nil {
		return nil, err
	}
	s.Rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	for _, path := range files {
		had, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("flipping a bit: %w", err)
		}
		if used(had) == 0 {
			continue
		}
		f := &bitFlip{path: path, at: s.Rand.Int64N(int64(used(had))), bit: byte(s.Rand.IntN(8)), had: had}
		had[f.at] ^= 1 << f.bit
		return f, errors.Join(f.write(), s.makeDurable(n))
	}
	return nil, fmt.Errorf("%s has nothing on its disk", n.Name)
}

// write writes the byte of the flip as it is in had.
func (f *bitFlip) write() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("flipping a bit: %w", err)
	}
	_, err = file.WriteAt(f.had[f.at:f.at+1], f.at)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("flipping a bit: %w", err)
	}
	return nil
}

// fate is what became of a flipped bit.
type fate string

const (
	// unread is a bit that is still flipped, in a file that did not change before its last byte that
	// counts. It can be flipped back, whatever was appended.
	unread fate = "not read"
	// forgotten is one whose file the server has removed: it was read no more.
	forgotten fate = "forgotten with their file"
	// rewritten is one whose file is another one now.
	rewritten fate = "rewritten"
)

// after says what became of the bit.
func (f *bitFlip) after() (fate, error) {
	has, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return forgotten, nil
	case err != nil:
		return "", fmt.Errorf("looking at a flipped bit: %w", err)
	case bytes.HasPrefix(has, bytes.TrimRight(f.had, "\x00")):
		return unread, nil
	default:
		return rewritten, nil
	}
}

// repair flips the bit back.
func (f *bitFlip) repair() error {
	f.had[f.at] ^= 1 << f.bit
	return f.write()
}

// logSize returns how much a node has written to its log.
func logSize(n *lab.Node) (int64, error) {
	info, err := os.Stat(n.Log)
	if err != nil {
		return 0, fmt.Errorf("looking at the log of %s: %w", n.Name, err)
	}
	return info.Size(), nil
}

// logSince returns what a node wrote to its log after it had a size.
func logSince(n *lab.Node, size int64) (string, error) {
	text, err := os.ReadFile(n.Log)
	if err != nil {
		return "", fmt.Errorf("reading the log of %s: %w", n.Name, err)
	}
	return string(text[min(size, int64(len(text))):]), nil
}
