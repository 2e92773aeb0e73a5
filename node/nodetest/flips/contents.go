package flips

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
)

// The keys under which Raft keeps its term and its vote.
const (
	keyTerm      = "CurrentTerm"
	keyVoteTerm  = "LastVoteTerm"
	keyCandidate = "LastVoteCand"
)

// entry is what an entry of a log says.
type entry struct {
	Term uint64
	Type raft.LogType
	Sum  [sha256.Size]byte // of its data and extensions
}

func entryOf(l *raft.Log) entry {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%d ", len(l.Data)) // a hash takes all
	_, _ = sum.Write(l.Data)
	_, _ = sum.Write(l.Extensions)
	e := entry{Term: l.Term, Type: l.Type}
	sum.Sum(e.Sum[:0])
	return e
}

// contents are all that Raft can read from the stores of a group.
type contents struct {
	First   uint64 // index of Entries[0]; 0 if there are none
	Entries []entry

	Term, VoteTerm uint64
	Candidate      string

	Snapshot, SnapshotTerm uint64
	Servers                []raft.Server
	SnapshotSum            [sha256.Size]byte
}

// last returns the index of the last entry, 0 if there is none.
func (c *contents) last() uint64 {
	if len(c.Entries) == 0 {
		return 0
	}
	return c.First + uint64(len(c.Entries)) - 1
}

// upTo returns the contents without the entries after index.
func (c *contents) upTo(index uint64) *contents {
	cut := *c
	cut.Entries = nil
	if len(c.Entries) > 0 && index >= c.First {
		cut.Entries = c.Entries[:min(index-c.First+1, uint64(len(c.Entries)))]
	}
	if len(cut.Entries) == 0 {
		cut.First, cut.Entries = 0, nil
	}
	return &cut
}

// clone returns a copy that may be changed.
func (c *contents) clone() *contents {
	same := *c
	same.Entries = append([]entry(nil), c.Entries...)
	return &same
}

// differs names the first thing that is not as in want; empty if there is none.
func (c *contents) differs(want *contents) string {
	if c.First != want.First || c.last() != want.last() {
		return fmt.Sprintf("the log holds %d to %d, acknowledged are %d to %d", c.First, c.last(), want.First, want.last())
	}
	for i := range c.Entries {
		if c.Entries[i] != want.Entries[i] {
			return fmt.Sprintf("entry %d is %v, acknowledged is %v", c.First+uint64(i), c.Entries[i], want.Entries[i])
		}
	}
	if c.Term != want.Term || c.VoteTerm != want.VoteTerm || c.Candidate != want.Candidate {
		return fmt.Sprintf("term %d and a vote in %d for %q, acknowledged are %d, %d and %q",
			c.Term, c.VoteTerm, c.Candidate, want.Term, want.VoteTerm, want.Candidate)
	}
	if c.Snapshot != want.Snapshot || c.SnapshotTerm != want.SnapshotTerm || c.SnapshotSum != want.SnapshotSum ||
		!reflect.DeepEqual(c.Servers, want.Servers) {
		return fmt.Sprintf("the snapshot is at %d (term %d, %d servers, %x), acknowledged is %d (term %d, %d servers, %x)",
			c.Snapshot, c.SnapshotTerm,
			len(c.Servers), c.SnapshotSum[:4], want.Snapshot, want.SnapshotTerm, len(want.Servers), want.SnapshotSum[:4])
	}
	return ""
}

// read reads all that there is to read, and stops at the first error.
func read(s *storage.Stores) (*contents, error) {
	c := &contents{}
	var errs [3]error
	var candidate []byte
	c.Term, errs[0] = s.Stable.GetUint64([]byte(keyTerm))
	c.VoteTerm, errs[1] = s.Stable.GetUint64([]byte(keyVoteTerm))
	candidate, errs[2] = s.Stable.Get([]byte(keyCandidate))
	c.Candidate = string(candidate)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("reading term and vote: %w", err)
	}
	first, _ := s.Log.FirstIndex() // both never fail
	last, _ := s.Log.LastIndex()
	for index := first; last > 0 && index <= last; index++ {
		var l raft.Log
		if err := s.Log.GetLog(index, &l); err != nil {
			return nil, fmt.Errorf("reading entry %d: %w", index, err)
		}
		c.First, c.Entries = first, append(c.Entries, entryOf(&l))
	}
	return c, c.readSnapshot(s.Snapshots)
}

func (c *contents) readSnapshot(s raft.SnapshotStore) error {
	list, err := s.List()
	if err != nil || len(list) == 0 {
		return err
	}
	meta, r, err := s.Open(list[0].ID)
	if err != nil {
		return fmt.Errorf("opening snapshot %s: %w", list[0].ID, err)
	}
	sum := sha256.New()
	_, err = io.Copy(sum, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("reading snapshot %s: %w", meta.ID, err)
	}
	c.Snapshot, c.SnapshotTerm, c.Servers = meta.Index, meta.Term, meta.Configuration.Servers
	sum.Sum(c.SnapshotSum[:0])
	return nil
}
