package fsm

import (
	"encoding/binary"
	"time"
)

// ImportStep is where in a restore an Import stands.
type ImportStep uint8

// The steps. A shard gets one ImportBegin, any number of ImportRecords, and one ImportEnd; each may be repeated.
const (
	// ImportBegin opens the restore: from then on the shard carries out nothing but Import, Open, Configure and Lead.
	ImportBegin ImportStep = 1
	// ImportRecords brings a part of the records.
	ImportRecords ImportStep = 2
	// ImportEnd closes the restore, if as many records were imported as Total says. Then the shard
	// serves.
	ImportEnd ImportStep = 3
	// ImportAbandon takes back a restore that has imported nothing.
	ImportAbandon ImportStep = 4
)

// Import brings a backup into a shard that holds no queue. Results: Count, the Sequence that the
// shard waits for; More, unless the restore has ended; Serial, the number of records imported.
// Codes: QueueExists if the shard holds queues, or another restore, or the same one begun with
// other options, with More if that restore is open; Invalid for a step that does not fit.
type Import struct {
	// Restore names the restore: the id of the backup.
	Restore [16]byte
	Step    ImportStep
	// Sequence numbers the ImportRecords of a shard from 1. One that was carried out already changes nothing, so that an unknown
	// outcome may be repeated, and a restore that was interrupted goes on where it stood.
	Sequence uint64
	// Floor is the highest serial of the backup, as far as it was read: of all of it with
	// ImportEnd. The ids and fences of the shard begin above it. A record with a serial or fence
	// above it is not imported, since the shard would give that number out again.
	Floor uint64
	// Overdue, with ImportBegin, says what becomes of delayed jobs that fell due after Since, when the backup was taken, and before
	// the restore began; Period is for ImportSpread.
	Overdue ImportOverdue
	Period  time.Duration
	Since   Time
	// Total, with ImportEnd, is the number of records that the shard must have imported.
	Total uint64
	// Records are queues, jobs and tombstones of a backup, a queue before what it holds.
	Records []BackupRecord
}

// ImportOverdue says what becomes of jobs that fell due between a backup and its restore.
type ImportOverdue uint8

// The policies.
const (
	// ImportByQueue asks the policy of each queue, as after an outage of that length.
	ImportByQueue ImportOverdue = 0
	// ImportFire makes them ready.
	ImportFire ImportOverdue = 1
	// ImportSpread spaces them over the period after the restore began, in their order.
	ImportSpread ImportOverdue = 2
	// ImportDrop ends them as expired.
	ImportDrop ImportOverdue = 3
)

// RestoreMark is what a shard remembers of the restore that filled it; zero if none did.
type RestoreMark struct {
	ID [16]byte
	// Next is the sequence number that the shard waits for, Imported the number of records
	// imported.
	Next, Imported uint64
	// Floor, once the restore has ended, is the serial from which the shard went on: leases up to
	// it were granted before the backup.
	Floor   uint64
	Overdue ImportOverdue
	Period  time.Duration
	// Since and Began bound the window (Since, Began] that Overdue is about.
	Since, Began Time
	Ended        bool
}

// Open reports whether a restore has begun and not ended.
func (r *RestoreMark) Open() bool { return r.Next > 0 && !r.Ended }

// Kind returns KindImport.
func (*Import) Kind() Kind { return KindImport }

// whileRestoring reports whether a command is carried out although a restore is open.
func (k Kind) whileRestoring() bool {
	return k == KindImport || k == KindOpen || k == KindConfigure || k == KindLead
}

// Restored returns the mark of the restore that filled the shard.
func (m *Machine) Restored() RestoreMark { return m.restored }

