package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

const (
	// backupBlockBytes is what a block holds before it is written; a record that is larger has a block of its own.
	backupBlockBytes = 256 << 10
	// backupRecordBytesMax bounds a record, so that a damaged length does not make a reader allocate without bound.
	backupRecordBytesMax = 16 << 20
	backupFrameBytes     = 4 + 8 + 4
)

// ErrNoBackup is wrapped by the error about a stream that does not begin as a backup does. It is an ErrDamaged.
var ErrNoBackup = fmt.Errorf("%w: this is no backup of Belfry", ErrDamaged)

// ErrIncomplete is wrapped by the error about a backup that ends before its trailer.
var ErrIncomplete = errors.New("incomplete")

// BackupWriter writes a backup. It must be used by one goroutine at a time.
type BackupWriter struct {
	w      io.Writer
	sum    hash.Hash
	room   []byte // a block's frame and content so far
	blocks uint64
	totals BackupTotals
	err    error
}

// NewBackupWriter begins a backup on w.
func NewBackupWriter(w io.Writer, h *BackupHeader) *BackupWriter {
	b := &BackupWriter{w: w, sum: sha256.New(), room: make([]byte, 12, backupBlockBytes+backupFrameBytes)}
	b.write(append([]byte(backupMagic), byte(max(FirstFormat, h.Format))))
	b.append(HeaderRecord(h))
	return b
}

