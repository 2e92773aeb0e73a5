package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// The frames of a raft-wal segment file, version 0 (see its package segment), all aligned to 8 bytes:
//
//	header  | magic u32 | 0 0 0 | version u8 | base u64 | id u64 | codec u64 |
//	frame   | type u8 | 0 0 0 | length u32, or CRC32C for a commit | payload, padded with zeros |
//
// A batch is its entries, an index if the batch fills the segment, and a commit whose sum covers
// the batch (the first also the header).
const (
	walMagic        = 0x58eb6b0d
	walHeaderBytes  = 32
	walFrameBytes   = 8
	walFrameEntry   = 1
	walFrameIndex   = 2
	walFrameCommit  = 3
	walEntryMax     = 64 << 20
	walReadBytes    = 1 << 20
	evidenceMinimum = walFrameBytes + entryHeaderBytes
)

// segmentScan is the result of reading a segment from its start up to its last intact batch.
type segmentScan struct {
	name       string
	size       int64
	end        int64  // offset just after the last intact batch, 0 if there is none
	sure       int64  // offset up to which the batches are known to be durable
	next       uint64 // index after the last intact entry
	indexStart int64  // offset of the index block's first element, 0 if not sealed
	firstTerm  uint64 // term of the first entry
	lastTerm   uint64 // term of the last entry that a tail truncation left
	stop       string // why reading stopped at end; empty if only zeros follow
}

type segmentReader struct {
	codec entryCodec
	file  disk.File
	info  types.SegmentInfo
	mark  uint64 // last entry known durable
	scan  segmentScan

	at   int64  // next frame
	term uint64 // of the last intact entry, truncated or not

	window   []byte
	windowAt int64
	buf      []byte // the frame read last
}

// scanSegment reads and verifies a segment. The error is for failures to read; damage is in the
// result.
func scanSegment(cfg engineConfig, info types.SegmentInfo) (s segmentScan, err error) {
	name := filepath.Join(cfg.dir, segment.FileName(info))
	f, err := cfg.fsys.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return segmentScan{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return segmentScan{}, err
	}
	r := &segmentReader{codec: cfg.codec, file: f, info: info, mark: cfg.mark.log, at: walHeaderBytes}
	r.scan = segmentScan{name: name, size: size, next: info.BaseIndex}
	for r.scan.indexStart == 0 {
		more, err := r.batch()
		if err != nil {
			return segmentScan{}, err
		}
		if !more {
			break
		}
	}
	if r.scan.indexStart == 0 && r.scan.stop == "" {
		r.scan.stop, err = r.restNotZero()
	}
	return r.scan, err
}

// batch reads up to the next commit; it returns false at the end of the intact batches.
func (r *segmentReader) batch() (bool, error) {
	start := r.scan.end
	next, term, sum := r.scan.next, r.term, uint32(0)
	first, kept := r.scan.firstTerm, r.scan.lastTerm
	if start == 0 {
		header := make([]byte, walHeaderBytes)
		if err := r.read(header, 0); err != nil {
			return false, ignoreEOF(err)
		}
		sum = disk.SumBytes(0, header)
		if why := r.wrongHeader(header); why != "" && !allZero(header) {
			r.scan.stop = why
			return false, nil
		}
	}
	indexStart := int64(0)
	for {
		typ, payload, frame, why, err := r.frame()
		if err != nil {
			return false, err
		}
		if why != "" || typ == 0 {
			if r.scan.stop = why; why == "" && next > r.scan.next {
				r.scan.stop = "a batch without its end"
			}
			return false, nil
		}
		if typ == walFrameCommit {
			if got := binary.LittleEndian.Uint32(frame[4:8]); got != sum {
				r.scan.stop = fmt.Sprintf("batch checksum %08x, computed %08x", got, sum)
				return false, nil
			}
			r.term, r.scan.end, r.scan.next, r.scan.indexStart = term, r.at, next, indexStart
			r.scan.firstTerm, r.scan.lastTerm = first, kept
			if next-1 <= r.mark {
				r.scan.sure = r.at
			}
			return true, nil
		}
		sum = disk.SumBytes(sum, frame)
		if typ == walFrameIndex {
			indexStart = r.at - int64(len(frame)) + walFrameBytes
			continue
		}
		if why := r.codec.misplaced(payload, next, term); why != "" {
			r.scan.stop = why
			return false, nil
		}
		term = binary.LittleEndian.Uint64(payload[14:])
		if next == r.info.BaseIndex {
			first = term
		}
		if r.info.MaxIndex == 0 || next <= r.info.MaxIndex {
			kept = term
		}
		next++
	}
}

// frame reads one frame and steps over it; the slices are valid until the next call. typ 0 is the
// end; why says what is wrong with the frame.
func (r *segmentReader) frame() (typ byte, payload, frame []byte, why string, err error) {
	var first [walFrameBytes]byte
	head := first[:]
	if err := r.read(head, r.at); err != nil {
		return 0, nil, nil, "", ignoreEOF(err)
	}
	if allZero(head) {
		return 0, nil, nil, "", nil
	}
	length := int64(binary.LittleEndian.Uint32(head[4:]))
	switch {
	case head[0] == walFrameCommit && allZero(head[1:4]):
		length = 0
	case head[0] != walFrameEntry && head[0] != walFrameIndex, !allZero(head[1:4]),
		length > walEntryMax, r.at+walFrameBytes+length > r.scan.size:
		return 0, nil, nil, fmt.Sprintf("frame header % x is none", head), nil
	}
	size := walFrameBytes + (length+7)/8*8
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	frame = r.buf[:size]
	if err := r.read(frame, r.at); err != nil {
		return 0, nil, nil, "frame is cut off", ignoreEOF(err)
	}
	r.at += int64(len(frame))
	return head[0], frame[walFrameBytes : walFrameBytes+length], frame, "", nil
}

