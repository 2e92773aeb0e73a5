package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/rule"
)

// whileRestoring reports whether a command is carried out although a restore is open.
func whileRestoring(k fsm.Kind) bool {
	return k == fsm.KindImport || k == fsm.KindOpen || k == fsm.KindConfigure || k == fsm.KindLead
}

// Restored returns the mark of the restore that filled the shard.
func (m *Machine) Restored() fsm.RestoreMark { return m.restored }

func (m *Machine) imports(c *fsm.Import) (fsm.Result, bool) {
	if c.Step == fsm.ImportBegin {
		return m.beginImport(c)
	}
	mark := &m.restored
	if mark.ID != c.Restore || mark.Next == 0 {
		return fsm.Result{Code: fsm.Invalid}, false
	}
	switch {
	case c.Step == fsm.ImportRecords && (mark.Ended || c.Sequence < mark.Next):
		return imported(mark), true
	case c.Step == fsm.ImportRecords && c.Sequence == mark.Next:
		m.scalars.Serial = max(m.scalars.Serial, c.Floor)
		count := mark.Imported
		for i := range c.Records {
			if m.importRecord(&c.Records[i]) {
				count++
			}
		}
		m.setRestored(func(r *fsm.RestoreMark) { r.Next, r.Imported = r.Next+1, count })
	case c.Step == fsm.ImportEnd && mark.Ended:
	case c.Step == fsm.ImportEnd && mark.Imported == c.Total:
		m.scalars.Serial = max(m.scalars.Serial, c.Floor)
		m.scalars.LowWater = max(m.scalars.LowWater, m.scalars.Clock) // what requests from before did is not known here
		m.setRestored(func(r *fsm.RestoreMark) { r.Ended, r.Floor = true, m.scalars.Serial })
	case c.Step == fsm.ImportAbandon && mark.Open() && mark.Imported == 0 && len(m.queues.byName) == 0:
		m.setRestored(func(r *fsm.RestoreMark) { *r = fsm.RestoreMark{} })
		return fsm.Result{}, true
	default:
		return fsm.Result{Code: fsm.Invalid, Serial: mark.Imported}, false
	}
	return imported(mark), true
}

// beginImport opens a restore. If the same one has begun, it answers how far that has come.
func (m *Machine) beginImport(c *fsm.Import) (fsm.Result, bool) {
	mark := &m.restored
	if mark.Next > 0 && mark.ID == c.Restore {
		if mark.Overdue != c.Overdue || mark.Period != max(0, c.Period) || mark.Since != max(0, c.Since) {
			return fsm.Result{Code: fsm.QueueExists, More: mark.Open()}, false
		}
		return imported(mark), true
	}
	if mark.Open() || len(m.queues.byName) > 0 {
		return fsm.Result{Code: fsm.QueueExists, More: mark.Open()}, false
	}
	m.setRestored(func(r *fsm.RestoreMark) {
		*r = fsm.RestoreMark{
			ID: c.Restore, Next: 1, Overdue: c.Overdue, Period: max(0, c.Period), Since: max(0, c.Since),
			Began: m.scalars.Clock,
		}
	})
	return imported(mark), true
}

func imported(r *fsm.RestoreMark) fsm.Result {
	return fsm.Result{Count: r.Next, More: !r.Ended, Serial: r.Imported}
}

// setRestored changes the mark and the digest with it.
func (m *Machine) setRestored(change func(*fsm.RestoreMark)) {
	m.sum -= digest.RestoreMark(&m.restored)
	change(&m.restored)
	m.sum += digest.RestoreMark(&m.restored)
}

