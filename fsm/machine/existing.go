package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// asksFor reports whether a put that leaves a held or ended job as it is asks for that job.
func asksFor(c *fsm.Put, b store.Payload, content [16]byte) bool {
	if c.OnExisting == fsm.ReturnExisting {
		return b.Content() == content
	}
	return b.KeyName() == c.Key
}

// successorOf returns the successor of a job, nil if it has none. It aliases the store until the
// next change.
func (m *Machine) successorOf(j job) *fsm.Successor {
	if !m.slot(j).HasID() {
		return nil
	}
	l := m.leaseOf(j)
	if b := m.store.Next(&l); b != nil {
		return codec.Successor(b)
	}
	return nil
}

// versionOf returns the version of the last content of a job, or of its successor.
func (m *Machine) versionOf(j job) uint64 {
	if next := m.successorOf(j); next != nil {
		return next.Version
	}
	_, version := m.payload(j).Key()
	return max(1, version)
}

// putHeld carries out a put whose id belongs to a held job.
func (m *Machine) putHeld(j job, c *fsm.Put, content [16]byte) (fsm.Result, bool) {
	state := m.slot(j).State()
	if c.OnExisting >= fsm.ReplaceExisting && m.payload(j).KeyName() != c.Key {
		return fsm.Result{Code: fsm.JobExists}, false
	}
	if version := m.versionOf(j); c.IfVersion != 0 && c.IfVersion != version {
		return fsm.Result{Code: fsm.VersionChanged, State: state, Version: version}, false
	}
	switch {
	case c.OnExisting < fsm.ReplaceExisting:
		return m.putAgain(j, c, content)
	case state != fsm.Reserved:
		return m.replace(j, c, content)
	case c.OnExisting == fsm.NextExisting:
		return m.putNext(j, c, content)
	default:
		return fsm.Result{Code: fsm.JobReserved, State: state, Version: m.versionOf(j)}, false
	}
}

// replacement returns the content of a put for a job that was first put at a time.
func (m *Machine) replacement(q *queue, c *fsm.Put, first fsm.Time) fsm.Job {
	v := m.newJob(q, c)
	v.Created = first
	if c.MaxWait > 0 {
		v.FirstDue = min(v.FirstDue, first.After(c.MaxWait))
	}
	v.Due = v.FirstDue
	return v
}

// replace gives a job that is not RESERVED the content of a put. It takes no attempt, no successor
// and no death along: a job that failed since it was first put counts as first put now.
func (m *Machine) replace(j job, c *fsm.Put, content [16]byte) (fsm.Result, bool) {
	q, s := j.q, m.slot(j)
	dead := s.State() == fsm.Dead
	first := m.payload(j).Created()
	if l := m.leaseOf(j); dead || l.Attempt > 0 || l.Died > first {
		first = m.scalars.Clock
	}
	v := m.replacement(q, c, first)
	v.Serial, v.Version = s.Serial, m.versionOf(j)+1
	before, bytes := m.bytesOf(j), fsm.JobBytes(&v)
	if rule.TooLarge(m.record(q), before, bytes) {
		return fsm.Result{Code: fsm.QueueFull}, false
	}
	m.lift(j)
	m.uncountFIFO(j)
	m.store.ReplacePayload(j.index, &v, content)
	m.countFIFO(j)
	m.store.EditSlot(j.index).SetTTL(v.TTL)
	if m.slot(j).HasLease() {
		m.store.SetNext(j.index, nil)
		if !v.FIFO {
			m.store.SetUses(j.index, fsm.Uses{})
		}
		l := m.store.EditLease(j.index)
		l.Attempt = 0
		if dead {
			l.Redrives++
		}
	}
	r := m.touch(q)
	r.Counts.Bytes += bytes - before
	r.Counters.Duplicate++
	if dead {
		r.Counters.Redriven++
		m.keyRevived(j)
	}
	return fsm.Result{
		Replaced: true, State: m.setDue(j, v.Due), Partition: r.Partition, Serial: v.Serial, Due: v.FirstDue,
		Version: v.Version,
	}, true
}

// bytesOf returns the size of a job and of its successor as limits count them.
func (m *Machine) bytesOf(j job) uint64 {
	n := m.payload(j).Bytes()
	if next := m.successorOf(j); next != nil {
		n += fsm.JobBytes(&next.Job)
	}
	return n
}

// putNext stores a put as the successor of a RESERVED job, in place of an earlier one.
func (m *Machine) putNext(j job, c *fsm.Put, content [16]byte) (fsm.Result, bool) {
	first, before := m.scalars.Clock, uint64(0)
	if next := m.successorOf(j); next != nil {
		first, before = next.Created, fsm.JobBytes(&next.Job)
	}
	next := fsm.Successor{Job: m.replacement(j.q, c, first), Content: content}
	next.Version = m.versionOf(j) + 1
	next.Queue, next.ID, next.Key = "", "", "" // those of the job
	bytes := fsm.JobBytes(&next.Job)
	if rule.TooLarge(m.record(j.q), before, bytes) {
		return fsm.Result{Code: fsm.QueueFull}, false
	}
	m.sum -= m.hash(j)
	m.store.SetNext(j.index, &next)
	m.sum += m.hash(j)
	r, s := m.touch(j.q), m.slot(j)
	r.Counts.Bytes += bytes - before
	r.Counters.Duplicate++
	return fsm.Result{
		Replaced: true, State: fsm.Reserved, Partition: r.Partition, Serial: s.Serial, Due: next.FirstDue,
		Version: next.Version,
	}, true
}

// end ends a lifted job as drop does. Its successor, if it has one, becomes a job of its id.
func (m *Machine) end(j job, ended fsm.State) {
	found := m.successorOf(j)
	if found == nil {
		m.drop(j, ended)
		return
	}
	next := *found
	next.Queue, next.ID, next.Key = j.q.name, string(m.payload(j).ID()), m.payload(j).KeyName()
	next.Body = append([]byte(nil), next.Body...) // it aliases what drop frees
	next.Due = next.FirstDue
	m.drop(j, fsm.StateNone)
	next.Serial = m.scalars.Serial + 1
	m.addJob(j.q, &next.Job, next.Content)
}
