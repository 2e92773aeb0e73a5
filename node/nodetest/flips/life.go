package flips

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const (
	dataDir  = "/data"
	groupDir = dataDir + "/shard-1"

	// Small, so that a life fills several.
	segmentBytes = 4 << 10

	// markSyncEvery is the default of storage.Config.
	markSyncEvery = time.Second
)

// group is the directory of a group as a life left it, and what was acknowledged meanwhile.
type group struct {
	random  *rand.Rand
	disk    *diskfault.Disk
	options Options
	stores  *storage.Stores // nil while it is not open
	held    contents
	batch   uint64 // index of the first entry of the last batch
	// unmarked is set if its life ended with a power cut so soon after the last append that its mark
	// need not be synced.
	unmarked bool
	told     []error // what it would have ended its process for
}

// newGroup lives a life: everything that Raft does to its stores, in random order. It ends with a
// close, a kill or a power cut.
func newGroup(r *rand.Rand, o Options) (*group, error) {
	g := &group{random: r, disk: diskfault.New(), options: o}
	if err := g.disk.MkdirAll(dataDir); err != nil {
		return nil, err
	}
	if err := g.open(); err != nil {
		return nil, err
	}
	steps := []func() error{
		g.append, g.append, g.append, g.append, g.append, g.append, g.newTerm, g.snapshot, g.compact, g.overwrite, g.install,
		g.restart,
	}
	for range 25 + r.IntN(40) {
		if err := steps[r.IntN(len(steps))](); err != nil {
			return nil, err
		}
		pass(time.Duration(r.IntN(600)) * time.Millisecond)
	}
	// Two snapshots are kept; a life with less would have too little to damage.
	for _, step := range []func() error{g.append, g.snapshot, g.append, g.snapshot, g.append} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return g, g.endLife()
}

func (g *group) config() storage.Config {
	cfg := storage.Config{
		Group: "cluster/shard-1", FS: g.disk, SegmentBytes: segmentBytes,
		OnFatal: func(err error) { g.told = append(g.told, err) },
	}
	if g.options.quiet {
		cfg.OnFatal = nil
	}
	return cfg
}

func (g *group) open() (err error) {
	if g.options.repair != nil {
		g.options.repair(g.disk, groupDir)
	}
	g.stores, err = storage.Open(groupDir, g.config())
	return err
}

func (g *group) close() error {
	s := g.stores
	g.stores = nil
	return s.Close()
}

func (g *group) restart() error { return errors.Join(g.close(), g.open()) }

// endLife ends the life.
func (g *group) endLife() error {
	g.stores.Tidy(nil) // a file that was given up is not damaged
	waited := time.Duration(0)
	if g.random.IntN(2) == 0 {
		waited = time.Duration(g.random.IntN(2 * int(markSyncEvery)))
		pass(waited)
	}
	switch g.random.IntN(3) {
	case 0: // closed
		return g.close()
	case 1: // killed
		next := g.disk.Fork(diskfault.KeepAll, diskfault.KeepNames)
		err := g.close()
		g.disk = next
		return err
	default:
		g.unmarked = waited < markSyncEvery
		next := g.disk.Fork(diskfault.LoseAll, diskfault.LoseNames)
		err := g.close()
		g.disk = next
		return err
	}
}

// append stores a batch.
func (g *group) append() error {
	if g.held.Term == 0 {
		if err := g.newTerm(); err != nil {
			return err
		}
	}
	next := max(g.held.last(), g.held.Snapshot) + 1
	var logs []*raft.Log
	var entries []entry
	for i := range uint64(1 + g.random.IntN(8)) {
		l := &raft.Log{
			Index: next + i, Term: g.held.Term, Type: raft.LogCommand, Data: body(g.random), AppendedAt: time.Now(),
		}
		if g.random.IntN(8) == 0 {
			l.Type = raft.LogNoop
		}
		logs, entries = append(logs, l), append(entries, entryOf(l))
	}
	if err := g.stores.Log.StoreLogs(logs); err != nil {
		return fmt.Errorf("storing %d entries at %d: %w", len(logs), next, err)
	}
	if len(g.held.Entries) == 0 {
		g.held.First = next
	}
	g.held.Entries = append(g.held.Entries, entries...)
	g.batch = next
	return nil
}

