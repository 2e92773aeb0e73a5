package flips

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/node/storage/diskfault"
)

// part is a kind of file, or a region of one, by what finds damage in it.
type part string

// The parts. Of those that mayBeUnread names, nothing may ever read a byte; all others are covered
// by sums in full.
const (
	partSegment      part = "log segment"
	partBehind       part = "log segment, behind its end"
	partList         part = "list of segments"
	partMark         part = "high-water mark"
	partVote         part = "term and vote"
	partManifest     part = "manifest"
	partSnapshot     part = "newest snapshot, data"
	partSnapshotHead part = "newest snapshot, meta"
	partSnapshotTail part = "newest snapshot, trailer"
	partOlder        part = "older snapshot"
	partIdentity     part = "identity of the node"
	partIdentityEnd  part = "identity of the node, end of line"
)

// mayBeUnread reports whether damage in a part may be without consequences.
func (p part) mayBeUnread() bool {
	return p == partBehind || p == partMark || p == partOlder || p == partIdentityEnd
}

// wound is a way to damage files.
type wound int

// The wounds.
const (
	flipOne   wound = iota // one bit
	flipSome               // up to eight bits of a file
	flipTwo                // a bit in each of two files
	zeroBlock              // a sector reads as zeros
	cutShort               // a file lost its end
	wounds
)

// String names the wound in tables.
func (w wound) String() string {
	return [...]string{"one bit", "several bits of a file", "a bit in each of two files", "a sector of zeros",
		"a file cut short"}[w]
}

// edit is a change of one file.
type edit struct {
	file string
	part part
	at   int64
	bit  uint
	zero int64 // so many bytes become zeros
	cut  bool  // the file ends here
}

// damage is what a trial does to a disk.
type damage struct {
	wound wound
	part  part // of the first edit that counts
	edits []edit
}

// String tells what is done, so that a failure can be looked at.
func (d *damage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v (%s):", d.wound, d.part)
	for _, e := range d.edits {
		switch {
		case e.cut:
			fmt.Fprintf(&b, " %s ends at %d", e.file, e.at)
		case e.zero > 0:
			fmt.Fprintf(&b, " %s is zero from %d for %d", e.file, e.at, e.zero)
		default:
			fmt.Fprintf(&b, " %s bit %d of byte %d", e.file, e.bit, e.at)
		}
	}
	return b.String()
}

// flips returns the number of bits that were flipped.
func (d *damage) flips() int {
	if d.wound > flipTwo {
		return 0
	}
	return len(d.edits)
}

// matters reports whether at least one byte of the damage must be noticed, apart from edits that
// are excused.
func (d *damage) matters(excused func(edit) bool) bool {
	return slices.ContainsFunc(d.edits, func(e edit) bool {
		return !e.part.mayBeUnread() && (excused == nil || !excused(e))
	})
}

// names reports whether the damage is in a file.
func (d *damage) names(file string) bool {
	return slices.ContainsFunc(d.edits, func(e edit) bool { return e.file == file })
}

// inflict damages a disk, also for those who have the files open, but for cuts.
func (d *damage) inflict(disk *diskfault.Disk) {
	for _, e := range d.edits {
		switch {
		case e.cut:
			disk.SetContents(e.file, disk.Contents(e.file)[:e.at])
		case e.zero > 0:
			disk.Overwrite(e.file, e.at, make([]byte, e.zero))
		default:
			disk.Flip(e.file, e.at, e.bit)
		}
	}
}

// target is a file that may be damaged.
type target struct {
	name     string
	kind     part // partSegment, partSnapshot or partOlder for all of the file
	contents []byte
}

// targets returns the files below a directory, by kind. The reserve of disk space is none: nothing
// is in it.
func targets(disk *diskfault.Disk, dir string) map[part][]target {
	found := map[part][]target{}
	files := disk.Files()
	newest := newestSnapshots(files)
	for _, name := range files {
		if kind, ok := kindOf(name, newest); ok && strings.HasPrefix(name, dir+"/") {
			found[kind] = append(found[kind], target{name: name, kind: kind})
		}
	}
	return found
}

// newestSnapshots returns the newest snapshot of each directory; files are sorted, and so are the
// names of snapshots.
func newestSnapshots(files []string) map[string]string {
	newest := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, ".snap") {
			newest[path.Dir(name)] = name
		}
	}
	return newest
}

