package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"github.com/belfrydb/belfry/node"
)

// tally is the machine of the group beside the shard: the list of the tokens that were logged. It
// stands for the catalog, whose own machine this package may not know.
type tally struct {
	tokens []uint64
	watch  func(node.AppliedEntry)
	plan   *plan
	owner  string
}

// tokenBytes is the size of an entry: the token and nothing, so that snapshots become due.
const tokenBytes = 320

// entryOf returns the entry of a token.
func entryOf(token uint64) []byte {
	entry := make([]byte, tokenBytes)
	binary.BigEndian.PutUint64(entry, token)
	return entry
}

// Apply implements node.Machine. The value is the number of tokens up to this one.
func (t *tally) Apply(index uint64, entry []byte) (any, error) {
	if len(entry) != tokenBytes {
		return nil, fmt.Errorf("an entry of %d bytes is no token", len(entry))
	}
	token := binary.BigEndian.Uint64(entry)
	if t.plan.mistake != nil {
		token = t.plan.mistake(t.owner, token)
	}
	t.tokens = append(t.tokens, token)
	t.watch(node.AppliedEntry{Index: index, Entry: entry, Digest: t.Digest()})
	return len(t.tokens), nil
}

// Snapshot implements node.Machine.
func (t *tally) Snapshot() node.MachineSnapshot {
	kept := t.tokens
	if t.plan.forgetful && len(kept) > 0 {
		kept = kept[:len(kept)-1]
	}
	return tallySnapshot{tokens: kept, digest: digestOf(kept)}
}

// Restore implements node.Machine.
func (t *tally) Restore(r io.Reader) (node.Machine, error) {
	next := &tally{watch: t.watch, plan: t.plan, owner: t.owner}
	var b [8]byte
	for {
		_, err := io.ReadFull(r, b[:])
		if errors.Is(err, io.EOF) {
			return next, nil
		}
		if err != nil {
			return nil, err
		}
		next.tokens = append(next.tokens, binary.BigEndian.Uint64(b[:]))
	}
}

// Digest implements node.Machine.
func (t *tally) Digest() uint64 { return digestOf(t.tokens) }

func digestOf(tokens []uint64) uint64 {
	h := fnv.New64a()
	var b [8]byte
	for _, token := range tokens {
		binary.BigEndian.PutUint64(b[:], token)
		_, _ = h.Write(b[:]) // never fails
	}
	return h.Sum64()
}

// tallySnapshot is the list at one moment; it is only ever appended to.
type tallySnapshot struct {
	tokens []uint64
	digest uint64
}

// WriteTo implements io.WriterTo.
func (s tallySnapshot) WriteTo(w io.Writer) (int64, error) {
	b := make([]byte, 0, 8*len(s.tokens))
	for _, token := range s.tokens {
		b = binary.BigEndian.AppendUint64(b, token)
	}
	n, err := w.Write(b)
	return int64(n), err
}

// Digest implements node.MachineSnapshot.
func (s tallySnapshot) Digest() uint64 { return s.digest }

// Release implements node.MachineSnapshot.
func (tallySnapshot) Release() {}
