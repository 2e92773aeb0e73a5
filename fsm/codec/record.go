package codec

import (
	"encoding/binary"
	"fmt"
	"github.com/belfrydb/belfry/fsm"
)

// AppendRestoreMark appends: 16 bytes id; uvarint next, imported, floor; byte policy; uvarint
// period, since, began; flag ended.
func AppendRestoreMark(dst []byte, r *fsm.RestoreMark) []byte {
	dst = append(dst, r.ID[:]...)
	for _, v := range [...]uint64{r.Next, r.Imported, r.Floor} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = append(dst, byte(r.Overdue))
	for _, v := range [...]uint64{Unsigned(r.Period), Unsigned(r.Since), Unsigned(r.Began)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return appendFlag(dst, r.Ended)
}

// RestoreMark reads what AppendRestoreMark appended.
func (r *Reader) RestoreMark() fsm.RestoreMark {
	return fsm.RestoreMark{
		ID: r.Array16(), Next: r.Uvarint(), Imported: r.Uvarint(), Floor: r.Uvarint(), Overdue: fsm.ImportOverdue(r.Byte()),
		Period: r.duration(), Since: r.Time(), Began: r.Time(), Ended: r.flag(),
	}
}

// AppendQueueRecord appends the fields of a queue. Its format follows unless it is the first and
// nothing comes after it. The settings that concern keys are tagged fields at the end.
func AppendQueueRecord(dst []byte, q *fsm.QueueRecord) []byte {
	dst = appendPartition(dst, q.Name, q.Partition, q.Partitions)
	for _, v := range [...]uint64{
		q.CreateSeq, uint64(q.Created), q.Version, uint64(q.RateAt), uint64(q.OverdueFrom), uint64(q.OverdueTo),
		uint64(q.Forgotten),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = AppendSettings(appendCounts(dst, &q.Counts, &q.Counters), &q.Settings)
	if q.Format > fsm.FirstFormat || q.Settings.Keys != (fsm.KeySettings{}) {
		dst = append(dst, byte(q.Format))
	}
	return AppendKeySettings(dst, &q.Settings.Keys)
}

func appendCounts(dst []byte, held *fsm.Counts, totals *fsm.Counters) []byte {
	for _, v := range held.List() {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, v := range totals.List() {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// QueueRecord reads what AppendQueueRecord appended.
func (r *Reader) QueueRecord() fsm.QueueRecord {
	q := fsm.QueueRecord{
		Name: r.Text(), Partition: r.Uint32(), Partitions: r.Uint32(), CreateSeq: r.Uvarint(), Created: r.Time(),
		Version: r.Uvarint(), RateAt: r.Time(), OverdueFrom: r.Time(), OverdueTo: r.Time(), Forgotten: r.Time(),
	}
	r.counts(&q.Counts, &q.Counters)
	q.Settings, q.Format = r.Settings(), fsm.FirstFormat
	if len(r.B) > 0 {
		q.Format = r.queueFormat()
	}
	q.Settings.Keys = r.KeySettings()
	return q
}

// queueFormat reads the format of a queue, if it is stored.
func (r *Reader) queueFormat() fsm.Format {
	format := fsm.Format(r.Byte())
	if err := format.Readable(); err != nil {
		r.fail(err)
	} else if format == fsm.FirstFormat && len(r.B) == 0 {
		r.Damaged("the first format is not written")
	}
	return format
}

func (r *Reader) counts(held *fsm.Counts, totals *fsm.Counters) {
	counts := held.List()
	for i := range counts {
		counts[i] = r.Uvarint()
	}
	held.Set(counts)
	counters := totals.List()
	for i := range counters {
		counters[i] = r.Uvarint()
	}
	totals.Set(counters)
}

// FieldsFormat is the format from which on the records of jobs may have tagged fields.
const FieldsFormat fsm.Format = 3

// HeldFlags says which parts the record of a held job has, and whether its ttl counts.
type HeldFlags uint8

// The flags.
const (
	HeldHasID      HeldFlags = 1 << 0
	HeldHasTTL     HeldFlags = 1 << 1
	HeldHasFields  HeldFlags = 1 << 2 // tagged ones, from format 3 on
	HeldHasHeaders HeldFlags = 1 << 6
	HeldHasLease   HeldFlags = 1 << 7
)

// heldFlags are all flags that this program knows.
const heldFlags = HeldHasID | HeldHasTTL | HeldHasFields | HeldHasHeaders | HeldHasLease

// HeldJob is a held job that was read from a record.
type HeldJob struct {
	fsm.Job
	Content [16]byte
	Flags   HeldFlags
}

// Plausible reports whether a job has the lease that its state needs, and one with a successor or a place
// had one. No program writes another.
func (v *HeldJob) Plausible() bool {
	return v.Fence != 0 || v.State != fsm.Reserved && v.Next == nil && (v.Died != 0 || v.State != fsm.Dead && v.Place == 0)
}

// NeedsKeys reports whether a job has what only fsm.KeysFormat has.
func (v *HeldJob) NeedsKeys() bool {
	return v.Key != "" || v.Version != 0 || v.Place != 0 || v.Next != nil
}

// NeedsFIFO reports whether a job has what only fsm.FIFOFormat has.
func (v *HeldJob) NeedsFIFO() bool {
	return needsFIFO(&v.Job) || v.Next != nil && needsFIFO(&v.Next.Job)
}

func needsFIFO(j *fsm.Job) bool {
	return j.FIFO || fsm.IsWide(j.Priority) || j.Uses != nil
}

// Held reads what the appendHeld of a snapshot wrote. Headers, retry delays and body alias the
// input.
func (r *Reader) Held() HeldJob {
	v := HeldJob{Job: fsm.Job{Serial: r.Serial(), Generated: true, Due: r.Time()}}
	v.State, v.Priority, v.Flags = fsm.State(r.Byte()), int64(int8(r.Byte())), HeldFlags(r.Byte())
	if v.Flags&^heldFlags != 0 {
		r.fail(fmt.Errorf("%w: job with flags %08b", fsm.ErrVersion, v.Flags))
	}
	if v.Flags&HeldHasLease != 0 {
		v.Fence, v.Until, v.LeaseTTR, v.Died = r.Uvarint(), r.Time(), r.duration(), r.Time()
		v.Attempt, v.Redrives, v.LastError = r.Uint32(), r.Uint32(), r.Text()
	}
	if v.Flags&HeldHasFields != 0 {
		r.heldFields(&v.Job)
	}
	if v.Flags&HeldHasID != 0 {
		v.Content, v.ID, v.Generated = r.Array16(), r.Text(), false
	}
	v.Created = r.Time()
	r.Payload(&v.Job, v.Flags)
	return v
}

// AppendPayload appends the part of a payload after created, as Payload reads it.
func AppendPayload(dst []byte, j *fsm.Job) []byte {
	dst = binary.AppendVarint(dst, int64(j.FirstDue-j.Created))
	dst = append(dst, byte(j.Given))
	if j.Given.Has(fsm.GivenTTR) {
		dst = binary.AppendUvarint(dst, uint64(j.TTR))
	}
	if j.Given.Has(fsm.GivenMaxAttempts) {
		dst = binary.AppendUvarint(dst, uint64(j.MaxAttempts))
	}
	if j.Given.Has(fsm.GivenRetryDelays) {
		dst = AppendDurations(dst, j.RetryDelays)
	}
	if j.Given.Has(fsm.GivenTTL) {
		dst = binary.AppendUvarint(dst, uint64(j.TTL))
	}
	if len(j.Headers) > 0 {
		dst = AppendHeaders(dst, j.Headers)
	}
	return append(dst, j.Body...)
}

// Payload reads the part of a payload after created: firstDue, options, headers. The body is all
// that is left.
func (r *Reader) Payload(v *fsm.Job, flags HeldFlags) {
	v.FirstDue = v.Created + fsm.Time(r.Varint())
	v.Given = fsm.Given(r.Byte())
	if v.Given.Has(fsm.GivenTTR) {
		v.TTR = r.duration()
	}
	if v.Given.Has(fsm.GivenMaxAttempts) {
		v.MaxAttempts = r.Uint32()
	}
	if v.Given.Has(fsm.GivenRetryDelays) {
		v.RetryDelays = r.durations()
	}
	if v.Given.Has(fsm.GivenTTL) {
		v.TTL = r.Time()
	}
	if flags&HeldHasHeaders != 0 {
		v.Headers = r.headers()
	}
	v.Body = r.NextBytes(len(r.B))
}

// Tombstone reads what Snapshot.appendTomb wrote.
func (r *Reader) Tombstone() fsm.Tombstone {
	return fsm.Tombstone{
		Serial: r.Serial(), FirstDue: r.Time(), Ended: r.Time(), State: fsm.State(r.Byte()), ID: r.Text(),
		Content: r.Array16(), Key: r.remainder(),
	}
}