func kindOf(name string, newest map[string]string) (part, bool) {
	switch base := path.Base(name); {
	case strings.HasSuffix(base, ".wal"):
		return partSegment, true
	case strings.HasSuffix(base, ".snap") && newest[path.Dir(name)] == name:
		return partSnapshot, true
	case strings.HasSuffix(base, ".snap"):
		return partOlder, true
	case base == "high-water":
		return partMark, true
	case base == "stable":
		return partVote, true
	case base == "MANIFEST":
		return partManifest, true
	case base == "node.json":
		return partIdentity, true
	case path.Base(path.Dir(name)) == "log":
		return partList, true
	}
	return "", false
}

// partAt returns the part in which a byte of the file lies.
func (t *target) partAt(at int64) part {
	switch {
	case t.kind == partSegment && at >= t.writtenEnd():
		return partBehind
	case t.kind == partSnapshot && at < snapshotHead(t.contents):
		return partSnapshotHead
	case t.kind == partSnapshot && at >= int64(len(t.contents))-snapshotTail:
		return partSnapshotTail
	case t.kind == partIdentity && at == int64(len(t.contents))-1:
		return partIdentityEnd
	}
	return t.kind
}

// writtenEnd returns where the written part of a segment ends: frames are aligned to 8 bytes and
// none is all zero.
func (t *target) writtenEnd() int64 {
	written := len(bytes.TrimRight(t.contents, "\x00"))
	return int64(written+7) / 8 * 8
}

// draw decides on damage to some of the targets. With running, it leaves out damage that only
// happens to files that are not open.
func draw(r *rand.Rand, disk *diskfault.Disk, among map[part][]target, running bool) *damage {
	for {
		d := &damage{wound: drawWound(r, running)}
		files := 1
		if d.wound == flipTwo {
			files = 2
		}
		for range files {
			kinds := slices.Sorted(maps.Keys(among))
			kind := among[kinds[r.IntN(len(kinds))]]
			t := kind[r.IntN(len(kind))]
			t.contents = disk.Contents(t.name)
			if len(t.contents) == 0 || d.names(t.name) {
				continue
			}
			d.wounding(r, &t)
		}
		after := disk.Clone()
		d.inflict(after)
		if slices.ContainsFunc(d.edits, func(e edit) bool {
			return !bytes.Equal(disk.Contents(e.file), after.Contents(e.file))
		}) {
			return d
		}
	}
}

func drawWound(r *rand.Rand, running bool) wound {
	if r.IntN(100) < 80 {
		return flipOne
	}
	w := flipSome + wound(r.IntN(int(wounds-flipSome)))
	if running && w == cutShort {
		return flipOne
	}
	return w
}

// wounding adds what happens to one file.
func (d *damage) wounding(r *rand.Rand, t *target) {
	edits := 1
	if d.wound == flipSome {
		edits = 2 + r.IntN(7)
	}
	for range edits {
		e := edit{file: t.name, at: t.offset(r)}
		switch d.wound {
		case zeroBlock:
			e.at -= e.at % diskfault.SectorBytes
			e.zero = min(diskfault.SectorBytes, int64(len(t.contents))-e.at)
		case cutShort:
			e.cut = true
		default:
			e.bit = uint(r.IntN(8))
		}
		e.part = t.partAt(e.at)
		if slices.Contains(d.edits, e) { // twice would be never
			continue
		}
		d.edits = append(d.edits, e)
		if d.part == "" || d.part.mayBeUnread() {
			d.part = e.part
		}
	}
}

// offset draws a byte of the file.
func (t *target) offset(r *rand.Rand) int64 {
	size := int64(len(t.contents))
	// Little of a segment is written, and only what is written can be lost.
	if end := t.writtenEnd(); t.kind == partSegment && end > 0 && r.IntN(4) > 0 {
		return r.Int64N(end)
	}
	// The data of a snapshot is far longer than what describes it.
	if head := snapshotHead(t.contents); t.kind == partSnapshot && r.IntN(2) == 0 {
		if at := r.Int64N(head + snapshotTail); at < head {
			return at
		}
		return size - 1 - r.Int64N(snapshotTail)
	}
	return r.Int64N(size)
}
