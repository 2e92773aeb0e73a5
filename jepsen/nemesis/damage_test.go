package nemesis

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/jepsen/disk"
)

// counted returns a scene of a seed, and what it counts.
func counted(seed uint64) (*Scene, map[string]int64) {
	counts := map[string]int64{}
	return &Scene{Rand: rand.New(rand.NewPCG(seed, 1)), Count: func(what string, n int64) { counts[what] += n }}, counts
}

// segment is a segment of the log of which the most was never written.
func segment() []byte { return append([]byte("entries"), make([]byte, 4096)...) }

// TestDamageStrikes: whatever the seed, what was written is damaged, not the room behind it, and as
// many bits differ as are counted.
func TestDamageStrikes(t *testing.T) {
	for seed := range uint64(300) {
		s, counts := counted(seed)
		path := filepath.Join(t.TempDir(), "1.wal")
		write := func(b []byte) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read := func() []byte {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		for _, had := range [][]byte{segment(), []byte("v")} {
			before := counts["bits flipped in files"]
			write(had)
			if _, err := flipBits(s, path); err != nil {
				t.Fatal(err)
			}
			differ := 0
			for i, b := range read() {
				differ += bits.OnesCount8(b ^ had[i])
			}
			if n := counts["bits flipped in files"] - before; int64(differ) != n || n == 0 {
				t.Fatalf("seed %d: %d bits of %q differ, %d were counted", seed, differ, had[:1], n)
			}
			write(had)
			if _, err := truncateFile(s, path); err != nil {
				t.Fatal(err)
			}
			if has := read(); len(has) >= used(had) {
				t.Fatalf("seed %d: all that was written is there in the %d bytes that were left of %d", seed, len(has), len(had))
			}
		}
	}
}

// TestDamageFiles: files that hold nothing are not damaged, and where there are no others that is
// an error and no strike.
func TestDamageFiles(t *testing.T) {
	dir := t.TempDir()
	for name, b := range map[string][]byte{"log/1.wal": segment(), "log/2.wal": make([]byte, 4096),
		"snapshots/empty.snap": nil} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(20) {
		s, _ := counted(seed)
		text, err := s.damageFiles(filesLike, dir, "log/*.wal", flipBits)
		if err != nil || !strings.HasPrefix(text, "/log/1.wal with ") || strings.Contains(text, ",") {
			t.Fatalf("seed %d: %q, %v", seed, text, err)
		}
		for _, patterns := range []string{"snapshots/*.snap", "stable"} {
			if text, err := s.damageFiles(filesLike, dir, patterns, flipBits); err == nil {
				t.Fatalf("seed %d: %s has nothing, and yet: %q", seed, patterns, text)
			}
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "log/2.wal")); err != nil || !bytes.Equal(b, make([]byte, 4096)) {
		t.Errorf("a segment in which nothing was written was damaged (%v)", err)
	}
}

// TestRefusedClearly: a panic is no refusal of a damaged disk.
func TestRefusedClearly(t *testing.T) {
	for code, want := range map[int]bool{exitStorage: true, 1: true, -1: true, 2: false} {
		if err := refusedClearly("n1", code); (err == nil) != want {
			t.Errorf("%d: have %v", code, err)
		}
	}
}

// TestSites: a node that runs is to die at steps that it comes by, and at all of those.
func TestSites(t *testing.T) {
	founding := 0
	for _, site := range disk.Sites() {
		once := slices.Contains([]string{"MANIFEST", "MANIFEST.tmp", "node.json", "node.json.tmp", "RESERVE"}, site.Path) ||
			site.Kind == disk.OpMkdir
		if once {
			founding++
		}
		if ofRunning(site) == once {
			t.Errorf("%s: at which a directory is made: %v", site.Name, once)
		}
	}
	if founding == 0 || founding == len(disk.Sites()) {
		t.Errorf("%d of %d sites are those at which a directory is made", founding, len(disk.Sites()))
	}
}
