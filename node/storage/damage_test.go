package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const (
	fullFirst, fullLast = 81, 200
	fullSnapshot        = 150
)

func snapshotData(index uint64) []byte {
	r := rand.New(rand.NewPCG(index, 1))
	data := make([]byte, 700)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// fillGroup puts everything a group can have on a disk: two snapshots, a compacted log of several
// segments, a vote.
func fillGroup(t *testing.T, s *storage.Stores) {
	t.Helper()
	appendEntries(t, s, 1, 120, 4)
	mustSnapshot(t, s, 100, 4, snapshotData(100))
	appendEntries(t, s, 121, fullLast, 5)
	mustSnapshot(t, s, fullSnapshot, 5, snapshotData(fullSnapshot))
	if err := s.Log.DeleteRange(1, fullFirst-1); err != nil {
		t.Fatal(err)
	}
	if err := s.Stable.SetUint64([]byte("LastVoteTerm"), 5); err != nil {
		t.Fatal(err)
	}
	if err := s.Stable.Set([]byte("LastVoteCand"), []byte("candidate")); err != nil {
		t.Fatal(err)
	}
}

// checkFull returns an error unless s holds exactly what fillGroup put there.
func checkFull(s *storage.Stores) error {
	if err := checkEntries(s, fullFirst, fullLast); err != nil {
		return err
	}
	index, data, err := readSnapshot(s.Snapshots)
	if err != nil || index != fullSnapshot || !bytes.Equal(data, snapshotData(fullSnapshot)) {
		return fmt.Errorf("snapshot %d with %d bytes: %w", index, len(data), err)
	}
	return checkVote(s.Stable, 5, 5, "candidate")
}

func checkVote(s raft.StableStore, term, voteTerm uint64, candidate string) error {
	gotTerm, err1 := s.GetUint64([]byte("CurrentTerm"))
	gotVoteTerm, err2 := s.GetUint64([]byte("LastVoteTerm"))
	got, err3 := s.Get([]byte("LastVoteCand"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if gotTerm != term || gotVoteTerm != voteTerm || string(got) != candidate {
		return fmt.Errorf("term %d, vote %q in %d; want %d, %q in %d", gotTerm, got, gotVoteTerm, term, candidate, voteTerm)
	}
	return nil
}

func fullDisk(t *testing.T) *diskfault.Disk {
	t.Helper()
	d := newDisk()
	cfg := testConfig(d, storage.EngineWAL)
	cfg.SegmentBytes = 4 << 10
	s, err := storage.Open(groupDir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	fillGroup(t, s)
	s.Tidy(nil)
	closeStores(t, s)
	return d
}

// openDamaged opens a damaged group. It must be refused, or be whole and stay so through further
// use.
func openDamaged(d *diskfault.Disk) (refused error, err error) {
	s, refused := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
	if refused != nil {
		return refused, nil
	}
	if err := checkFull(s); err != nil {
		return nil, errors.Join(fmt.Errorf("opened with other contents: %w", err), s.Close())
	}
	if err := s.Log.StoreLog(entry(fullLast+1, 5)); err != nil {
		return nil, errors.Join(fmt.Errorf("append after opening: %w", err), s.Close())
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	if s, err = storage.Open(groupDir, testConfig(d, storage.EngineWAL)); err != nil {
		return nil, fmt.Errorf("second open: %w", err)
	}
	return nil, errors.Join(checkEntries(s, fullFirst, fullLast+1), s.Close())
}

func TestFullDiskIsFull(t *testing.T) {
	d := fullDisk(t)
	segments := 0
	for _, name := range d.Files() {
		if strings.HasSuffix(name, ".wal") {
			segments++
		}
	}
	if segments < 3 {
		t.Fatalf("%d segments are too few for the tests below: %v", segments, d.Files())
	}
	if refused, err := openDamaged(d); refused != nil || err != nil {
		t.Fatal(refused, err)
	}
}

// Every flipped bit is reported, naming the file, or was in a byte that nothing ever reads.
func TestFlippedBits(t *testing.T) {
	full := fullDisk(t)
	r := rand.New(rand.NewPCG(1, 2))
	stride := int64(5 * thinning)
	for _, name := range full.Files() {
		t.Run(path.Base(name), func(t *testing.T) {
			found, unread := 0, 0
			size := int64(len(full.Contents(name)))
			for off := r.Int64N(stride); off < size; off += 1 + r.Int64N(2*stride-1) {
				d := full.Clone()
				bit := uint(r.IntN(8))
				d.Flip(name, off, bit)
				refused, err := openDamaged(d)
				if err != nil {
					t.Fatalf("byte %d, bit %d of %d: %v", off, bit, size, err)
				}
				if refused == nil {
					unread++
					continue
				}
				found++
				wantUnchanged(t, full, d, name)
				if corrupt := corruptIn(t, refused, path.Base(name)); corrupt.Detail == "" {
					t.Fatalf("byte %d: no detail in %v", off, refused)
				}
			}
			t.Logf("%d flips reported, %d in bytes nothing reads, of %d bytes", found, unread, size)
			if wantFound := mostlyRead(name); wantFound && found == 0 {
				t.Error("no flip was found at all")
			}
		})
	}
}

// wantUnchanged fails the test if a refused start changed a file: only bits of damaged may differ.
func wantUnchanged(t *testing.T, full, d *diskfault.Disk, damaged string) {
	t.Helper()
	for _, name := range full.Files() {
		was, is := full.Contents(name), d.Contents(name)
		flipped := 0
		for i := range min(len(was), len(is)) {
			flipped += bits.OnesCount8(was[i] ^ is[i])
		}
		if name == damaged && flipped <= 1 && (len(is) == len(was) || is == nil) {
			continue
		}
		if flipped != 0 || len(is) != len(was) {
			t.Fatalf("%s was changed", name)
		}
	}
}

// mostlyRead is false for the older of the two retained snapshots, which nothing reads, and the
// marks, of which one of two slots suffices.
func mostlyRead(name string) bool {
	return !strings.Contains(name, "0000000000000064-") && !strings.HasSuffix(name, "high-water")
}

func TestTruncatedFiles(t *testing.T) {
	full := fullDisk(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, name := range full.Files() {
		whole := full.Contents(name)
		for range 25 {
			size := r.IntN(len(whole))
			d := full.Clone()
			d.SetContents(name, whole[:size])
			refused, err := openDamaged(d)
			if err != nil {
				t.Fatalf("%s cut to %d of %d bytes: %v", name, size, len(whole), err)
			}
			if refused != nil {
				wantCorrupt(t, refused, path.Base(name))
			} else if mostlyRead(name) && !strings.HasSuffix(name, ".wal") {
				t.Errorf("%s cut to %d of %d bytes went unnoticed", name, size, len(whole))
			}
		}
	}
}

func TestDeletedFiles(t *testing.T) {
	full := fullDisk(t)
	for _, name := range full.Files() {
		t.Run(path.Base(name), func(t *testing.T) {
			d := full.Clone()
			d.SetContents(name, nil)
			refused, err := openDamaged(d)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(name, "0000000000000064-") {
				if refused != nil {
					t.Fatalf("the older snapshot is not needed, yet: %v", refused)
				}
				return
			}
			file := path.Base(name)
			if strings.HasSuffix(file, ".snap") {
				file = file[:16]
			}
			wantCorrupt(t, refused, file)
			// Refusing must leave all the rest as it was.
			wantUnchanged(t, full, d, name)
		})
	}
}

// A file put back from an older copy of the directory.
func TestOlderCopies(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	appendEntries(t, s, 1, 50, 2)
	mustSnapshot(t, s, 40, 2, snapshotData(40))
	closeStores(t, s)
	old := d.Clone()
	s = openOn(t, d)
	appendEntries(t, s, 51, 90, 3)
	mustSnapshot(t, s, 80, 3, snapshotData(80))
	closeStores(t, s)
	for _, name := range old.Files() {
		t.Run(path.Base(name), func(t *testing.T) {
			if bytes.Equal(old.Contents(name), d.Contents(name)) {
				return
			}
			mixed := d.Clone()
			mixed.SetContents(name, old.Contents(name))
			s, err := storage.Open(groupDir, testConfig(mixed, storage.EngineWAL))
			if path.Base(name) == "high-water" && err == nil {
				// An older mark says less and costs nothing as long as the rest is whole.
				if err := checkEntries(s, 1, 90); err != nil {
					t.Error(err)
				}
				closeStores(t, s)
				return
			}
			wantCorrupt(t, err, path.Base(name))
		})
	}
}

// The bolt engine's entries carry their sum through the library's own encoding.
func TestFlippedBitsBolt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shard-1")
	s, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineBolt))
	if err != nil {
		t.Fatal(err)
	}
	appendEntries(t, s, 1, 60, 1)
	closeStores(t, s)
	name := filepath.Join(dir, "log", "raft.db")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 60; i++ {
		flipped := bytes.Clone(whole)
		for at := 0; ; {
			n := bytes.Index(flipped[at:], body(i))
			if n < 0 {
				break
			}
			flipped[at+n+len(body(i))/2] ^= 0x10
			at += n + len(body(i))
		}
		if err := os.WriteFile(name, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineBolt))
		if err == nil {
			closeStores(t, s)
		}
		if corrupt := corruptIn(t, err, "raft.db"); corrupt.Index != i {
			t.Fatalf("entry %d was damaged, reported: %v", i, err)
		}
	}
}

func TestBoltFileReplaced(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(file string) error
	}{
		{"deleted", os.Remove},
		{"emptied", func(f string) error { return os.Truncate(f, 0) }},
		{"cut", func(f string) error { return os.Truncate(f, 4096) }},
		{"zeroed", func(f string) error { return os.WriteFile(f, make([]byte, 32<<10), 0o600) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "shard-1")
			s, err := storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineBolt))
			if err != nil {
				t.Fatal(err)
			}
			appendEntries(t, s, 1, 60, 1)
			closeStores(t, s)
			if err := tc.damage(filepath.Join(dir, "log", "raft.db")); err != nil {
				t.Fatal(err)
			}
			s, err = storage.Open(dir, testConfig(disk.OSFS{}, storage.EngineBolt))
			if err == nil {
				closeStores(t, s)
			}
			wantCorrupt(t, err, "raft.db")
		})
	}
}

