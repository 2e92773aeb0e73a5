package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// written returns a journal of three entries, and the entries.
func written(t *testing.T) ([]byte, []Entry) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w.now = func() fsm.Time { return 17 }
	var entries []Entry
	for i := range uint64(3) {
		e := node.AppliedEntry{
			Shard: uint32(i), Opening: uint32(3 * i), Term: 300 + i, Index: 1 << (20 * i),
			Entry: bytes.Repeat([]byte{byte(i)}, int(i)), Digest: ^i,
		}
		if err := w.Append(e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, Entry{AppliedEntry: e, At: 17})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a journal was made over another: %v", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, entries
}

func read(b []byte) (entries []Entry, err error) {
	err = Read(bytes.NewReader(b), func(e Entry) error {
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// TestJournal reads back what was written, and what is left of it when its writer was killed while
// it wrote.
func TestJournal(t *testing.T) {
	b, want := written(t)
	got, err := read(b)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("read (-want +got), error %v:\n%s", err, diff)
	}
	for cut := len(magic); cut < len(b); cut++ {
		got, err := read(b[:cut])
		if err != nil || len(got) >= len(want) {
			t.Fatalf("cut at %d: %d entries, %v", cut, len(got), err)
		}
		if diff := cmp.Diff(want[:len(got)], got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
	}
}

// TestDamagedJournal flips every bit: a journal is never read as another one.
func TestDamagedJournal(t *testing.T) {
	b, want := written(t)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		got, err := read(b)
		if err == nil && len(got) == len(want) {
			t.Errorf("bit %d flipped: read without an error", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}
