package snapshot

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/store"
)

// Magic begins the snapshot stream:
//
//	7 bytes  Magic
//	byte     Format
//	records  byte Kind, uvarint bytes of the rest, rest; the trailer last
//	4 bytes  CRC32C of all before, little-endian
//
// The record of a queue comes before those of its jobs and tombstones, which name it by its
// CreateSeq. What can be derived is not stored.
const Magic = "BELFSM\x00"

// Kind says what a record of the stream is.
type Kind byte

// The kinds of records are never reused.
const (
	KindScalars   Kind = 1  // uvarint index, clock, serial, queues created, low water
	KindQueue     Kind = 2  // see codec.AppendQueueRecord
	KindJob       Kind = 3  // uvarint CreateSeq, and what Snapshot.appendHeld writes
	KindTombstone Kind = 4  // uvarint CreateSeq, and what Snapshot.appendTomb writes
	KindFinished  Kind = 5  // uvarint serial, fence, expiry
	KindAnswer    Kind = 6  // see codec.AppendAnswer
	KindTrailer   Kind = 7  // uvarint number of records before; 8 bytes digest
	KindRestore   Kind = 8  // see codec.AppendRestoreMark; only if there is one
	KindSchedule  Kind = 9  // uvarint CreateSeq, and what codec.AppendSchedule writes; from format 4 on
	KindKey       Kind = 10 // uvarint CreateSeq, and what codec.AppendKeyMemory writes; from format 4 on
)

// Head is what a shard has besides its records.
type Head struct {
	Format   fsm.Format // of the stream
	Index    uint64     // of the last entry that the snapshot holds
	Scalars  fsm.Scalars
	Digest   uint64
	Restored fsm.RestoreMark
}

// Snapshot is the state of a shard at a moment. It may be read beside changes of the shard until
// the pin of its records ends.
type Snapshot struct {
	head    Head
	records *store.Pinned
}

// New returns the snapshot of a shard with this head and these records.
func New(head *Head, records *store.Pinned) *Snapshot { return &Snapshot{*head, records} }

// Digest is the machine's digest at the snapshot's index.
func (s *Snapshot) Digest() uint64 { return s.head.Digest }

// Index is the index of the last entry that the snapshot holds.
func (s *Snapshot) Index() uint64 { return s.head.Index }

// Restoring reports whether a restore was open.
func (s *Snapshot) Restoring() bool { return s.head.Restored.Open() }

// WriteTo writes the stream. It may run beside Apply, in another goroutine. It returns the first
// error of w.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	sum := crc32.New(castagnoli)
	out := &recordWriter{w: bufio.NewWriterSize(io.MultiWriter(w, sum), 256<<10), sum: sum}
	out.raw(append([]byte(Magic), byte(s.head.Format)))
	v := &s.head.Scalars
	for _, n := range [...]uint64{
		s.head.Index, uint64(v.Clock), v.Serial, v.QueuesCreated, uint64(v.LowWater),
	} {
		out.scratch = binary.AppendUvarint(out.scratch, n)
	}
	out.record(KindScalars)
	if s.head.Restored != (fsm.RestoreMark{}) {
		out.scratch = codec.AppendRestoreMark(out.scratch, &s.head.Restored)
		out.record(KindRestore)
	}
	s.writeQueues(out)
	s.writeKeys(out)
	s.writeSchedules(out)
	s.writeJobs(out)
	s.writeTombs(out)
	s.writeFinished(out)
	s.writeAnswers(out)
	out.scratch = binary.LittleEndian.AppendUint64(binary.AppendUvarint(out.scratch, out.records), s.head.Digest)
	out.record(KindTrailer)
	return out.finish(w)
}

func (s *Snapshot) writeQueues(out *recordWriter) {
	for q := range s.records.Queues() {
		out.scratch = codec.AppendQueueRecord(out.scratch, q)
		out.record(KindQueue)
	}
}

func (s *Snapshot) writeKeys(out *recordWriter) {
	for queue, k := range s.records.KeyMemories() {
		out.scratch = binary.AppendUvarint(out.scratch, s.records.Queue(queue).CreateSeq)
		out.scratch = codec.AppendKeyMemory(out.scratch, &k)
		out.record(KindKey)
	}
}

func (s *Snapshot) writeSchedules(out *recordWriter) {
	for queue, encoded := range s.records.Schedules() {
		out.scratch = binary.AppendUvarint(out.scratch, s.records.Queue(queue).CreateSeq)
		out.scratch = append(out.scratch, encoded...)
		out.record(KindSchedule)
	}
}

func (s *Snapshot) writeJobs(out *recordWriter) {
	for j := range s.records.Jobs() {
		out.scratch = binary.AppendUvarint(out.scratch, s.records.Queue(j.Queue).CreateSeq)
		out.scratch = s.appendHeld(out.scratch, j)
		out.record(KindJob)
	}
}

