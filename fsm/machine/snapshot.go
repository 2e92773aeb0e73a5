package machine

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"hash"
	"hash/crc32"
	"io"
	"slices"
)

// The snapshot stream:
//
//	7 bytes  snapshotMagic
//	byte     Format
//	records  byte recordKind, uvarint bytes of the rest, rest; the trailer last
//	4 bytes  CRC32C of all before, little-endian
//
// The record of a queue comes before those of its jobs and tombstones, which name it by its
// CreateSeq. What can be derived is not stored.
const snapshotMagic = "BELFSM\x00"

type recordKind byte

// The kinds of records are never reused.
const (
	recordScalars   recordKind = 1 // uvarint index, clock, serial, queues created, low water
	recordQueue     recordKind = 2 // see codec.AppendQueueRecord
	recordJob       recordKind = 3 // see Snapshot.appendJob
	recordTombstone recordKind = 4 // uvarint CreateSeq, and what Snapshot.appendTomb writes
	recordFinished  recordKind = 5 // uvarint serial, fence, expiry
	recordAnswer    recordKind = 6 // see codec.AppendAnswer
	recordTrailer   recordKind = 7 // uvarint number of records before; 8 bytes digest
	recordRestore   recordKind = 8 // see codec.AppendRestoreMark; only if there is one
)

// Snapshot is the state of a machine when the snapshot was taken. It pins the machine's pages until
// its release.
type Snapshot struct {
	format  fsm.Format
	applied uint64
	scalars fsm.Scalars
	digest  uint64

	queues   [][]fsm.QueueRecord
	slots    [][]slot
	leases   [][]lease
	tombs    [][]tomb
	blobs    [][]byte
	finished [][]finishedLease
	answers  [][]answer
	order    []answerRef
	restored fsm.RestoreMark
	shifts   struct{ queues, leases, answers uint8 }
}

// Snapshot returns the present state, in time proportional to the number of pages. The caller must
// call Release when it has read it.
func (m *Machine) Snapshot() *Snapshot {
	s := &Snapshot{
		format: m.format, applied: m.applied, scalars: m.scalars, digest: m.Digest(),
		queues: m.queues.records.pin(), slots: m.store.slots.pin(), leases: m.store.leases.pin(),
		tombs: m.store.tombs.pin(), blobs: m.store.blobs.pin(), finished: m.finished.records.pin(),
		answers: m.answers.records.pin(), order: m.answers.order[m.answers.head:],
		restored: m.restored,
	}
	s.shifts.queues, s.shifts.leases = m.queues.records.shift, m.store.leases.shift
	s.shifts.answers = m.answers.records.shift
	return s
}

// Release unpins the pages of a snapshot, which must not be read afterwards. Like Apply, it must
// not run beside any other method.
func (m *Machine) Release(*Snapshot) {
	m.queues.records.unpin()
	m.store.slots.unpin()
	m.store.leases.unpin()
	m.store.tombs.unpin()
	m.finished.records.unpin()
	m.answers.records.unpin()
	m.store.blobs.unpin()
}

// Digest is the machine's digest at the snapshot's index.
func (s *Snapshot) Digest() uint64 { return s.digest }

// Index is the index of the last entry that the snapshot holds.
func (s *Snapshot) Index() uint64 { return s.applied }

// Restoring reports whether a restore was open.
func (s *Snapshot) Restoring() bool { return s.restored.Open() }

// WriteTo writes the stream. It may run beside Apply, in another goroutine. It returns the first
// error of w.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	sum := crc32.New(castagnoli)
	out := &recordWriter{w: bufio.NewWriterSize(io.MultiWriter(w, sum), 256<<10), sum: sum}
	out.raw(append([]byte(snapshotMagic), byte(s.format)))
	for _, v := range [...]uint64{
		s.applied, uint64(s.scalars.Clock), s.scalars.Serial, s.scalars.QueuesCreated, uint64(s.scalars.LowWater),
	} {
		out.scratch = binary.AppendUvarint(out.scratch, v)
	}
	out.record(recordScalars)
	if s.restored != (fsm.RestoreMark{}) {
		out.scratch = codec.AppendRestoreMark(out.scratch, &s.restored)
		out.record(recordRestore)
	}
	s.writeQueues(out)
	s.writeJobs(out)
	s.writeTombs(out)
	s.writeFinished(out)
	s.writeAnswers(out)
	out.scratch = binary.LittleEndian.AppendUint64(binary.AppendUvarint(out.scratch, out.records), s.digest)
	out.record(recordTrailer)
	return out.finish(w)
}

// queue returns the record of a queue.
func (s *Snapshot) queue(index uint32) *fsm.QueueRecord {
	return &s.queues[index>>s.shifts.queues][index&(1<<s.shifts.queues-1)]
}