// importRecord stores one record of a backup. It reports false for a record that cannot be read, is
// there already, or does not belong here. ImportEnd then finds fewer records than it asks for.
func (m *Machine) importRecord(record *fsm.BackupRecord) bool {
	keyed, fifo := m.format >= fsm.KeysFormat, m.format >= fsm.FIFOFormat
	switch record.Kind {
	case fsm.BackupQueue:
		q, err := backup.ParseQueue(record)
		known := q.Format <= m.format && (keyed || q.Settings.Keys == fsm.KeySettings{})
		return err == nil && known && m.importQueue(&q)
	case fsm.BackupJob:
		name, v, err := backup.ParseHeld(record)
		known := keyed ||
			m.format >= codec.FieldsFormat && !v.NeedsKeys() || v.Flags&codec.HeldHasFields == 0
		return err == nil && known && (fifo || !v.NeedsFIFO()) && m.importJob(m.queues.byName[name], &v)
	case fsm.BackupKey:
		queue, key, err := backup.ParseKey(record)
		return err == nil && keyed && m.importKey(m.queues.byName[queue], key)
	case fsm.BackupSchedule:
		s, err := backup.ParseSchedule(record)
		return err == nil && keyed && (fifo || !fsm.PutNeedsFIFO(&s.Job)) && m.importSchedule(m.queues.byName[s.Queue], &s)
	case fsm.BackupTombstone:
		t, err := backup.ParseTombstone(record)
		return err == nil && (keyed || t.Key == "") && m.importTombstone(m.queues.byName[t.Queue], &t)
	default:
		return false
	}
}

// importQueue creates a queue as it was, without jobs. Its settings have no version here, since
// another catalog gave it.
func (m *Machine) importQueue(v *fsm.QueueRecord) bool {
	if m.queues.byName[v.Name] != nil {
		return false
	}
	q, code := m.createQueue(v.Name, v.Partition, v.Partitions)
	if code != fsm.OK {
		return false
	}
	r := m.touch(q)
	createSeq := r.CreateSeq
	*r = *v
	r.CreateSeq, r.Version, r.Counts = createSeq, 0, fsm.Counts{}
	r.Settings = v.Settings.Clone()
	m.configureKeys(q)
	return true
}

// importSchedule stores a schedule of a queue as it was. There may be more than SchedulesMax.
func (m *Machine) importSchedule(q *queue, s *fsm.Schedule) bool {
	ok := q != nil && max(s.Serial, fsm.VersionSerial(s.Version)) <= m.scalars.Serial && q.schedules.Find(s.Name) == 0
	if ok {
		m.touch(q)
		q.schedules.Add(s)
	}
	return ok
}

// importKey pauses a key of a queue.
func (m *Machine) importKey(q *queue, key string) bool {
	if q == nil || key == "" {
		return false
	}
	m.needKeys(q, key)
	return q.keys.Hold(key)
}

func (m *Machine) importJob(q *queue, v *codec.HeldJob) bool {
	if q == nil || !v.State.Held() || max(v.Serial, v.Fence, v.Place) > m.scalars.Serial ||
		m.format >= fsm.KeysFormat && !v.Plausible() || m.store.BySerial(q.index, v.Serial) != 0 {
		return false
	}
	if !v.Generated {
		if held, tombstone := m.store.ByPutID(q.index, v.ID, v.Key); held != 0 || tombstone != 0 {
			return false
		}
	}
	v.Queue = q.name
	if v.State == fsm.Dead && q.HasDead(v.ListPlace()) {
		return false
	}
	j := m.storeHeldJob(q, v)
	m.set(j, v.State, v.Due)
	m.importOverdue(j)
	return true
}

// importOverdue applies the policy of the restore to a job that was just imported.
func (m *Machine) importOverdue(j job) {
	mark, s := &m.restored, m.slot(j)
	if s.State() != fsm.Delayed || s.Due <= mark.Since || s.Due > mark.Began {
		return
	}
	policy, period := rule.ImportPolicy(mark, &m.record(j.q).Settings)
	switch {
	case policy == fsm.ImportSpread && period > 0:
		m.lift(j)
		m.set(j, fsm.Delayed, rule.Outage{From: mark.Since, To: mark.Began}.Spread(m.slot(j).Due, period))
	case policy == fsm.ImportDrop:
		m.touch(j.q).Counters.Expired++
		m.lift(j)
		m.end(j, fsm.Expired)
	}
}

func (m *Machine) importTombstone(q *queue, t *fsm.Tombstone) bool {
	if q == nil || t.State.Held() || t.State == fsm.StateNone || t.Serial > m.scalars.Serial {
		return false
	}
	if m.store.TombstoneBySerial(q.index, t.Serial) != 0 {
		return false
	}
	if held, tombstone := m.store.ByPutID(q.index, t.ID, t.Key); held != 0 || tombstone != 0 {
		return false
	}
	m.evictTombstones()
	m.indexTombstone(q, m.store.AddTombstone(q.index, t))
	return true
}