// Append adds a record. It returns the first error of the writer below.
func (b *BackupWriter) Append(r BackupRecord) error {
	switch r.Kind {
	case BackupShard:
		s, err := r.Section()
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
func (t *BackupTotals) Count(kind BackupKind) {
	switch kind {
	case BackupQueue:
		t.Queues++
	case BackupJob:
		t.Jobs++
	case BackupTombstone:
		t.Tombstones++
	default:
	}
}

func (b *BackupWriter) append(r BackupRecord) {
	if len(b.room) > 12 && len(b.room)+len(r.Data) > backupBlockBytes {
		b.flush()
	}
	b.room = appendRecord(b.room, &r)
}

// flush writes the block at hand, if there is anything in it.
func (b *BackupWriter) flush() {
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

func (b *BackupWriter) write(p []byte) {
	if b.err != nil {
		return
	}
	b.sum.Write(p) // a hash never fails
	if _, err := b.w.Write(p); err != nil {
		b.err = fmt.Errorf("fsm: writing a backup: %w", err)
	}
}

// Totals returns what was appended so far.
func (b *BackupWriter) Totals() BackupTotals { return b.totals }

// Close writes the trailer; without it the backup is incomplete. It does not close the writer below.
func (b *BackupWriter) Close() error {
	b.flush()
	tail := binary.AppendUvarint(nil, b.totals.Shards)
	for _, v := range [...]uint64{b.totals.Queues, b.totals.Jobs, b.totals.Tombstones, b.totals.Serial} {
		tail = binary.AppendUvarint(tail, v)
	}
	b.append(BackupRecord{BackupTail, b.sum.Sum(tail)})
	b.flush()
	return b.err
}

// BackupReader reads a backup and checks it on the way. What it returned counts only once Next has returned io.EOF. Errors name the byte
// at which the block in question begins, and wrap ErrDamaged, ErrIncomplete, ErrVersion, or the error of the reader below.
type BackupReader struct {
	r        io.Reader
	sum      hash.Hash
	header   BackupHeader
	block    reader // what is left of the block at hand
	room     bytes.Buffer
	blocks   uint64
	at, next int64 // where the block at hand begins, and the one after it
	totals   BackupTotals
	section  BackupTotals // of the shard at hand
	shard    uint32
	inShard  bool
	done     bool
}

// NewBackupReader reads the header of a backup.
func NewBackupReader(r io.Reader) (*BackupReader, error) {
	b := &BackupReader{r: r, sum: sha256.New()}
	var magic [len(backupMagic) + 1]byte
	n, err := io.ReadFull(r, magic[:])
	if known := min(n, len(backupMagic)); string(magic[:known]) != backupMagic[:known] {
		return nil, b.fail(ErrNoBackup)
	}
	if err != nil {
		return nil, b.fail(short(err, int64(n)))
	}
	format := Format(magic[len(backupMagic)])
	if err := format.Readable(); err != nil {
		return nil, b.fail(fmt.Errorf("a backup: %w", err))
	}
	b.sum.Write(magic[:])
	b.next = int64(len(magic))
	first, err := b.record()
	if err != nil {
		return nil, err
	}
	if b.header, err = first.Header(); err != nil {
		return nil, b.fail(err)
	}
	b.header.Format = format
	return b, nil
}

// Header returns what the backup is of.
func (b *BackupReader) Header() BackupHeader { return b.header }

// Totals returns what was read so far; after io.EOF it is what the backup holds, and has been compared with the trailer.
func (b *BackupReader) Totals() BackupTotals { return b.totals }

// Offset returns how many bytes of the stream have been used.
func (b *BackupReader) Offset() int64 { return b.next }

func (b *BackupReader) fail(err error) error {
	return fmt.Errorf("fsm: reading a backup, at byte %d: %w", b.at, err)
}

// short is the error of a stream that ended after n bytes of something.
func short(err error, n int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends %d bytes later, before its trailer", ErrIncomplete, n)
	}
	return err
}

// Next returns the next record between header and trailer; it is valid until the next call. At the end of a sound backup the error is
// io.EOF itself.
func (b *BackupReader) Next() (BackupRecord, error) {
	if b.done {
		return BackupRecord{}, io.EOF
	}
	r, err := b.record()
	if err != nil {
		return BackupRecord{}, err
	}
	if err := b.follow(&r); err != nil {
		return BackupRecord{}, b.fail(err)
	}
	if r.Kind == BackupTail {
		b.done = true
		return BackupRecord{}, io.EOF
	}
	return r, nil
}

// record returns the next record of the stream.
func (b *BackupReader) record() (BackupRecord, error) {
	if len(b.block.b) == 0 {
		if err := b.readBlock(); err != nil {
			return BackupRecord{}, b.fail(err)
		}
	}
	r := b.block.record()
	if b.block.err != nil {
		return BackupRecord{}, b.fail(b.block.err)
	}
	return r, nil
}

// readBlock reads the next block and checks it.
func (b *BackupReader) readBlock() error {
	b.at = b.next
	before := b.sum.Sum(nil)
	var head [12]byte
	if n, err := io.ReadFull(b.r, head[:]); err != nil {
		return short(err, int64(n))
	}
	size := int64(binary.LittleEndian.Uint32(head[:]))
	if size == 0 || size > backupBlockBytes+backupRecordBytesMax {
		return fmt.Errorf("%w: a block of %d bytes", ErrDamaged, size)
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
		return fmt.Errorf("%w: the checksum of block %d is %08x, should be %08x", ErrDamaged, b.blocks, got, want)
	}
	if number := binary.LittleEndian.Uint64(head[4:]); number != b.blocks {
		return fmt.Errorf("%w: block %d where block %d belongs", ErrDamaged, number, b.blocks)
	}
	b.sum.Write(all)
	b.blocks++
	b.next = b.at + int64(len(all))
	b.block = reader{b: body[12:]}
	if BackupKind(body[12]) == BackupTail {
		return b.checkTail(before)
	}
	return nil
}

// checkTail compares the digest in the trailer with that of all before it.
func (b *BackupReader) checkTail(before []byte) error {
	look := b.block
	r := look.record()
	if look.err != nil || len(look.b) > 0 || len(r.Data) < sha256.Size {
		return fmt.Errorf("%w: the trailer", ErrDamaged)
	}
	if !bytes.Equal(r.Data[len(r.Data)-sha256.Size:], before) {
		return fmt.Errorf("%w: the digest in the trailer is another", ErrDamaged)
	}
	var end [1]byte
	if n, err := io.ReadFull(b.r, end[:]); n > 0 {
		return fmt.Errorf("%w: bytes after the end", ErrDamaged)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// follow checks that a record may come where it does, and counts it.
func (b *BackupReader) follow(r *BackupRecord) error {
	misplaced := fmt.Errorf("%w: a record of kind %d does not belong here", ErrDamaged, r.Kind)
	switch r.Kind {
	case BackupCatalog, BackupNamespace:
		if b.inShard || b.totals.Shards > 0 {
			return misplaced
		}
	case BackupShard:
		s, err := r.Section()
		if err != nil {
			return err
		}
		if b.inShard || s.Shard >= b.header.Shards || b.totals.Shards > 0 && s.Shard <= b.shard {
			return misplaced
		}
		b.inShard, b.shard, b.section = true, s.Shard, BackupTotals{}
		b.totals.Shards++
		b.totals.Serial = max(b.totals.Serial, s.Serial)
	case BackupQueue, BackupJob, BackupTombstone:
		if !b.inShard {
			return misplaced
		}
		b.section.Count(r.Kind)
		b.totals.Count(r.Kind)
	case BackupShardEnd:
		if !b.inShard {
			return misplaced
		}
		b.inShard = false
		return b.checkEnd(r)
	case BackupTail:
		return b.checkTotals(r)
	default:
		return fmt.Errorf("%w: a record of kind %d", ErrVersion, r.Kind)
	}
	return nil
}

func (b *BackupReader) checkEnd(r *BackupRecord) error {
	shard, s, err := r.parseEnd()
	if err != nil {
		return err
	}
	if shard != b.shard || s != b.section {
		return fmt.Errorf("%w: the end of shard %d counts %+v, there were %+v", ErrDamaged, b.shard, s, b.section)
	}
	return nil
}

func (b *BackupReader) checkTotals(r *BackupRecord) error {
	rd := reader{b: r.Data}
	t := BackupTotals{Shards: rd.uvarint(), Queues: rd.uvarint(), Jobs: rd.uvarint(), Tombstones: rd.uvarint(), Serial: rd.uvarint()}
	rd.nextBytes(sha256.Size)
	if err := rd.checkEnd(); err != nil {
		return err
	}
	if b.inShard || t != b.totals || t.Shards != uint64(b.header.Parts) {
		return fmt.Errorf("%w: the trailer counts %+v, there were %+v", ErrDamaged, t, b.totals)
	}
	return nil
}
