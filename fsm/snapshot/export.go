package snapshot

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/backup"
	"github.com/belfrydb/belfry/fsm/codec"
)

// Export emits the shard as records of a backup: head, queues, paused keys, schedules, jobs, tombstones,
// end. It leaves out a queue for which keep returns false, with all that the queue holds. A record is
// valid until emit returns. The first error of emit ends the export. Remembered requests, finished
// leases, and the tokens and turns of keys are left out: they end within minutes or a day, and mean
// nothing in another cluster. Export may run beside Apply, as WriteTo may.
func (s *Snapshot) Export(shard uint32, keep func(*fsm.QueueRecord) bool, emit func(fsm.BackupRecord) error) error {
	head := backup.Section{Shard: shard, Index: s.head.Index, Clock: s.head.Scalars.Clock, Serial: s.head.Scalars.Serial}
	if err := emit(backup.SectionRecord(&head)); err != nil {
		return err
	}
	x := exporter{emit: emit, kept: map[uint64]string{}}
	for q := range s.records.Queues() {
		if keep(q) {
			x.kept[q.CreateSeq] = q.Name
			x.totals.Queues++
			x.send(fsm.BackupQueue, codec.AppendQueueRecord(x.room[:0], q))
		}
	}
	for queue, k := range s.records.KeyMemories() {
		if k.Paused && x.beginRecord(s.records.Queue(queue).CreateSeq) {
			x.totals.Keys++
			x.send(fsm.BackupKey, codec.AppendText(x.room, k.Key))
		}
	}
	for queue, encoded := range s.records.Schedules() {
		if x.beginRecord(s.records.Queue(queue).CreateSeq) {
			x.totals.Schedules++
			x.send(fsm.BackupSchedule, append(x.room, encoded...))
		}
	}
	for j := range s.records.Jobs() {
		if x.beginRecord(s.records.Queue(j.Queue).CreateSeq) {
			x.totals.Jobs++
			x.send(fsm.BackupJob, s.appendHeld(x.room, j))
		}
	}
	for t := range s.records.Tombstones() {
		if x.beginRecord(s.records.TombQueue(t).CreateSeq) {
			x.totals.Tombstones++
			x.send(fsm.BackupTombstone, s.appendTomb(x.room, t))
		}
	}
	if x.err == nil {
		x.err = emit(backup.EndRecord(shard, &x.totals))
	}
	return x.err
}

// exporter emits records until the first error.
type exporter struct {
	emit   func(fsm.BackupRecord) error
	kept   map[uint64]string // the names of exported queues, by CreateSeq
	room   []byte
	totals backup.Totals
	err    error
}

// beginRecord starts a record of the queue with the given CreateSeq. It reports false if that queue
// is left out, or after an error.
func (x *exporter) beginRecord(createSeq uint64) bool {
	name, kept := x.kept[createSeq]
	if x.err != nil || !kept {
		return false
	}
	x.room = codec.AppendText(x.room[:0], name)
	return true
}

func (x *exporter) send(kind fsm.BackupKind, data []byte) {
	x.room = data
	if x.err == nil {
		x.err = x.emit(fsm.BackupRecord{Kind: kind, Data: data})
	}
}
