package flips

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/storage"
	"github.com/belfrydb/belfry/node/storage/disk"
	"github.com/belfrydb/belfry/node/storage/diskfault"
)

const (
	// plantedFlips and plantedWorlds are what a planted mistake may survive.
	plantedFlips  = 4000
	plantedWorlds = 12
)

// mistakes are planted in what opens damaged files.
func mistakes() map[string]func(*diskfault.Disk, string) {
	return map[string]func(*diskfault.Disk, string){
		"no sum of a small file is looked at":           repairRecords,
		"no sum of a log is looked at":                  repairSegments,
		"no sum of a snapshot is looked at":             repairSnapshots,
		"a damaged end of the log is cut off":           cutLog,
		"a damaged snapshot makes way for an older one": dropSnapshot,
		"a damaged vote is forgotten":                   forgetVote,
	}
}

// A mistake must be noticed, with one group and with a cluster.
func TestPlantedMistakesAreNoticed(t *testing.T) {
	for name, repair := range mistakes() {
		t.Run(name, func(t *testing.T) {
			report := runStores(t, Options{Seed: 1, Flips: plantedFlips, repair: repair, enough: 1})
			if len(report.Violations) == 0 {
				t.Errorf("not noticed in %d flips", report.Flips)
			} else {
				t.Logf("noticed after %d flips: %s", report.Flips, report.Violations[0])
			}
			expectRedWorld(t, Options{Seed: 1, repair: repair})
		})
	}
}

// A mistake changes nothing that is not damaged: else it would be noticed for what it does, and not
// for what it lets pass.
func TestMistakesNeedDamage(t *testing.T) {
	for name, repair := range mistakes() {
		for life := range uint64(8) {
			bubble(t, func(t *testing.T) {
				g, err := newGroup(rand.New(rand.NewPCG(1, life)), Options{})
				if err != nil {
					t.Fatal(err)
				}
				repaired := g.disk.Clone()
				repair(repaired, groupDir)
				for _, file := range g.disk.Files() {
					if !bytes.Equal(g.disk.Contents(file), repaired.Contents(file)) {
						t.Errorf("%s: it changes %s of life %d", name, file, life)
					}
				}
			})
		}
	}
}

// Of the same mistakes, those that serve other bytes must be noticed in what the cluster does as
// well, without a look at its files; those of the log also when the machine does not look at the
// sums of entries either.
func TestWrongBytesAreNoticedInUse(t *testing.T) {
	for name, repair := range map[string]func(*diskfault.Disk, string){
		"log": repairSegments, "entries": repairEntries, "snapshot": repairSnapshots,
	} {
		t.Run(name, func(t *testing.T) { expectRedWorld(t, Options{Seed: 1, repair: repair, blind: true}) })
	}
}

func expectRedWorld(t *testing.T, o Options) {
	t.Helper()
	trials := 0
	for world := range uint64(plantedWorlds) {
		report := runWorld(t, o, world)
		trials += report.Trials
		if len(report.Violations) > 0 {
			t.Logf("noticed in a cluster after %d trials: %s", trials, report.Violations[0])
			return
		}
	}
	t.Errorf("not noticed in %d trials with clusters", trials)
}

// A store that finds damage in use and leaves its process running must be noticed.
func TestQuietStoreIsNoticed(t *testing.T) {
	report := runStores(t, Options{Seed: 1, Flips: plantedFlips, quiet: true, enough: 1})
	if len(report.Violations) == 0 {
		t.Errorf("not noticed in %d flips", report.Flips)
	}
}

// An answer that blames another file, or none, must be noticed.
func TestWrongBlameIsNoticed(t *testing.T) {
	d := &damage{edits: []edit{{file: "/data/shard-1/stable"}}}
	for _, err := range []error{errors.New("damaged"), &disk.CorruptError{File: "/data/shard-1/MANIFEST"}} {
		if blames(d, err) == nil {
			t.Errorf("%v passes for a report", err)
		}
	}
	if err := blames(d, &disk.CorruptError{File: "/data/shard-1/stable"}); err != nil {
		t.Error(err)
	}
}

// filesOf calls f with the contents of each file of a group whose name ends so, and stores what f
// made of them.
func filesOf(disk *diskfault.Disk, dir string, f func(b []byte), suffixes ...string) {
	for _, name := range disk.Files() {
		for _, suffix := range suffixes {
			if strings.HasPrefix(name, dir+"/") && strings.HasSuffix(name, suffix) {
				b := disk.Contents(name)
				f(b)
				disk.Overwrite(name, 0, b)
			}
		}
	}
}

// repairRecords makes the sums of small files right.
func repairRecords(disk *diskfault.Disk, dir string) {
	filesOf(disk, dir, func(b []byte) {
		if n := len(b) - 4; n > 0 {
			binary.LittleEndian.PutUint32(b[n:], sumOf(0, b[:n]))
		}
	}, "/MANIFEST", "/stable", "/segments")
}