func (m *Machine) imports(c *Import) Result {
	if c.Step == ImportBegin {
		return m.beginImport(c)
	}
	mark := &m.restored
	if mark.ID != c.Restore || mark.Next == 0 {
		return Result{Code: Invalid}
	}
	switch {
	case c.Step == ImportRecords && (mark.Ended || c.Sequence < mark.Next):
		return mark.result()
	case c.Step == ImportRecords && c.Sequence == mark.Next:
		m.scalars.Serial = max(m.scalars.Serial, c.Floor)
		imported := mark.Imported
		for i := range c.Records {
			if m.importRecord(&c.Records[i]) {
				imported++
			}
		}
		m.setRestored(func(r *RestoreMark) { r.Next, r.Imported = r.Next+1, imported })
	case c.Step == ImportEnd && mark.Ended:
	case c.Step == ImportEnd && mark.Imported == c.Total:
		m.scalars.Serial = max(m.scalars.Serial, c.Floor)
		m.scalars.LowWater = max(m.scalars.LowWater, m.scalars.Clock) // what requests from before did is not known here
		m.setRestored(func(r *RestoreMark) { r.Ended, r.Floor = true, m.scalars.Serial })
	case c.Step == ImportAbandon && mark.Open() && mark.Imported == 0 && len(m.queues.byName) == 0:
		m.setRestored(func(r *RestoreMark) { *r = RestoreMark{} })
		return Result{changed: true}
	default:
		return Result{Code: Invalid, Serial: mark.Imported}
	}
	return mark.result()
}

// beginImport opens a restore. If the same one has begun, it answers how far that has come.
func (m *Machine) beginImport(c *Import) Result {
	mark := &m.restored
	if mark.Next > 0 && mark.ID == c.Restore {
		if mark.Overdue != c.Overdue || mark.Period != max(0, c.Period) || mark.Since != max(0, c.Since) {
			return Result{Code: QueueExists, More: mark.Open()}
		}
		return mark.result()
	}
	if mark.Open() || len(m.queues.byName) > 0 {
		return Result{Code: QueueExists, More: mark.Open()}
	}
	m.setRestored(func(r *RestoreMark) {
		*r = RestoreMark{ID: c.Restore, Next: 1, Overdue: c.Overdue, Period: max(0, c.Period), Since: max(0, c.Since), Began: m.scalars.Clock}
	})
	return mark.result()
}

func (r *RestoreMark) result() Result {
	return Result{Count: r.Next, More: !r.Ended, Serial: r.Imported, changed: true}
}

// setRestored changes the mark and the digest with it.
func (m *Machine) setRestored(change func(*RestoreMark)) {
	m.sum -= HashRestoreMark(&m.restored)
	change(&m.restored)
	m.sum += HashRestoreMark(&m.restored)
}

// importRecord stores one record of a backup. It reports false for a record that cannot be read, is
// there already, or does not belong here. ImportEnd then finds fewer records than it asks for.
func (m *Machine) importRecord(record *BackupRecord) bool {
	switch record.Kind {
	case BackupQueue:
		q, err := record.Queue()
		return err == nil && q.Format <= m.format && m.importQueue(&q)
	case BackupJob:
		name, v, err := record.held()
		return err == nil && m.importJob(m.queues.byName[name], &v)
	case BackupTombstone:
		t, err := record.Tombstone()
		return err == nil && m.importTombstone(m.queues.byName[t.Queue], &t)
	default:
		return false
	}
}

// importQueue creates a queue as it was, without jobs. Its settings have no version here, since
// another catalog gave it.
func (m *Machine) importQueue(v *QueueRecord) bool {
	if m.queues.byName[v.Name] != nil {
		return false
	}
	q, code := m.createQueue(v.Name, v.Partition, v.Partitions)
	if code != OK {
		return false
	}
	r := m.touch(q)
	createSeq := r.CreateSeq
	*r = *v
	r.CreateSeq, r.Version, r.Counts = createSeq, 0, Counts{}
	r.Settings = v.Settings.Clone()
	return true
}

func (m *Machine) importJob(q *queue, v *heldJob) bool {
	if q == nil || !v.State.Held() || max(v.Serial, v.Fence) > m.scalars.Serial {
		return false
	}
	if m.store.bySerial(q.index, v.Serial) != 0 {
		return false
	}
	if !v.Generated {
		if held, tombstone := m.store.byID(q, v.ID); held != 0 || tombstone != 0 {
			return false
		}
	}
	v.Queue = q.name
	j := m.storeHeldJob(q, v)
	m.set(j, v.State, v.Due)
	m.importOverdue(j)
	return true
}

