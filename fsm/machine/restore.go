package machine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"hash/crc32"
	"io"
)

// recordBytesMax bounds a record of a snapshot, so that a damaged length does not make Restore
// allocate without bound.
const recordBytesMax = 256 << 20

// Restore reads a snapshot stream into a new machine and checks its checksum, its counts and its
// digest. It does not touch the machine that was there before; the caller swaps it when Restore has
// succeeded. Errors wrap ErrDamaged, ErrVersion, or r's.
func Restore(cfg fsm.Config, r io.Reader) (*Machine, error) {
	m := New(cfg)
	m.applied = 1 // until the real index is read: touch compares indexes
	m.restoring = true
	in := &recordReader{r: bufio.NewReaderSize(r, 256<<10)}
	var err error
	if m.format, err = in.magic(); err != nil {
		return nil, fmt.Errorf("fsm: restoring: %w", err)
	}
	rs := restorer{m: m, queues: map[uint64]*queue{}, counts: map[uint64]fsm.Counts{}}
	for !rs.done {
		kind, rest, err := in.next()
		if err == nil {
			err = rs.record(kind, rest)
		}
		if err != nil {
			return nil, fmt.Errorf("fsm: restoring: record %d, before byte %d: %w", rs.records+1, in.n, err)
		}
		rs.records++
	}
	if err := errors.Join(in.checkEnd(), rs.check()); err != nil {
		return nil, fmt.Errorf("fsm: restoring: %w", err)
	}
	return m, nil
}

// restorer adds the records of a snapshot to a machine.
type restorer struct {
	m       *Machine
	queues  map[uint64]*queue     // by CreateSeq
	counts  map[uint64]fsm.Counts // as stored; compared with what the jobs add up to
	applied uint64
	records uint64
	digest  uint64
	done    bool
}

func (rs *restorer) record(kind recordKind, rest []byte) error {
	r := codec.NewReader(rest)
	m := rs.m
	switch kind {
	case recordScalars:
		rs.applied = r.Uvarint()
		m.scalars = fsm.Scalars{Clock: r.Time(), Serial: r.Uvarint(), QueuesCreated: r.Uvarint(), LowWater: r.Time()}
		m.recents.since = m.scalars.Clock
	case recordRestore:
		m.restored = r.RestoreMark()
		m.sum += digest.RestoreMark(&m.restored)
	case recordQueue:
		rs.queue(&r)
	case recordJob:
		rs.job(&r)
	case recordTombstone:
		rs.tombstone(&r)
	case recordFinished:
		serial, fence := r.Uvarint(), r.Serial()
		if expiry := r.Time(); r.Failed() == nil {
			m.addFinished(finishedLease{fence: fence, serial: serial, expiry: expiry})
		}
	case recordAnswer:
		a := r.Answer()
		if r.Failed() == nil {
			m.answers.add(m.cfg.Seed, &a, rest)
			m.sum += digest.EncodedAnswer(a.At, rest)
		}
	case recordTrailer:
		if n := r.Uvarint(); n != rs.records {
			r.Damaged(fmt.Sprintf("trailer counts %d records, there were %d", n, rs.records))
		}
		rs.digest, rs.done = r.Uint64(), true
	default:
		return fmt.Errorf("%w: record kind %d", fsm.ErrVersion, kind)
	}
	if r.Failed() == nil && r.Left() > 0 {
		r.Damaged("record too long")
	}
	return r.Failed()
}

func (rs *restorer) queue(r *codec.Reader) {
	rec := r.QueueRecord()
	if r.Failed() != nil {
		return
	}
	if rs.queues[rec.CreateSeq] != nil || rs.m.queues.byName[rec.Name] != nil {
		r.Damaged("queue comes twice")
		return
	}
	rs.counts[rec.CreateSeq] = rec.Counts
	rec.Counts = fsm.Counts{}
	index := rs.m.queues.records.alloc()
	*rs.m.queues.records.edit(index) = rec
	q := rs.m.queues.add(index, rec.Name, rec.CreateSeq)
	q.touched = rs.m.applied
	rs.m.touched = append(rs.m.touched, q)
	rs.queues[rec.CreateSeq] = q
}

func (rs *restorer) job(r *codec.Reader) {
	m := rs.m
	q := rs.queues[r.Uvarint()]
	v := r.Held()
	if r.Failed() != nil {
		return
	}
	if q == nil || !v.State.Held() || m.store.bySerial(q.index, v.Serial) != 0 {
		r.Damaged("job of an unknown queue, in an unknown state, or twice")
		return
	}
	v.Queue = q.name
	m.set(m.storeHeldJob(q, &v), v.State, v.Due)
}

