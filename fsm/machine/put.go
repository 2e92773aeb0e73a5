package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/rule"
)

// put creates a job, or repeats the answer of its first put. DESIGN.md gives the order of the
// checks.
func (m *Machine) put(c *fsm.Put) (fsm.Result, bool) {
	q, code := m.home(c.Queue, c.Partition, c.Partitions)
	if code != fsm.OK {
		return fsm.Result{Code: code}, false
	}
	if c.Key != "" && m.record(q).Settings.Keys.Refused {
		return fsm.Result{Code: fsm.KeyRefused}, false
	}
	var content [16]byte
	var held, tombstone uint32
	if c.ID != "" {
		content = codec.ContentHash(c)
		if held, tombstone = m.store.ByPutID(q.index, c.ID, c.Key); held != 0 {
			return m.putHeld(job{held, q}, c, content)
		}
	}
	if c.IfVersion != 0 {
		return fsm.Result{Code: fsm.VersionChanged}, false
	}
	if tombstone != 0 && !c.Again && c.OnExisting < fsm.ReplaceExisting && !m.forgotten(q, tombstone) {
		return m.putEnded(q, c, tombstone, content)
	}
	if wait := rule.RateWait(m.record(q), m.scalars.Clock); wait > 0 {
		return fsm.Result{Code: fsm.RateLimited, Wait: wait}, false
	}
	j := m.newJob(q, c)
	if rule.Full(m.record(q), fsm.JobBytes(&j)) {
		return fsm.Result{Code: fsm.QueueFull}, false
	}
	if c.MaxWait > 0 {
		j.FirstDue = min(j.FirstDue, j.Created.After(c.MaxWait))
		j.Due = j.FirstDue
	}
	if m.record(q).Settings.PutsPerSecond > 0 {
		rule.TakeToken(m.touch(q), m.scalars.Clock)
	}
	if tombstone != 0 {
		m.forgetTombstone(q, tombstone)
	}
	state := m.addJob(q, &j, content)
	return fsm.Result{
		Created: true, State: state, Partition: c.Partition, Serial: j.Serial, Due: j.FirstDue,
		Version: rule.VersionAnswer(c, 1),
	}, true
}

// home returns the queue of a put or a configuration and settles it. It creates an ordinary queue
// at its first mention. The code is QueueChanged if the caller assumes another partition, or
// another number of them, than the queue has.
func (m *Machine) home(name string, partition, partitions uint32) (*queue, fsm.Code) {
	q := m.queues.byName[name]
	if q == nil {
		if partition != 0 || partitions != 1 {
			return nil, fsm.QueueChanged
		}
		return m.createQueue(name, 0, 1)
	}
	m.settleQueue(q)
	if r := m.record(q); r.Partition != partition || r.Partitions != partitions {
		return nil, fsm.QueueChanged
	}
	return q, fsm.OK
}

// putAgain answers a put whose id belongs to a held job, which stays as it is.
func (m *Machine) putAgain(j job, c *fsm.Put, content [16]byte) (fsm.Result, bool) {
	b := m.payload(j)
	if !asksFor(c, b, content) {
		return fsm.Result{Code: fsm.JobExists}, false
	}
	m.touch(j.q).Counters.Duplicate++
	s := m.slot(j)
	return fsm.Result{
		State: s.State(), Partition: m.record(j.q).Partition, Serial: s.Serial, Due: b.FirstDue(),
		Version: rule.VersionAnswer(c, m.versionOf(j)),
	}, false
}

// putEnded answers a put whose id belongs to a tombstone.
func (m *Machine) putEnded(q *queue, c *fsm.Put, tombstone uint32, content [16]byte) (fsm.Result, bool) {
	t := m.store.Tomb(tombstone)
	if b := m.store.TombPayload(t); !asksFor(c, b, content) {
		return fsm.Result{Code: fsm.JobExists}, false
	}
	m.touch(q).Counters.Duplicate++
	return fsm.Result{State: t.State, Partition: m.record(q).Partition, Serial: t.Serial, Due: t.FirstDue}, false
}

// forgotten reports whether a tombstone is past its window, swept or not.
func (m *Machine) forgotten(q *queue, tombstone uint32) bool {
	return m.forgottenAt(q, tombstone, m.scalars.Clock)
}

// forgottenAt is forgotten at a time that is not before the clock.
func (m *Machine) forgottenAt(q *queue, tombstone uint32, now fsm.Time) bool {
	window, forever := rule.DedupWindow(&m.record(q).Settings)
	return !forever && m.store.Tomb(tombstone).Ended.Add(window) <= now
}

// newJob returns the record of a job, with the serial that it gets if it is stored.
func (m *Machine) newJob(q *queue, c *fsm.Put) (j fsm.Job) {
	rule.FillJob(&j, c, m.scalars.Clock)
	j.Queue, j.Serial = q.name, m.scalars.Serial+1
	return j
}

// addJob stores a new job and returns its first state.
func (m *Machine) addJob(q *queue, v *fsm.Job, content [16]byte) fsm.State {
	m.scalars.Serial = v.Serial
	r := m.touch(q)
	r.Counters.Put++
	state := fsm.Delayed
	if v.Due <= m.scalars.Clock {
		state = fsm.Ready
	}
	m.set(m.storeJob(q, v, content), state, v.Due)
	return state
}

// storeJob stores a job. The caller sets its state.
func (m *Machine) storeJob(q *queue, v *fsm.Job, content [16]byte) job {
	m.needKeys(q, v.Key)
	j := job{m.store.AddJob(q.index, v, content), q}
	m.touch(q).Counts.Bytes += fsm.JobBytes(v)
	m.countFIFO(j)
	return j
}
