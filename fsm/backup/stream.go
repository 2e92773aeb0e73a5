package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

const (
	// blockBytes is what a block holds before it is written; a record that is larger has a block of
	// its own.
	blockBytes = 256 << 10
	// recordBytesMax bounds a record, so that a damaged length does not make a reader allocate without
	// bound.
	recordBytesMax = 16 << 20
	frameBytes     = 4 + 8 + 4
)

// ErrNoBackup is wrapped by the error about a stream that does not begin as a backup does. It is an
// ErrDamaged.
var ErrNoBackup = fmt.Errorf("%w: this is no backup of Belfry", fsm.ErrDamaged)

// ErrIncomplete is wrapped by the error about a backup that ends before its trailer.
var ErrIncomplete = errors.New("incomplete")

// Writer writes a backup. It must be used by one goroutine at a time.
type Writer struct {
	w      io.Writer
	sum    hash.Hash
	room   []byte // a block's frame and content so far
	blocks uint64
	totals Totals
	err    error
}

// NewWriter begins a backup on w.
func NewWriter(w io.Writer, h *Header) *Writer {
	b := &Writer{w: w, sum: sha256.New(), room: make([]byte, 12, blockBytes+frameBytes)}
	b.write(append([]byte(magic), byte(max(fsm.FirstFormat, h.Format))))
	b.append(HeaderRecord(h))
	return b
}

// Append adds a record. It returns the first error of the writer below.
func (b *Writer) Append(r fsm.BackupRecord) error {
	switch r.Kind {
	case fsm.BackupShard:
		s, err := ParseSection(&r)
		if err != nil {
			return err
		}
		b.totals.Shards++
		b.totals.Serial = max(b.totals.Serial, s.Serial)
	default:
		b.totals.Count(r.Kind)
	}
	b.append(r)
	return b.err
}

// Count counts a record of the given kind.
func (t *Totals) Count(kind fsm.BackupKind) {
	switch kind {
	case fsm.BackupQueue:
		t.Queues++
	case fsm.BackupJob:
		t.Jobs++
	case fsm.BackupTombstone:
		t.Tombstones++
	case fsm.BackupKey:
		t.Keys++
	case fsm.BackupSchedule:
		t.Schedules++
	default:
	}
}

func (b *Writer) append(r fsm.BackupRecord) {
	if len(b.room) > 12 && len(b.room)+len(r.Data) > blockBytes {
		b.flush()
	}
	b.room = codec.AppendRecord(b.room, &r)
}

// flush writes the block at hand, if there is anything in it.
func (b *Writer) flush() {
	if len(b.room) == 12 {
		return
	}
	binary.LittleEndian.PutUint32(b.room, uint32(len(b.room)-12)) //nolint:gosec // bounded by the sizes of records
	binary.LittleEndian.PutUint64(b.room[4:], b.blocks)
	b.room = binary.LittleEndian.AppendUint32(b.room, crc32.Checksum(b.room, castagnoli))
	b.write(b.room)
	b.room = b.room[:12]
	b.blocks++
}

func (b *Writer) write(p []byte) {
	if b.err != nil {
		return
	}
	b.sum.Write(p) // a hash never fails
	if _, err := b.w.Write(p); err != nil {
		b.err = fmt.Errorf("fsm: writing a backup: %w", err)
	}
}

// Totals returns what was appended so far.
func (b *Writer) Totals() Totals { return b.totals }

// Close writes the trailer; without it the backup is incomplete. It does not close the writer
// below.
func (b *Writer) Close() error {
	b.flush()
	tail := binary.AppendUvarint(nil, b.totals.Shards)
	for _, v := range [...]uint64{b.totals.Queues, b.totals.Jobs, b.totals.Tombstones, b.totals.Serial} {
		tail = binary.AppendUvarint(tail, v)
	}
	tail = b.totals.appendOthers(tail)
	b.append(fsm.BackupRecord{Kind: fsm.BackupTail, Data: b.sum.Sum(tail)})
	b.flush()
	return b.err
}