// body is what an entry holds: random bytes in most cases, sometimes many, all alike or none.
func body(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(300))
	switch r.IntN(8) {
	case 0:
		return b
	case 1:
		return bytes.Repeat([]byte{0xff}, len(b))
	case 2:
		b = make([]byte, r.IntN(3*segmentBytes/2))
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// newTerm has the group vote in a later term.
func (g *group) newTerm() error {
	term := g.held.Term + 1 + uint64(g.random.IntN(3))
	if err := g.stores.Stable.SetUint64([]byte(keyTerm), term); err != nil {
		return fmt.Errorf("storing term %d: %w", term, err)
	}
	g.held.Term = term
	if g.random.IntN(3) == 0 {
		return nil
	}
	candidate := fmt.Sprintf("n%d.%016x", 1+g.random.IntN(3), g.random.Uint64())
	err := errors.Join(g.stores.Stable.SetUint64([]byte(keyVoteTerm), term),
		g.stores.Stable.Set([]byte(keyCandidate), []byte(candidate)))
	if err != nil {
		return fmt.Errorf("storing a vote: %w", err)
	}
	g.held.VoteTerm, g.held.Candidate = term, candidate
	return nil
}

// snapshot takes one of what the log holds.
func (g *group) snapshot() error {
	from := max(g.held.First, g.held.Snapshot)
	if len(g.held.Entries) == 0 || from > g.held.last() {
		return nil
	}
	index := from + uint64(g.random.IntN(int(g.held.last()-from+1)))
	return g.write(index, g.held.Entries[index-g.held.First].Term)
}

// write writes a snapshot, one of eight in several blocks.
func (g *group) write(index, term uint64) error {
	data := make([]byte, g.random.IntN(2000))
	if g.random.IntN(8) == 0 {
		data = make([]byte, 250<<10+g.random.IntN(300<<10))
	}
	for i := range data {
		data[i] = byte(g.random.Uint32())
	}
	var servers []raft.Server
	for i := range 3 {
		id := fmt.Sprintf("n%d.%016x", i, g.random.Uint64())
		servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	sink, err := g.stores.Snapshots.Create(1, index, term, raft.Configuration{Servers: servers}, 1, nil)
	if err != nil {
		return fmt.Errorf("creating snapshot %d: %w", index, err)
	}
	if _, err := io.Copy(sink, bytes.NewReader(data)); err != nil {
		return errors.Join(fmt.Errorf("writing snapshot %d: %w", index, err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("writing snapshot %d: %w", index, err)
	}
	g.held.Snapshot, g.held.SnapshotTerm, g.held.Servers, g.held.SnapshotSum = index, term, servers, sha256.Sum256(data)
	return nil
}

// compact cuts what a snapshot covers off the log, or a part of it.
func (g *group) compact() error {
	if len(g.held.Entries) == 0 || g.held.Snapshot < g.held.First {
		return nil
	}
	upTo := g.held.First + uint64(g.random.IntN(int(min(g.held.Snapshot, g.held.last())-g.held.First+1)))
	if upTo == g.held.last() {
		return nil // Raft keeps a part of the log
	}
	if err := g.stores.Log.DeleteRange(g.held.First, upTo); err != nil {
		return fmt.Errorf("compacting up to %d: %w", upTo, err)
	}
	g.held.Entries = append([]entry(nil), g.held.Entries[upTo-g.held.First+1:]...)
	g.held.First = upTo + 1
	return nil
}

// overwrite has a new leader replace the end of the log, after the snapshot.
func (g *group) overwrite() error {
	from := max(g.held.First, g.held.Snapshot+1) + 1
	if len(g.held.Entries) == 0 || from > g.held.last() {
		return nil
	}
	from += uint64(g.random.IntN(int(g.held.last() - from + 1)))
	if err := g.newTerm(); err != nil {
		return err
	}
	if err := g.stores.Log.DeleteRange(from, g.held.last()); err != nil {
		return fmt.Errorf("cutting from %d: %w", from, err)
	}
	g.held.Entries = g.held.Entries[:from-g.held.First]
	return g.append()
}

// install takes a snapshot from a leader that is ahead, now and then.
func (g *group) install() error {
	if g.random.IntN(3) > 0 || g.held.Term == 0 {
		return nil
	}
	if err := g.write(max(g.held.last(), g.held.Snapshot)+uint64(1+g.random.IntN(50)), g.held.Term); err != nil {
		return err
	}
	if len(g.held.Entries) > 0 {
		if err := g.stores.Log.DeleteRange(g.held.First, g.held.last()); err != nil {
			return fmt.Errorf("clearing the log: %w", err)
		}
	}
	g.held.First, g.held.Entries = 0, nil
	return g.append()
}

// pass lets time pass, and waits for the work that is due at its end: in a bubble no time passes
// while a goroutine runs.
func pass(d time.Duration) {
	for _, d := range []time.Duration{d, 1} {
		wait := time.NewTimer(d)
		<-wait.C
	}
}
