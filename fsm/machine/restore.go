package machine

import (
	"errors"
	"fmt"
	"io"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/snapshot"
	"github.com/belfrydb/belfry/fsm/store"
)

// Restore reads a snapshot stream into a new machine and checks its checksum, its counts and its
// digest. It does not touch the machine that was there before; the caller swaps it when Restore has
// succeeded. Errors wrap ErrDamaged, ErrVersion, or r's.
func Restore(cfg fsm.Config, r io.Reader) (*Machine, error) {
	m := New(cfg)
	m.keys.Loading = true
	m.applied = 1 // until the real index is read: touch compares indexes
	m.restoring = true
	in, err := snapshot.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("fsm: restoring: %w", err)
	}
	m.format = in.Format()
	rs := restorer{m: m, queues: map[uint64]*queue{}, counts: map[uint64]fsm.Counts{}}
	for !rs.done {
		kind, rest, err := in.Next()
		if err == nil {
			err = rs.record(kind, rest)
		}
		if err != nil {
			return nil, fmt.Errorf("fsm: restoring: record %d, before byte %d: %w", rs.records+1, in.Bytes(), err)
		}
		rs.records++
	}
	if err := errors.Join(in.CheckEnd(), rs.check()); err != nil {
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

func (rs *restorer) record(kind snapshot.Kind, rest []byte) error {
	r := codec.NewReader(rest)
	m := rs.m
	switch kind {
	case snapshot.KindScalars:
		rs.applied = r.Uvarint()
		m.scalars = fsm.Scalars{Clock: r.Time(), Serial: r.Uvarint(), QueuesCreated: r.Uvarint(), LowWater: r.Time()}
		m.activity.Restart(m.scalars.Clock)
	case snapshot.KindRestore:
		m.restored = r.RestoreMark()
		m.sum += digest.RestoreMark(&m.restored)
	case snapshot.KindQueue:
		rs.queue(&r)
	case snapshot.KindJob:
		rs.job(&r)
	case snapshot.KindTombstone:
		rs.tombstone(&r)
	case snapshot.KindKey:
		rs.key(&r)
	case snapshot.KindSchedule:
		rs.schedule(&r)
	case snapshot.KindFinished:
		serial, fence := r.Uvarint(), r.Serial()
		if expiry := r.Time(); r.Failed() == nil {
			m.remembered.AddFinished(store.FinishedLease{Fence: fence, Serial: serial, Expiry: expiry})
		}
	case snapshot.KindAnswer:
		a := r.Answer()
		if r.Failed() == nil {
			m.store.Answers.Add(a.Caller, a.ID, a.At, rest)
			m.sum += digest.EncodedAnswer(a.At, rest)
		}
	case snapshot.KindTrailer:
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
	q := rs.m.queues.add(rs.m.store.AddQueue(&rec), rec.Name, rec.CreateSeq)
	q.touched = rs.m.applied
	rs.m.touched = append(rs.m.touched, q)
	rs.queues[rec.CreateSeq] = q
	rs.m.configureKeys(q)
}

func (rs *restorer) job(r *codec.Reader) {
	m := rs.m
	q := rs.queues[r.Uvarint()]
	v := r.Held()
	if r.Failed() != nil {
		return
	}
	if q == nil || !v.State.Held() || m.store.BySerial(q.index, v.Serial) != 0 {
		r.Damaged("job of an unknown queue, in an unknown state, or twice")
		return
	}
	v.Queue = q.name
	m.set(m.storeHeldJob(q, &v), v.State, v.Due)
}

// storeHeldJob stores a job that was read from a record. The caller sets its state.
func (m *Machine) storeHeldJob(q *queue, v *codec.HeldJob) job {
	m.needKeys(q, v.Key)
	j := job{m.store.AddHeld(q.index, v), q}
	m.countFIFO(j)
	r := m.touch(q)
	r.Counts.Bytes += fsm.JobBytes(&v.Job)
	if v.Next != nil {
		r.Counts.Bytes += fsm.JobBytes(&v.Next.Job)
	}
	return j
}

func (rs *restorer) key(r *codec.Reader) {
	q := rs.queues[r.Uvarint()]
	k := r.KeyMemory()
	if r.Failed() != nil {
		return
	}
	if q == nil || k.Key == "" && q.keys == nil || q.keys.Group(k.Key) != 0 {
		r.Damaged("key of an unknown queue, or twice")
		return
	}
	rs.m.needKeys(q, k.Key)
	q.keys.Adopt(&k)
}

func (rs *restorer) schedule(r *codec.Reader) {
	q := rs.queues[r.Uvarint()]
	s := r.Schedule()
	if r.Failed() != nil {
		return
	}
	if q == nil || q.schedules.Find(s.Name) != 0 {
		r.Damaged("schedule of an unknown queue, or twice")
		return
	}
	rs.m.touch(q)
	q.schedules.Add(&s)
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
	m.indexTombstone(q, m.store.AddTombstone(q.index, &t))
}

// countDues counts the jobs that were restored. One pass costs half of what counting job by job
// does.
func (m *Machine) countDues() {
	m.restoring = false
	for index := range m.store.Jobs() {
		if s := m.store.Slot(index); s.State() == fsm.Delayed {
			m.queues.byIndex[s.Queue].due.CountMinute(s.Due)
		}
	}
	for _, q := range m.queues.byIndex {
		if q != nil {
			q.due.Derive()
		}
	}
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
	m.loadKeys()
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