func (s *Snapshot) blob(ref blobRef) []byte { return s.blobs[ref.page()][ref.offset():] }

func (s *Snapshot) writeQueues(out *recordWriter) {
	for _, page := range s.queues {
		for i := range page {
			if page[i].CreateSeq != 0 {
				out.scratch = codec.AppendQueueRecord(out.scratch, &page[i])
				out.record(recordQueue)
			}
		}
	}
}

func (s *Snapshot) writeJobs(out *recordWriter) {
	for _, page := range s.slots {
		for i := range page {
			if page[i].serial != 0 {
				out.scratch = s.appendJob(out.scratch, &page[i])
				out.record(recordJob)
			}
		}
	}
}

// appendJob appends: uvarint CreateSeq, and what appendHeld appends.
func (s *Snapshot) appendJob(dst []byte, j *slot) []byte {
	return s.appendHeld(binary.AppendUvarint(dst, s.queue(j.queue).CreateSeq), j)
}

// appendHeld appends: uvarint serial, due; bytes state, priority, flags; if heldHasLease: uvarint
// fence, until, ttr, died, attempt, redrives, text last error; if slotHasID: 16 bytes content, text
// id; uvarint created; the options, headers and body of the payload.
func (s *Snapshot) appendHeld(dst []byte, j *slot) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, j.serial), uint64(j.due))
	b := openPayload(s.blob(j.blob()))
	flags := codec.HeldFlags(j.flags & (slotHasID | slotHasTTL))
	if b.parts()&payloadHasHeaders != 0 {
		flags |= codec.HeldHasHeaders
	}
	if j.lease != 0 {
		flags |= codec.HeldHasLease
	}
	dst = append(dst, byte(j.state()), byte(j.priority), byte(flags))
	if j.lease != 0 {
		l := &s.leases[j.lease>>s.shifts.leases][j.lease&(1<<s.shifts.leases-1)]
		for _, v := range [...]uint64{
			l.fence, uint64(l.until), uint64(l.ttr), uint64(l.died), uint64(l.attempt), uint64(l.redrives),
		} {
			dst = binary.AppendUvarint(dst, v)
		}
		note := ""
		if l.note != 0 {
			r := codec.PlainReader(s.blob(l.note))
			note = r.Text()
		}
		dst = codec.AppendText(dst, note)
	}
	if j.flags&slotHasID != 0 {
		content := b.content()
		dst = codec.AppendText(append(dst, content[:]...), string(b.id()))
	}
	dst = binary.AppendUvarint(dst, uint64(b.created()))
	return append(dst, b.options()...)
}

func (s *Snapshot) writeTombs(out *recordWriter) {
	for _, page := range s.tombs {
		for i := range page {
			t := &page[i]
			if t.serial == 0 {
				continue
			}
			out.scratch = s.appendTomb(binary.AppendUvarint(out.scratch, s.queue(t.queue).CreateSeq), t)
			out.record(recordTombstone)
		}
	}
}

// appendTomb appends: uvarint serial, first due, ended; byte state; text id; 16 bytes content.
func (s *Snapshot) appendTomb(dst []byte, t *tomb) []byte {
	b := openPayload(s.blob(t.blob))
	for _, v := range [...]uint64{t.serial, uint64(t.firstDue), uint64(t.ended)} {
		dst = binary.AppendUvarint(dst, v)
	}
	content := b.content()
	return append(codec.AppendText(append(dst, byte(t.state)), string(b.id())), content[:]...)
}

// writeFinished writes the finished leases in the order of their fences.
func (s *Snapshot) writeFinished(out *recordWriter) {
	var list []finishedLease
	for _, page := range s.finished {
		for _, l := range page {
			if l.fence != 0 {
				list = append(list, l)
			}
		}
	}
	slices.SortFunc(list, func(a, b finishedLease) int { return cmp.Compare(a.fence, b.fence) })
	for _, l := range list {
		for _, v := range [...]uint64{l.serial, l.fence, uint64(l.expiry)} {
			out.scratch = binary.AppendUvarint(out.scratch, v)
		}
		out.record(recordFinished)
	}
}

func (s *Snapshot) writeAnswers(out *recordWriter) {
	for _, ref := range s.order {
		page := s.answers[ref.index>>s.shifts.answers]
		if page == nil {
			continue
		}
		a := page[ref.index&(1<<s.shifts.answers-1)]
		if a.seq != ref.seq {
			continue
		}
		r := codec.PlainReader(s.blob(a.blob))
		out.scratch = append(out.scratch, r.Bytes()...)
		out.record(recordAnswer)
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
func (o *recordWriter) record(kind recordKind) {
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