// storeHeldJob stores a job that was read from a record. The caller sets its state.
func (m *Machine) storeHeldJob(q *queue, v *codec.HeldJob) job {
	j := m.storeJob(q, &v.Job, v.Content)
	s := m.store.slots.edit(j.index)
	s.flags = s.flags&^slotHasTTL | slotFlags(v.Flags&codec.HeldHasTTL)
	if v.Flags&codec.HeldHasLease != 0 {
		*m.editLease(j) = lease{
			fence: v.Fence, until: v.Until, ttr: v.LeaseTTR, died: v.Died, attempt: v.Attempt, redrives: v.Redrives,
		}
		m.setNote(m.slot(j).lease, v.LastError)
	}
	return j
}

func (rs *restorer) tombstone(r *codec.Reader) {
	m := rs.m
	q := rs.queues[r.Uvarint()]
	t := r.Tombstone()
	if r.Failed() != nil {
		return
	}
	if q == nil || t.State.Held() {
		r.Damaged("tombstone of an unknown queue or of a held job")
		return
	}
	m.storeTombstone(q, &t)
}

// storeTombstone stores a tombstone that was read from a record.
func (m *Machine) storeTombstone(q *queue, t *fsm.Tombstone) {
	index := m.store.tombs.alloc()
	*m.store.tombs.edit(index) = tomb{
		serial: t.Serial, firstDue: t.FirstDue, ended: t.Ended, state: t.State, queue: q.index,
		blob: m.store.blobs.put(appendTombPayload(nil, t.ID, t.Content, m.store.idHash(q, t.ID))),
	}
	m.indexTombstone(q, index)
	m.sum += m.tombstoneHash(q, index)
}

// check compares what was read with the counts and the digest in the snapshot.
func (rs *restorer) check() error {
	m := rs.m
	for _, q := range m.touched {
		if got, want := m.record(q).Counts, rs.counts[q.createSeq]; got != want {
			return fmt.Errorf("%w: queue %q has counts %+v, its jobs add up to %+v", fsm.ErrDamaged, q.name, want, got)
		}
	}
	m.closeQueues()
	m.applied = rs.applied
	m.countDues()
	if got := m.Digest(); got != rs.digest {
		return fmt.Errorf("%w: digest is %016x, should be %016x", fsm.ErrDamaged, got, rs.digest)
	}
	for _, q := range m.queues.byIndex {
		if q != nil {
			q.touched, q.settled = 0, 0
		}
	}
	return nil
}

// recordReader reads the records of a snapshot stream and computes the checksum.
type recordReader struct {
	r   *bufio.Reader
	sum uint32
	n   int64
	buf []byte
}

// ReadByte makes the reader an io.ByteReader, for varints.
func (in *recordReader) ReadByte() (byte, error) {
	c, err := in.r.ReadByte()
	if err == nil {
		in.sum = crc32.Update(in.sum, castagnoli, []byte{c})
		in.n++
	}
	return c, err
}

func (in *recordReader) full(b []byte) error {
	n, err := io.ReadFull(in.r, b)
	in.sum = crc32.Update(in.sum, castagnoli, b[:n])
	in.n += int64(n)
	return cut(err)
}

// cut returns ErrDamaged for the end of the stream within a value.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: cut short", fsm.ErrDamaged)
	}
	return err
}

// magic reads the start of a snapshot and returns its format.
func (in *recordReader) magic() (fsm.Format, error) {
	var b [len(snapshotMagic) + 1]byte
	if err := in.full(b[:]); err != nil {
		return 0, err
	}
	if string(b[:len(snapshotMagic)]) != snapshotMagic {
		return 0, fmt.Errorf("%w: not a snapshot: it begins with %q", fsm.ErrDamaged, b[:])
	}
	format := fsm.Format(b[len(snapshotMagic)])
	if err := format.Readable(); err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	return format, nil
}

// next returns the next record; its bytes are valid until the next call.
func (in *recordReader) next() (recordKind, []byte, error) {
	kind, err := in.ReadByte()
	if err != nil {
		return 0, nil, cut(err)
	}
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, nil, cut(err)
	}
	if n > recordBytesMax {
		return 0, nil, fmt.Errorf("%w: record of %d bytes", fsm.ErrDamaged, n)
	}
	for have := 0; uint64(have) < n; { // grows with what is there, not with what the length claims
		step := min(int(n)-have, max(1<<20, have))
		if cap(in.buf) < have+step {
			in.buf = append(make([]byte, 0, have+step), in.buf[:have]...)
		}
		in.buf = in.buf[:have+step]
		if err := in.full(in.buf[have:]); err != nil {
			return 0, nil, err
		}
		have += step
	}
	return recordKind(kind), in.buf[:n], nil
}

// checkEnd reads the checksum and makes sure that nothing follows.
func (in *recordReader) checkEnd() error {
	sum := in.sum
	var b [4]byte
	if err := in.full(b[:]); err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint32(b[:]); got != sum {
		return fmt.Errorf("%w: checksum is %08x, should be %08x", fsm.ErrDamaged, sum, got)
	}
	if _, err := in.r.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: bytes after the end", fsm.ErrDamaged)
	}
	return nil
}