// importOverdue applies the policy of the restore to a job that was just imported.
func (m *Machine) importOverdue(j job) {
	mark, s := &m.restored, m.slot(j)
	if s.state() != Delayed || s.due <= mark.Since || s.due > mark.Began {
		return
	}
	policy, period := mark.policyFor(&m.record(j.q).Settings)
	switch {
	case policy == ImportSpread && period > 0:
		m.lift(j)
		m.set(j, Delayed, spreadDue(mark.Since, mark.Began, m.slot(j).due, period))
	case policy == ImportDrop:
		m.touch(j.q).Counters.Expired++
		m.lift(j)
		m.drop(j, Expired)
	}
}

// policyFor returns what the restore does with overdue jobs of a queue that has these settings.
func (r *RestoreMark) policyFor(s *Settings) (ImportOverdue, Duration) {
	if r.Overdue != ImportByQueue {
		return r.Overdue, r.Period
	}
	after := s.OverdueAfter
	if after == 0 {
		after = DefaultOverdueAfter
	}
	if r.Began.Sub(r.Since) >= after {
		switch s.Overdue {
		case SpreadOverdue:
			return ImportSpread, s.OverduePeriod
		case DropOverdue:
			return ImportDrop, 0
		case FireOverdue:
		}
	}
	return ImportFire, 0
}

func (m *Machine) importTombstone(q *queue, t *Tombstone) bool {
	if q == nil || t.State.Held() || t.State == StateNone || t.Serial > m.scalars.Serial {
		return false
	}
	if m.findTombstone(q, t.Serial) != 0 {
		return false
	}
	if held, tombstone := m.store.byID(q, t.ID); held != 0 || tombstone != 0 {
		return false
	}
	m.evictTombstones()
	m.storeTombstone(q, t)
	return true
}

// HashRestoreMark is the part of the digest that belongs to the restore; 0 if there was none.
func HashRestoreMark(r *RestoreMark) uint64 {
	if *r == (RestoreMark{}) {
		return 0
	}
	return hashOfRestore.bytes(appendRestoreMark(nil, r)).sum()
}

// appendRestoreMark appends: 16 bytes id; uvarint next, imported, floor; byte policy; uvarint
// period, since, began; flag ended.
func appendRestoreMark(dst []byte, r *RestoreMark) []byte {
	dst = append(dst, r.ID[:]...)
	for _, v := range [...]uint64{r.Next, r.Imported, r.Floor} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = append(dst, byte(r.Overdue))
	for _, v := range [...]uint64{unsigned(r.Period), unsigned(r.Since), unsigned(r.Began)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return appendFlag(dst, r.Ended)
}

func (r *reader) restoreMark() RestoreMark {
	return RestoreMark{
		ID: r.array16(), Next: r.uvarint(), Imported: r.uvarint(), Floor: r.uvarint(), Overdue: ImportOverdue(r.byte()),
		Period: r.duration(), Since: r.time(), Began: r.time(), Ended: r.flag(),
	}
}

// appendImport appends: 16 bytes id; byte step; uvarint sequence, floor; byte policy; uvarint period, since, total, number of records;
// each a byte kind, a length and so many bytes.
func appendImport(dst []byte, c *Import) []byte {
	dst = append(append(dst, c.Restore[:]...), byte(c.Step))
	dst = append(binary.AppendUvarint(binary.AppendUvarint(dst, c.Sequence), c.Floor), byte(c.Overdue))
	for _, v := range [...]uint64{unsigned(c.Period), unsigned(c.Since), c.Total, uint64(len(c.Records))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for i := range c.Records {
		dst = appendRecord(dst, &c.Records[i])
	}
	return dst
}

// imports reads an Import into room for its records.
func (r *reader) imports(room []BackupRecord) Import {
	c := Import{Restore: r.array16(), Step: ImportStep(r.byte()), Sequence: r.uvarint(), Floor: r.uvarint(), Overdue: ImportOverdue(r.byte())}
	c.Period, c.Since, c.Total = r.duration(), r.time(), r.uvarint()
	for n := r.length(2); n > 0; n-- {
		room = append(room, r.record())
	}
	if len(room) > 0 {
		c.Records = room
	}
	return c
}
