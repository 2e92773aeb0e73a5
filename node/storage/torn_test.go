package storage

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/hashicorp/raft"
)

// TestLaterBatch: an entry behind a damaged place proves that what precedes it was durable if a
// commit stands between them, and not if it was written together with what precedes it: a write
// that was cut off leaves any of its sectors.
func TestLaterBatch(t *testing.T) {
	codec := entryCodec{salt: 7}
	frame := func(data []byte) []byte {
		var entry bytes.Buffer
		if err := codec.Encode(&raft.Log{Index: 5, Term: 2, Data: data}, &entry); err != nil {
			t.Fatal(err)
		}
		head := []byte{walFrameEntry, 0, 0, 0, 0, 0, 0, 0}
		binary.LittleEndian.PutUint32(head[4:], uint32(entry.Len())) //nolint:gosec // small
		padding := make([]byte, -entry.Len()&7)
		return append(append(head, entry.Bytes()...), padding...)
	}
	commit := []byte{walFrameCommit, 0, 0, 0, 9, 8, 7, 6}
	lost := make([]byte, 64)
	// The header of an entry ends in the middle of a word; the last word of this one looks like a
	// commit.
	alike := frame(append(make([]byte, (8-entryHeaderBytes%8)%8), commit...))
	for _, test := range []struct {
		name  string
		parts [][]byte
		later bool
	}{
		{"a batch behind a commit", [][]byte{lost, commit, frame(nil)}, true},
		{"the entries of one batch", [][]byte{lost, frame(nil), frame([]byte("x"))}, false},
		{"the end of a lost entry begins as a commit does", [][]byte{lost, {walFrameCommit, 1, 2, 3, 9, 8, 7, 6}, frame(nil)},
			false},
		{"the padded end of a lost entry", [][]byte{lost, {walFrameCommit, 0, 0, 0, 0, 0, 0, 0}, frame(nil)}, false},
		{"an entry that ends like a commit", [][]byte{lost, alike, frame(nil)}, false},
		{"a batch behind a whole one", [][]byte{lost, alike, commit, frame(nil)}, true},
		{"nothing but zeros", [][]byte{lost, lost}, false},
	} {
		content := append(make([]byte, walHeaderBytes), bytes.Join(test.parts, nil)...)
		s := segmentScan{name: "f", size: int64(len(content)), end: walHeaderBytes}
		later, err := laterBatch(fuzzFS{content: content}, codec, s)
		if err != nil || later != test.later {
			t.Errorf("%s: %v, %v, want %v", test.name, later, err, test.later)
		}
	}
}