// repairSnapshots makes the sums of snapshots right, as far as their lengths make sense.
func repairSnapshots(disk *diskfault.Disk, dir string) {
	filesOf(disk, dir, func(b []byte) {
		at, end := int(snapshotHead(b)), len(b)-snapshotTail
		if at < snapshotHeadFixed+4 || end < at {
			return
		}
		sum := sumOf(0, b[:at-4])
		binary.LittleEndian.PutUint32(b[at-4:], sum)
		for at+8 <= end {
			n := int(binary.LittleEndian.Uint32(b[at:]))
			if n > end-at-8 {
				return
			}
			sum = sumOf(sumOf(sum, b[at:at+4]), b[at+8:at+8+n])
			binary.LittleEndian.PutUint32(b[at+4:], sum)
			at += 8 + n
		}
		binary.LittleEndian.PutUint32(b[len(b)-8:], sum)
		binary.LittleEndian.PutUint32(b[len(b)-4:], sumOf(0, b[end:len(b)-4]))
	}, ".snap")
}

// repairSegments makes the sums of entries and of batches right, as far as their lengths make
// sense.
func repairSegments(disk *diskfault.Disk, dir string) { repairLog(disk, dir, func([]byte) {}) }

// repairEntries makes those that the machine looks at right as well.
func repairEntries(disk *diskfault.Disk, dir string) {
	repairLog(disk, dir, func(e []byte) {
		const head, kind, length = 38, 5, 30
		if len(e) < head || e[kind] != byte(raft.LogCommand) {
			return
		}
		if n := int(binary.LittleEndian.Uint32(e[length:])); n >= 4 && n <= len(e)-head {
			data := e[head : head+n]
			binary.LittleEndian.PutUint32(data[n-4:], sumOf(0, data[:n-4]))
		}
	})
}

// repairLog calls inner with each entry of a log, and makes its sum and that of its batch right.
func repairLog(disk *diskfault.Disk, dir string, inner func(entry []byte)) {
	var manifest struct {
		Salt uint32 `json:"salt"`
	}
	if b := disk.Contents(path.Join(dir, "MANIFEST")); len(b) < 20 || json.Unmarshal(b[16:len(b)-4], &manifest) != nil {
		return
	}
	filesOf(disk, dir, func(b []byte) {
		const header, head, entry, index, commit = 32, 8, 1, 2, 3
		if len(b) < header {
			return
		}
		sum := sumOf(0, b[:header])
		for at := header; at+head <= len(b); {
			if b[at] == commit {
				binary.LittleEndian.PutUint32(b[at+4:], sum)
				at, sum = at+head, 0
				continue
			}
			n := int(binary.LittleEndian.Uint32(b[at+4:]))
			end := at + head + (n+7)/8*8
			if b[at] != entry && b[at] != index || end > len(b) || n < 4 {
				return
			}
			if b[at] == entry {
				inner(b[at+head : at+head+n])
				binary.LittleEndian.PutUint32(b[at+head:], sumOf(manifest.Salt, b[at+head+4:at+head+n]))
			}
			sum = sumOf(sum, b[at:end])
			at = end
		}
	}, ".wal")
}

// found opens a copy of a group and returns the damage that is reported, nil if there is none.
func found(faulty *diskfault.Disk, dir string) *disk.CorruptError {
	copied := faulty.Clone()
	name, err := storage.Named(dir, copied)
	if err == nil {
		var s *storage.Stores
		if s, err = storage.Open(dir, storage.Config{
			Group: name, FS: copied, Mode: storage.MustExist, SegmentBytes: segmentBytes,
		}); err == nil {
			err = s.Close()
		}
	}
	corrupt, _ := errors.AsType[*disk.CorruptError](err)
	return corrupt
}

// setMarks makes the high-water marks say what suits a planted mistake.
func setMarks(disk *diskfault.Disk, dir string, snapshot uint64) {
	b := make([]byte, markStride+markSlot)
	for i, at := range []int{0, markStride} {
		slot := b[at : at+markSlot]
		binary.LittleEndian.PutUint32(slot, markMagic)
		binary.LittleEndian.PutUint64(slot[4:], uint64(1+i))
		binary.LittleEndian.PutUint64(slot[20:], snapshot)
		binary.LittleEndian.PutUint32(slot[markSlot-4:], sumOf(0, slot[:markSlot-4]))
	}
	disk.SetContents(path.Join(dir, "high-water"), b)
}

// cutLog takes damage in a log for its end.
func cutLog(disk *diskfault.Disk, dir string) {
	corrupt := found(disk, dir)
	if corrupt == nil || !strings.HasSuffix(corrupt.File, ".wal") || disk.Contents(corrupt.File) == nil {
		return
	}
	b := disk.Contents(corrupt.File)
	clear(b[min(corrupt.Offset, int64(len(b))):])
	disk.SetContents(corrupt.File, b)
	setMarks(disk, dir, 0)
}

// dropSnapshot does with an older snapshot if the newest is damaged.
func dropSnapshot(disk *diskfault.Disk, dir string) {
	if corrupt := found(disk, dir); corrupt != nil && strings.HasSuffix(corrupt.File, ".snap") {
		disk.SetContents(corrupt.File, nil)
		setMarks(disk, dir, 0)
	}
}

// forgetVote makes a damaged file with term and vote anew.
func forgetVote(disk *diskfault.Disk, dir string) {
	name := path.Join(dir, "stable")
	if corrupt := found(disk, dir); corrupt == nil || corrupt.File != name {
		return
	}
	b := append([]byte("BLFYSTBL"), 1, 0, 0, 0)
	pair := append([]byte{11}, "CurrentTerm"...)
	pair = binary.BigEndian.AppendUint64(append(pair, 8), 1<<20) // so that no entry is of a later term
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(pair))), pair...)
	disk.SetContents(name, binary.LittleEndian.AppendUint32(b, sumOf(0, b)))
}