// read fills b from a moving window on the file; it returns io.EOF if the file ends before.
func (r *segmentReader) read(b []byte, at int64) error {
	if at < r.windowAt || at+int64(len(b)) > r.windowAt+int64(len(r.window)) {
		size := min(max(int64(len(b)), walReadBytes), max(r.scan.size-at, 0))
		if int64(cap(r.window)) < size {
			r.window = make([]byte, size)
		}
		r.window, r.windowAt = r.window[:size], at
		if n, err := r.file.ReadAt(r.window, at); int64(n) < size {
			r.window = r.window[:n]
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("reading %s at %d: %w", r.scan.name, at, err)
			}
		}
	}
	if n := copy(b, r.window[min(at-r.windowAt, int64(len(r.window))):]); n < len(b) {
		return io.EOF
	}
	return nil
}

func (r *segmentReader) wrongHeader(h []byte) string {
	want := make([]byte, walHeaderBytes)
	binary.LittleEndian.PutUint32(want, walMagic)
	binary.LittleEndian.PutUint64(want[8:], r.info.BaseIndex)
	binary.LittleEndian.PutUint64(want[16:], r.info.ID)
	binary.LittleEndian.PutUint64(want[24:], entryCodecID)
	if !bytes.Equal(h, want) {
		return fmt.Sprintf("file header % x, expected % x", h, want)
	}
	return ""
}

// restNotZero looks for anything but zeros after the end: a torn write, or rot.
func (r *segmentReader) restNotZero() (string, error) {
	buf := make([]byte, walReadBytes)
	for at := r.scan.end; at < r.scan.size; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), r.scan.size-at)]
		if err := r.read(buf, at); err != nil {
			return "", err
		}
		if !allZero(buf) {
			return "bytes after the last batch", nil
		}
	}
	return "", nil
}

// misplaced says why an entry's bytes are not entry next with a term of at least term; empty if
// they are.
func (c entryCodec) misplaced(b []byte, next, term uint64) string {
	if err := c.check(b); err != nil {
		return err.Error()
	}
	index, got := binary.LittleEndian.Uint64(b[6:]), binary.LittleEndian.Uint64(b[14:])
	if index != next || got < term {
		return fmt.Sprintf("entry %d of term %d where entry %d of term %d or later belongs", index, got, next, term)
	}
	return ""
}

// laterBatch searches after a scan's end for an entry that begins a batch after a commit. Batches
// are written one at a time, each after the sync of the one before, so such an entry proves that
// what precedes it was durable. The salted sum keeps a client from placing such an entry in a body.
// A batch that is torn at its beginning may leave entries too. They follow an entry, and the last
// bytes of that may look like a commit.
func laterBatch(fsys disk.FS, codec entryCodec, s segmentScan) (found bool, err error) {
	f, err := fsys.OpenFile(s.name, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	rest := make([]byte, s.size-s.end)
	if n, err := f.ReadAt(rest, s.end); n < len(rest) {
		return false, fmt.Errorf("reading %s: %w", s.name, err)
	}
	entryEnd := 0 // of the last entry that was found
	for at := 0; at+evidenceMinimum <= len(rest); at += walFrameBytes {
		if rest[at] != walFrameEntry || !allZero(rest[at+1:at+4]) {
			continue
		}
		length := int(binary.LittleEndian.Uint32(rest[at+4:]))
		end := at + walFrameBytes + length
		if end > len(rest) || codec.check(rest[at+walFrameBytes:end]) != nil {
			continue
		}
		if at > entryEnd && isCommit(rest[at-walFrameBytes:at]) {
			return true, nil
		}
		entryEnd = (end + walFrameBytes - 1) / walFrameBytes * walFrameBytes
	}
	return false, nil
}

// isCommit reports whether a frame header is that of a commit. The sum of a batch is 0 once in four
// billion.
func isCommit(head []byte) bool {
	return head[0] == walFrameCommit && allZero(head[1:4]) && !allZero(head[4:])
}

// settleTail makes a segment durable as it was read, and zeros the torn bytes after it. Torn bytes
// would be read again after later, shorter batches, and a torn index block would make the library
// refuse every append. Batches that are not known to be durable are written again: the process
// before may have been killed between a write and its sync, or ended because that sync failed.
// After a failed sync, the kernel calls pages clean that never reached the disk.
func settleTail(fsys disk.FS, s segmentScan) (err error) {
	f, err := fsys.OpenFile(s.name, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := make([]byte, min(walReadBytes, s.end-s.sure))
	for at := s.sure; at < s.end; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), s.end-at)]
		if n, err := f.ReadAt(buf, at); n < len(buf) {
			return fmt.Errorf("reading the end of %s again: %w", s.name, err)
		}
		if _, err := f.WriteAt(buf, at); err != nil {
			return fmt.Errorf("writing the end of %s again: %w", s.name, err)
		}
	}
	zeros := make([]byte, walReadBytes)
	for at := s.end; s.stop != "" && at < s.size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), s.size-at)], at); err != nil {
			return fmt.Errorf("clearing the torn end of %s: %w", s.name, err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("syncing %s: %w", s.name, err)
	}
	return nil
}

// allZero reports whether b has only zeros. It compares b with itself moved by one, which runs at
// the speed of memory.
func allZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[:len(b)-1], b[1:])
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