// appendHeld appends: uvarint serial, due; bytes state, priority, flags; if codec.HeldHasLease:
// uvarint fence, until, ttr, died, attempt, redrives, text last error; if codec.HeldHasFields: see
// codec.AppendHeldFields; if codec.HeldHasID: 16 bytes content, text id; uvarint created; the
// options, headers and body of the payload.
func (s *Snapshot) appendHeld(dst []byte, j *store.Slot) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, j.Serial), uint64(j.Due))
	b := s.records.Payload(j)
	fields := s.fields(j, b)
	dst = append(dst, byte(j.State()), codec.Narrow(s.records.Priority(j)), byte(heldFlags(j, b, &fields)))
	if j.HasLease() {
		l := s.records.Lease(j)
		note := s.records.Note(l)
		for _, v := range [...]uint64{
			l.Fence, uint64(l.Until), uint64(l.TTR), uint64(l.Died), uint64(l.Attempt), uint64(l.Redrives),
		} {
			dst = binary.AppendUvarint(dst, v)
		}
		dst = codec.AppendText(dst, string(note.LastError))
	}
	if fields.Any() {
		dst = codec.AppendHeldFields(dst, &fields)
	}
	if j.HasID() {
		content := b.Content()
		dst = codec.AppendText(append(dst, content[:]...), string(b.ID()))
	}
	dst = binary.AppendUvarint(dst, uint64(b.Created()))
	return append(dst, b.Options()...)
}

// fields returns the tagged fields of the record of a job.
func (s *Snapshot) fields(j *store.Slot, b store.Payload) (f codec.HeldFields) {
	key, version := b.Key()
	f.Key, f.Version, f.FIFO = string(key), version, j.IsFIFO()
	if p := s.records.Priority(j); fsm.IsWide(p) {
		f.Priority = p
	}
	if j.HasLease() {
		l := s.records.Lease(j)
		f.Leased, f.Client, f.Attempts = l.Leased, string(s.records.Client(l)), s.records.Note(l).Attempts
		f.Place, f.Next, f.Uses = s.records.Place(l), s.records.Next(l), s.records.Uses(l)
	}
	return f
}

func heldFlags(j *store.Slot, b store.Payload, f *codec.HeldFields) (flags codec.HeldFlags) {
	if j.HasID() {
		flags |= codec.HeldHasID
	}
	if j.HasTTL() {
		flags |= codec.HeldHasTTL
	}
	if b.HasHeaders() {
		flags |= codec.HeldHasHeaders
	}
	if j.HasLease() {
		flags |= codec.HeldHasLease
	}
	if f.Any() {
		flags |= codec.HeldHasFields
	}
	return flags
}

func (s *Snapshot) writeTombs(out *recordWriter) {
	for t := range s.records.Tombstones() {
		out.scratch = binary.AppendUvarint(out.scratch, s.records.TombQueue(t).CreateSeq)
		out.scratch = s.appendTomb(out.scratch, t)
		out.record(KindTombstone)
	}
}

// appendTomb appends: uvarint serial, first due, ended; byte state; text id; 16 bytes content; the
// bytes of the key.
func (s *Snapshot) appendTomb(dst []byte, t *store.Tomb) []byte {
	b := s.records.TombPayload(t)
	for _, v := range [...]uint64{t.Serial, uint64(t.FirstDue), uint64(t.Ended)} {
		dst = binary.AppendUvarint(dst, v)
	}
	content := b.Content()
	dst = append(codec.AppendText(append(dst, byte(t.State)), string(b.ID())), content[:]...)
	key, _ := b.Key()
	return append(dst, key...)
}

func (s *Snapshot) writeFinished(out *recordWriter) {
	for _, l := range s.records.Finished() {
		for _, v := range [...]uint64{l.Serial, l.Fence, uint64(l.Expiry)} {
			out.scratch = binary.AppendUvarint(out.scratch, v)
		}
		out.record(KindFinished)
	}
}

func (s *Snapshot) writeAnswers(out *recordWriter) {
	for encoded := range s.records.Answers() {
		out.scratch = append(out.scratch, encoded...)
		out.record(KindAnswer)
	}
}

// recordWriter frames records and counts bytes. After the first error it does nothing.
type recordWriter struct {
	w       *bufio.Writer
	sum     hash.Hash32
	scratch []byte // what follows the length of the current record
	records uint64
	n       int64
	err     error
}

func (o *recordWriter) raw(b []byte) {
	if o.err == nil {
		_, o.err = o.w.Write(b)
		o.n += int64(len(b))
	}
}

// record writes scratch as a record of the given kind.
func (o *recordWriter) record(kind Kind) {
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = byte(kind)
	o.raw(head[:1+binary.PutUvarint(head[1:], uint64(len(o.scratch)))])
	o.raw(o.scratch)
	o.scratch = o.scratch[:0]
	o.records++
}

func (o *recordWriter) finish(w io.Writer) (int64, error) {
	if o.err == nil {
		o.err = o.w.Flush()
	}
	if o.err == nil {
		var n int
		n, o.err = w.Write(binary.LittleEndian.AppendUint32(nil, o.sum.Sum32()))
		o.n += int64(n)
	}
	if o.err != nil {
		return o.n, fmt.Errorf("fsm: writing a snapshot: %w", o.err)
	}
	return o.n, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