// Reader reads a backup and checks it on the way. What it returned counts only once Next has
// returned io.EOF. Errors name the byte at which the block in question begins, and wrap ErrDamaged,
// ErrIncomplete, ErrVersion, or the error of the reader below.
type Reader struct {
	r        io.Reader
	sum      hash.Hash
	header   Header
	block    codec.Reader // what is left of the block at hand
	room     bytes.Buffer
	blocks   uint64
	at, next int64 // where the block at hand begins, and the one after it
	totals   Totals
	section  Totals // of the shard at hand
	shard    uint32
	inShard  bool
	done     bool
}

// NewReader reads the header of a backup.
func NewReader(r io.Reader) (*Reader, error) {
	b := &Reader{r: r, sum: sha256.New()}
	var head [len(magic) + 1]byte
	n, err := io.ReadFull(r, head[:])
	if known := min(n, len(magic)); string(head[:known]) != magic[:known] {
		return nil, b.fail(ErrNoBackup)
	}
	if err != nil {
		return nil, b.fail(short(err, int64(n)))
	}
	format := fsm.Format(head[len(magic)])
	if err := format.Readable(); err != nil {
		return nil, b.fail(fmt.Errorf("a backup: %w", err))
	}
	b.sum.Write(head[:])
	b.next = int64(len(head))
	first, err := b.record()
	if err != nil {
		return nil, err
	}
	if b.header, err = ParseHeader(&first); err != nil {
		return nil, b.fail(err)
	}
	b.header.Format = format
	return b, nil
}

// Header returns what the backup is of.
func (b *Reader) Header() Header { return b.header }

// Totals returns what was read so far; after io.EOF it is what the backup holds, and has been
// compared with the trailer.
func (b *Reader) Totals() Totals { return b.totals }

// Offset returns how many bytes of the stream have been used.
func (b *Reader) Offset() int64 { return b.next }

func (b *Reader) fail(err error) error {
	return fmt.Errorf("fsm: reading a backup, at byte %d: %w", b.at, err)
}

// short is the error of a stream that ended after n bytes of something.
func short(err error, n int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends %d bytes later, before its trailer", ErrIncomplete, n)
	}
	return err
}

// Next returns the next record between header and trailer; it is valid until the next call. At the
// end of a sound backup the error is io.EOF itself.
func (b *Reader) Next() (fsm.BackupRecord, error) {
	if b.done {
		return fsm.BackupRecord{}, io.EOF
	}
	r, err := b.record()
	if err != nil {
		return fsm.BackupRecord{}, err
	}
	if err := b.follow(&r); err != nil {
		return fsm.BackupRecord{}, b.fail(err)
	}
	if r.Kind == fsm.BackupTail {
		b.done = true
		return fsm.BackupRecord{}, io.EOF
	}
	return r, nil
}

// record returns the next record of the stream.
func (b *Reader) record() (fsm.BackupRecord, error) {
	if b.block.Left() == 0 {
		if err := b.readBlock(); err != nil {
			return fsm.BackupRecord{}, b.fail(err)
		}
	}
	r := b.block.Record()
	if b.block.Failed() != nil {
		return fsm.BackupRecord{}, b.fail(b.block.Failed())
	}
	return r, nil
}

// readBlock reads the next block and checks it.
func (b *Reader) readBlock() error {
	b.at = b.next
	before := b.sum.Sum(nil)
	var head [12]byte
	if n, err := io.ReadFull(b.r, head[:]); err != nil {
		return short(err, int64(n))
	}
	size := int64(binary.LittleEndian.Uint32(head[:]))
	if size == 0 || size > blockBytes+recordBytesMax {
		return fmt.Errorf("%w: a block of %d bytes", fsm.ErrDamaged, size)
	}
	b.room.Reset()
	b.room.Write(head[:])
	// A damaged length must not allocate what the stream does not have.
	if n, err := io.CopyN(&b.room, b.r, size+4); err != nil {
		return short(err, 12+n)
	}
	all := b.room.Bytes()
	body, tail := all[:12+size], all[12+size:]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(tail); got != want {
		return fmt.Errorf("%w: the checksum of block %d is %08x, should be %08x", fsm.ErrDamaged, b.blocks, got, want)
	}
	if number := binary.LittleEndian.Uint64(head[4:]); number != b.blocks {
		return fmt.Errorf("%w: block %d where block %d belongs", fsm.ErrDamaged, number, b.blocks)
	}
	b.sum.Write(all)
	b.blocks++
	b.next = b.at + int64(len(all))
	b.block = codec.PlainReader(body[12:])
	if fsm.BackupKind(body[12]) == fsm.BackupTail {
		return b.checkTail(before)
	}
	return nil
}

