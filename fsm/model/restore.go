package model

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
)

// whileOpen reports whether a command is carried out although a restore is open (rule Restore).
func whileOpen(c fsm.Command) bool {
	switch c.(type) {
	case *fsm.Import, *fsm.Open, *fsm.Configure, *fsm.Lead:
		return true
	default:
		return false
	}
}

// imports is rule Restore. Reading a record is fsm's: what bytes say is no rule.
func (m *Model) imports(c *fsm.Import) (result fsm.Result, changed bool) {
	mark := &m.restored
	same := mark.Next > 0 && mark.ID == c.Restore
	switch {
	case c.Step == fsm.ImportBegin && same:
		if mark.Overdue != c.Overdue || mark.Period != c.Period || mark.Since != c.Since {
			return fsm.Result{Code: fsm.QueueExists, More: mark.Open()}, false
		}
	case c.Step == fsm.ImportBegin:
		if mark.Open() || len(m.queues) > 0 {
			return fsm.Result{Code: fsm.QueueExists, More: mark.Open()}, false
		}
		*mark = fsm.RestoreMark{ID: c.Restore, Next: 1, Overdue: c.Overdue, Period: c.Period, Since: c.Since, Began: m.Clock}
	case !same:
		return fsm.Result{Code: fsm.Invalid}, false
	case c.Step == fsm.ImportRecords && (mark.Ended || c.Sequence < mark.Next):
	case c.Step == fsm.ImportRecords && c.Sequence == mark.Next:
		m.Serial = max(m.Serial, c.Floor)
		for i := range c.Records {
			if m.importRecord(&c.Records[i]) {
				mark.Imported++
			}
		}
		mark.Next++
	case c.Step == fsm.ImportEnd && (mark.Ended || mark.Imported == c.Total):
		if !mark.Ended {
			m.LowWater, m.Serial = max(m.LowWater, m.Clock), max(m.Serial, c.Floor)
			mark.Floor = m.Serial
		}
		mark.Ended = true
	case c.Step == fsm.ImportAbandon && mark.Open() && mark.Imported == 0 && len(m.queues) == 0:
		*mark = fsm.RestoreMark{}
		return fsm.Result{}, true
	default:
		return fsm.Result{Code: fsm.Invalid, Serial: mark.Imported}, false
	}
	return fsm.Result{Count: mark.Next, More: !mark.Ended, Serial: mark.Imported}, true
}

// importRecord stores a record unless it cannot be read, is there already, or its queue is not
// here.
func (m *Model) importRecord(r *fsm.BackupRecord) bool {
	if record, err := backup.ParseQueue(r); err == nil {
		if m.queue(record.Name) != nil || m.queuesFull() || record.Format > m.format ||
			record.Settings.Keys != (fsm.KeySettings{}) && m.format < fsm.KeysFormat {
			return false
		}
		q := m.createQueue(record.Name, record.Partition, record.Partitions)
		m.settled[record.Name] = true
		record.CreateSeq, record.Version, record.Counts = q.CreateSeq, 0, fsm.Counts{}
		q.QueueRecord = record
		return true
	}
	if v, content, err := backup.ParseJob(r); err == nil {
		q := m.queue(v.Queue)
		keyed := v.Key != "" || v.Version != 0 || v.Place != 0 || v.Next != nil
		if q == nil || !v.State.Held() || max(v.Serial, v.Fence, v.Place) > m.Serial || q.bySerial(v.Serial) != nil ||
			!v.Generated && m.taken(q, v.ID, v.Key) || keyed && m.format < fsm.KeysFormat ||
			fifoNeeded(&v) && m.format < fsm.FIFOFormat {
			return false
		}
		hadLease, wasDead := v.Fence != 0, v.Fence != 0 || v.Died != 0
		if m.format >= fsm.KeysFormat && (!hadLease && (v.State == fsm.Reserved || v.Next != nil) ||
			!wasDead && (v.State == fsm.Dead || v.Place != 0)) {
			return false
		}
		j := &job{Job: v, content: content}
		j.Partition = q.Partition
		if v.Generated {
			j.ID = fsm.FormatID(q.Partition, v.Serial)
		}
		alike := func(other *job) bool { return other.State == fsm.Dead && byListPlace(other, j) == 0 }
		if j.State == fsm.Dead && slices.ContainsFunc(q.jobs, alike) {
			return false
		}
		q.jobs = append(q.jobs, j)
		m.changed(q, j.Key)
		m.importOverdue(q, j)
		return true
	}
	if s, err := backup.ParseSchedule(r); err == nil {
		q := m.queue(s.Queue)
		if q == nil || m.format < fsm.KeysFormat || max(s.Serial, s.Version%versionsOfPartition) > m.Serial ||
			q.schedule(s.Name) != nil {
			return false
		}
		s.Job.Body = slices.Clone(s.Job.Body)
		q.schedules = append(q.schedules, &s)
		return true
	}
	if name, key, err := backup.ParseKey(r); err == nil {
		q := m.queue(name)
		if q == nil || key == "" || m.format < fsm.KeysFormat || q.memory(key) != nil && q.memory(key).Paused {
			return false
		}
		m.rememberKey(q, key, func(k *fsm.KeyMemory) { k.Paused = true })
		m.changed(q, key)
		return true
	}
	t, err := backup.ParseTombstone(r)
	q := m.queue(t.Queue)
	if err != nil || q == nil || t.State < fsm.Acked || t.Serial > m.Serial || t.Key != "" && m.format < fsm.KeysFormat {
		return false
	}
	if m.taken(q, t.ID, t.Key) || m.hasTombstone(t.Queue, t.Serial) {
		return false
	}
	for len(m.tombstones) >= m.cfg.TombstonesMax {
		m.forgetOldest()
	}
	m.tombstones = append(m.tombstones, t)
	return true
}

// taken reports whether a queue holds or remembers a client's id.
func (m *Model) taken(q *queue, id, key string) bool {
	for i := range m.tombstones {
		if t := &m.tombstones[i]; t.Queue == q.Name && q.sameID(id, key, t.ID, t.Key) {
			return true
		}
	}
	return q.byPutID(id, key) != nil
}

// hasTombstone reports whether a queue has the tombstone of a serial.
func (m *Model) hasTombstone(queue string, serial uint64) bool {
	for i := range m.tombstones {
		if m.tombstones[i].Queue == queue && m.tombstones[i].Serial == serial {
			return true
		}
	}
	return false
}

// importOverdue is the part of rule Restore about jobs that fell due between backup and restore.
func (m *Model) importOverdue(q *queue, j *job) {
	mark := &m.restored
	if j.State != fsm.Delayed || j.Due <= mark.Since || j.Due > mark.Began {
		return
	}
	policy, period := mark.Overdue, mark.Period
	if policy == fsm.ImportByQueue {
		after := q.Settings.OverdueAfter
		if after == 0 {
			after = fsm.DefaultOverdueAfter
		}
		long := mark.Began.Sub(mark.Since) >= after
		switch {
		case long && q.Settings.Overdue == fsm.SpreadOverdue:
			policy, period = fsm.ImportSpread, q.Settings.OverduePeriod
		case long && q.Settings.Overdue == fsm.DropOverdue:
			policy = fsm.ImportDrop
		}
	}
	switch {
	case policy == fsm.ImportSpread && period > 0:
		j.Due = spread(j.Due, mark.Since, mark.Began, period)
	case policy == fsm.ImportDrop:
		q.Counters.Expired++
		m.endJob(q, j, fsm.Expired)
	}
}