// Damage that appears while the group runs is found by the read, and fails the group once.
func TestDamageWhileRunning(t *testing.T) {
	d := newDisk()
	cfg := testConfig(d, storage.EngineWAL)
	var fatal []error
	cfg.OnFatal = func(err error) { fatal = append(fatal, err) }
	s, err := storage.Open(groupDir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	appendEntries(t, s, 1, 20, 1)
	mustSnapshot(t, s, 10, 1, snapshotData(10))
	for _, name := range d.Files() {
		if at := bytes.Index(d.Contents(name), body(13)); at >= 0 && strings.HasSuffix(name, ".wal") {
			d.Flip(name, int64(at)+3, 2)
		}
		if strings.HasSuffix(name, ".snap") {
			d.Flip(name, int64(bytes.Index(d.Contents(name), snapshotData(10)))+300, 1)
		}
	}
	if err := s.Log.GetLog(12, &raft.Log{}); err != nil {
		t.Fatal(err)
	}
	err = s.Log.GetLog(13, &raft.Log{})
	if corrupt := corruptIn(t, err, ".wal"); corrupt.Index != 13 || len(fatal) != 1 {
		t.Errorf("%v; told %v", err, fatal)
	}
	_, _, err = readSnapshot(s.Snapshots)
	if corrupt := corruptIn(t, err, ".snap"); corrupt.Offset == 0 {
		t.Error(err)
	}
	if len(fatal) != 1 || !errors.Is(s.Err(), disk.ErrFailed) {
		t.Errorf("told %v, state %v", fatal, s.Err())
	}
	if err := s.Log.StoreLog(entry(21, 1)); !errors.Is(err, disk.ErrFailed) {
		t.Errorf("append to a failed group: %v", err)
	}
	closeStores(t, s)
}

// An intact entry in another's place is found by its index.
func TestEntryInAnothersPlace(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	defer func() { _ = s.Close() }()
	appendEntries(t, s, 1, 40, 1)
	const name = groupDir + "/log/00000000000000000001-0000000000000001.wal"
	b := d.Contents(name)
	const head = 38 // of an entry; 3 and 20 have bodies of one size
	from, to := bytes.Index(b, body(3))-head, bytes.Index(b, body(20))-head
	d.Overwrite(name, int64(to), b[from:from+head+len(body(3))])
	err := s.Log.GetLog(20, &raft.Log{})
	if corrupt := corruptIn(t, err, ".wal"); corrupt.Index != 20 || !strings.Contains(err.Error(), "entry 3") {
		t.Error(err)
	}
}

// A manifest lost before the first term was stored.
func TestManifestLostEarly(t *testing.T) {
	d := newDisk()
	s := openOn(t, d)
	must(t, s.Log.StoreLogs(entries(1, 5, 0)))
	closeStores(t, s)
	d.SetContents(groupDir+"/MANIFEST", nil)
	before := d.Clone()
	_, err := storage.Open(groupDir, testConfig(d, storage.EngineWAL))
	wantCorrupt(t, err, "MANIFEST")
	wantUnchanged(t, before, d, "")
}