// checkTail compares the digest in the trailer with that of all before it.
func (b *Reader) checkTail(before []byte) error {
	look := b.block
	r := look.Record()
	if look.Failed() != nil || look.Left() > 0 || len(r.Data) < sha256.Size {
		return fmt.Errorf("%w: the trailer", fsm.ErrDamaged)
	}
	if !bytes.Equal(r.Data[len(r.Data)-sha256.Size:], before) {
		return fmt.Errorf("%w: the digest in the trailer is another", fsm.ErrDamaged)
	}
	var end [1]byte
	if n, err := io.ReadFull(b.r, end[:]); n > 0 {
		return fmt.Errorf("%w: bytes after the end", fsm.ErrDamaged)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// follow checks that a record may come where it does, and counts it.
func (b *Reader) follow(r *fsm.BackupRecord) error {
	misplaced := fmt.Errorf("%w: a record of kind %d does not belong here", fsm.ErrDamaged, r.Kind)
	switch r.Kind {
	case fsm.BackupCatalog, fsm.BackupNamespace:
		if b.inShard || b.totals.Shards > 0 {
			return misplaced
		}
	case fsm.BackupShard:
		s, err := ParseSection(r)
		if err != nil {
			return err
		}
		if b.inShard || s.Shard >= b.header.Shards || b.totals.Shards > 0 && s.Shard <= b.shard {
			return misplaced
		}
		b.inShard, b.shard, b.section = true, s.Shard, Totals{}
		b.totals.Shards++
		b.totals.Serial = max(b.totals.Serial, s.Serial)
	case fsm.BackupQueue, fsm.BackupKey, fsm.BackupSchedule, fsm.BackupJob, fsm.BackupTombstone:
		later := r.Kind == fsm.BackupKey || r.Kind == fsm.BackupSchedule
		if !b.inShard || later && b.header.Format < fsm.KeysFormat {
			return misplaced
		}
		b.section.Count(r.Kind)
		b.totals.Count(r.Kind)
	case fsm.BackupShardEnd:
		if !b.inShard {
			return misplaced
		}
		b.inShard = false
		return b.checkEnd(r)
	case fsm.BackupTail:
		return b.checkTotals(r)
	default:
		return fmt.Errorf("%w: a record of kind %d", fsm.ErrVersion, r.Kind)
	}
	return nil
}

func (b *Reader) checkEnd(r *fsm.BackupRecord) error {
	shard, s, err := parseEnd(r)
	if err != nil {
		return err
	}
	if shard != b.shard || s != b.section {
		return fmt.Errorf("%w: the end of shard %d counts %+v, there were %+v", fsm.ErrDamaged, b.shard, s, b.section)
	}
	return nil
}

func (b *Reader) checkTotals(r *fsm.BackupRecord) error {
	rd := codec.PlainReader(r.Data)
	t := Totals{
		Shards: rd.Uvarint(), Queues: rd.Uvarint(), Jobs: rd.Uvarint(), Tombstones: rd.Uvarint(), Serial: rd.Uvarint(),
	}
	t.readOthers(&rd, sha256.Size)
	rd.NextBytes(sha256.Size)
	if err := rd.CheckEnd(); err != nil {
		return err
	}
	if b.inShard || t != b.totals || t.Shards != uint64(b.header.Parts) {
		return fmt.Errorf("%w: the trailer counts %+v, there were %+v", fsm.ErrDamaged, t, b.totals)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
