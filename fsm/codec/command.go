package codec

import (
	"encoding/binary"
	"github.com/belfrydb/belfry/fsm"
)

// appendCommand appends the fields of c.
func appendCommand(dst []byte, c fsm.Command) []byte {
	switch c := c.(type) {
	case *fsm.Put:
		dst = appendPartition(dst, c.Queue, c.Partition, c.Partitions)
		return appendPutFields(appendContent(appendFlag(AppendText(dst, c.ID), c.Again), c), c)
	case *fsm.Reserve:
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(c.Max)), Unsigned(c.TTR))
		return appendTexts(binary.AppendUvarint(dst, c.Bytes), c.Queues)
	case *fsm.Ack:
		return appendRef(dst, c.Ref)
	case *fsm.Nack:
		dst = binary.AppendUvarint(appendRef(dst, c.Ref), Unsigned(c.Delay))
		dst = appendFlag(AppendText(appendFlag(dst, c.DelayGiven), c.Error), c.Dead)
		return taggedRank(dst, refPriority, c.PriorityGiven, c.Priority)
	case *fsm.Release:
		dst = binary.AppendUvarint(appendRef(dst, c.Ref), Unsigned(c.Delay))
		return taggedRank(dst, refPriority, c.PriorityGiven, c.Priority)
	case *fsm.Extend:
		return binary.AppendUvarint(appendRef(dst, c.Ref), Unsigned(c.TTR))
	case *fsm.Cancel:
		return taggedText(appendFlag(AppendText(AppendText(dst, c.Queue), c.ID), c.Force), refKey, c.Key)
	case *fsm.Reschedule:
		dst = append(AppendText(AppendText(dst, c.Queue), c.ID), byte(c.Given))
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(c.Delay)), Unsigned(c.DueAt))
		return taggedText(dst, refKey, c.Key)
	case *fsm.Redrive:
		return appendTexts(binary.AppendUvarint(AppendText(dst, c.Queue), uint64(c.Max)), c.IDs)
	case *fsm.Purge:
		return binary.AppendUvarint(append(AppendText(dst, c.Queue), byte(c.States)), uint64(c.Max))
	case *fsm.Configure:
		dst = appendPartition(dst, c.Queue, c.Partition, c.Partitions)
		return AppendKeySettings(AppendSettings(binary.AppendUvarint(dst, c.Version), &c.Settings), &c.Settings.Keys)
	case *fsm.Open:
		return appendPartition(dst, c.Queue, c.Partition, c.Partitions)
	case *fsm.DeleteQueue:
		return AppendText(dst, c.Queue)
	case *fsm.Lead:
		return binary.AppendUvarint(dst, Unsigned(c.Grace))
	case *fsm.ResetClock:
		return binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(c.To)), Unsigned(c.Grace))
	case *fsm.Expire:
		return dst
	case *fsm.Import:
		return appendImport(dst, c)
	case *fsm.PauseKey:
		return appendFlag(AppendText(AppendText(dst, c.Queue), c.Key), c.Resume)
	case *fsm.PurgeKey:
		dst = append(AppendText(AppendText(dst, c.Queue), c.Key), byte(c.States))
		return binary.AppendUvarint(dst, uint64(c.Max))
	case *fsm.Kick:
		return binary.AppendUvarint(binary.AppendUvarint(AppendText(dst, c.Queue), c.Serial), uint64(c.Max))
	case *fsm.ReserveJob:
		return binary.AppendUvarint(binary.AppendUvarint(AppendText(dst, c.Queue), c.Serial), Unsigned(c.TTR))
	}
	return appendScheduleCommand(dst, c)
}

// Scratch is room to decode one command of each kind, so that applying an entry allocates nothing
// per command.
type Scratch struct {
	put         fsm.Put
	reserve     fsm.Reserve
	ack         fsm.Ack
	nack        fsm.Nack
	release     fsm.Release
	extend      fsm.Extend
	cancel      fsm.Cancel
	reschedule  fsm.Reschedule
	redrive     fsm.Redrive
	purge       fsm.Purge
	configure   fsm.Configure
	open        fsm.Open
	deleteQueue fsm.DeleteQueue
	expire      fsm.Expire
	lead        fsm.Lead
	imports     fsm.Import
	resetClock  fsm.ResetClock
	pauseKey    fsm.PauseKey
	purgeKey    fsm.PurgeKey
	kick        fsm.Kick
	reserveJob  fsm.ReserveJob
}

// read decodes the fields of a command of the given kind, nil if the kind is unknown.
func (s *Scratch) read(kind fsm.Kind, r *Reader) fsm.Command {
	switch kind {
	case fsm.KindPut:
		s.readPut(r)
		return &s.put
	case fsm.KindReserve:
		s.reserve = fsm.Reserve{Max: r.Uint32(), TTR: r.duration(), Bytes: r.Uvarint(), Queues: r.texts(s.reserve.Queues[:0])}
		return &s.reserve
	case fsm.KindAck:
		s.ack.Ref = r.ref()
		return &s.ack
	case fsm.KindNack:
		s.nack = fsm.Nack{Ref: r.ref(), Delay: r.duration(), DelayGiven: r.flag(), Error: r.Text(), Dead: r.flag()}
		return &s.nack
	case fsm.KindRelease:
		s.release = fsm.Release{Ref: r.ref(), Delay: r.duration()}
		return &s.release
	case fsm.KindExtend:
		s.extend = fsm.Extend{Ref: r.ref(), TTR: r.duration()}
		return &s.extend
	case fsm.KindCancel:
		s.cancel = fsm.Cancel{Queue: r.Text(), ID: r.Text(), Force: r.flag()}
		return &s.cancel
	case fsm.KindReschedule:
		s.reschedule = fsm.Reschedule{
			Queue: r.Text(), ID: r.Text(), Given: fsm.Given(r.Byte()), Delay: r.duration(), DueAt: r.Time(),
		}
		return &s.reschedule
	default:
		return s.readQueueCommand(kind, r)
	}
}

func (s *Scratch) readQueueCommand(kind fsm.Kind, r *Reader) fsm.Command {
	switch kind {
	case fsm.KindRedrive:
		s.redrive = fsm.Redrive{Queue: r.Text(), Max: r.Uint32(), IDs: r.texts(s.redrive.IDs[:0])}
		return &s.redrive
	case fsm.KindPurge:
		s.purge = fsm.Purge{Queue: r.Text(), States: fsm.StateSet(r.Byte()), Max: r.Uint32()}
		return &s.purge
	case fsm.KindConfigure:
		s.configure = fsm.Configure{
			Queue: r.Text(), Partition: r.Uint32(), Partitions: r.Uint32(), Version: r.Uvarint(), Settings: r.Settings(),
		}
		return &s.configure
	case fsm.KindOpen:
		s.open = fsm.Open{Queue: r.Text(), Partition: r.Uint32(), Partitions: r.Uint32()}
		return &s.open
	case fsm.KindDeleteQueue:
		s.deleteQueue = fsm.DeleteQueue{Queue: r.Text()}
		return &s.deleteQueue
	case fsm.KindExpire:
		return &s.expire
	case fsm.KindLead:
		s.lead = fsm.Lead{Grace: r.duration()}
		return &s.lead
	case fsm.KindImport:
		s.imports = r.imports(s.imports.Records[:0])
		return &s.imports
	case fsm.KindResetClock:
		s.resetClock = fsm.ResetClock{To: r.Time(), Grace: r.duration()}
		return &s.resetClock
	case fsm.KindPauseKey:
		s.pauseKey = fsm.PauseKey{Queue: r.Text(), Key: r.Text(), Resume: r.flag()}
		return &s.pauseKey
	case fsm.KindPurgeKey:
		s.purgeKey = fsm.PurgeKey{Queue: r.Text(), Key: r.Text(), States: fsm.StateSet(r.Byte()), Max: r.Uint32()}
		return &s.purgeKey
	case fsm.KindKick:
		s.kick = fsm.Kick{Queue: r.Text(), Serial: r.Uvarint(), Max: r.Uint32()}
		return &s.kick
	case fsm.KindReserveJob:
		s.reserveJob = fsm.ReserveJob{Queue: r.Text(), Serial: r.Uvarint(), TTR: r.duration()}
		return &s.reserveJob
	default:
		return readScheduleCommand(kind, r)
	}
}

// own returns a copy of a command that was read.
func (s *Scratch) own(c fsm.Command) fsm.Command {
	switch c := c.(type) {
	case *fsm.Put:
		return copied(c)
	case *fsm.Reserve:
		v := copied(c)
		s.reserve.Queues = nil // the copy has it
		return v
	case *fsm.Ack:
		return copied(c)
	case *fsm.Nack:
		return copied(c)
	case *fsm.Release:
		return copied(c)
	case *fsm.Extend:
		return copied(c)
	case *fsm.Cancel:
		return copied(c)
	case *fsm.Reschedule:
		return copied(c)
	case *fsm.Redrive:
		v := copied(c)
		s.redrive.IDs = nil // as above
		return v
	case *fsm.Purge:
		return copied(c)
	case *fsm.Configure:
		return copied(c)
	case *fsm.Open:
		return copied(c)
	case *fsm.DeleteQueue:
		return copied(c)
	case *fsm.Expire:
		return copied(c)
	case *fsm.Lead:
		return copied(c)
	case *fsm.Import:
		v := copied(c)
		s.imports.Records = nil // as above
		return v
	case *fsm.ResetClock:
		return copied(c)
	case *fsm.PauseKey:
		return copied(c)
	case *fsm.PurgeKey:
		return copied(c)
	case *fsm.Kick:
		return copied(c)
	case *fsm.ReserveJob:
		return copied(c)
	}
	return c // it is no one else's
}

func copied[T any](v *T) *T {
	c := *v
	return &c
}

func (s *Scratch) readPut(r *Reader) {
	p := &s.put
	*p = fsm.Put{
		Queue: r.Text(), Partition: r.Uint32(), Partitions: r.Uint32(), ID: r.Text(), Again: r.flag(),
	}
	r.content(p)
}

// appendPartition appends the name of a queue, the partition, and the number of partitions.
func appendPartition(dst []byte, queue string, partition, partitions uint32) []byte {
	dst = binary.AppendUvarint(AppendText(dst, queue), uint64(partition))
	return binary.AppendUvarint(dst, uint64(partitions))
}

func appendRef(dst []byte, ref fsm.Ref) []byte {
	dst = binary.AppendUvarint(AppendText(dst, ref.Queue), uint64(ref.Partition))
	return binary.AppendUvarint(binary.AppendUvarint(dst, ref.Serial), ref.Fence)
}

func (r *Reader) ref() fsm.Ref {
	return fsm.Ref{Queue: r.Text(), Partition: r.Uint32(), Serial: r.Uvarint(), Fence: r.Uvarint()}
}

// AppendSettings appends the settings of a queue.
func AppendSettings(dst []byte, s *fsm.Settings) []byte {
	for _, v := range [...]uint64{
		Unsigned(s.TTR), uint64(s.MaxAttempts), Unsigned(s.DedupWindow), s.MaxInFlight, s.MaxJobs, s.MaxBytes,
		s.PutsPerSecond,
		uint64(s.Overdue), Unsigned(s.OverduePeriod), Unsigned(s.OverdueAfter), Unsigned(s.PausedUntil),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, v := range [...]bool{s.MaxAttemptsSet, s.DedupWindowSet, s.DedupForever, s.ExpireToDead, s.Paused} {
		dst = appendFlag(dst, v)
	}
	return AppendDurations(dst, s.RetryDelays)
}

// Settings reads what AppendSettings appended.
func (r *Reader) Settings() fsm.Settings {
	return fsm.Settings{
		TTR: r.duration(), MaxAttempts: r.Uint32(), DedupWindow: r.duration(), MaxInFlight: r.Uvarint(), MaxJobs: r.Uvarint(),
		MaxBytes: r.Uvarint(), PutsPerSecond: r.Uvarint(), Overdue: r.overduePolicy(), OverduePeriod: r.duration(),
		OverdueAfter: r.duration(), PausedUntil: r.Time(),
		MaxAttemptsSet: r.flag(), DedupWindowSet: r.flag(), DedupForever: r.flag(), ExpireToDead: r.flag(), Paused: r.flag(),
		RetryDelays: r.durations(),
	}
}

func (r *Reader) overduePolicy() fsm.OverduePolicy {
	v := r.Uvarint()
	if v > uint64(fsm.DropOverdue) {
		r.Damaged("unknown overdue policy")
		return fsm.FireOverdue
	}
	return fsm.OverduePolicy(v)
}

// appendImport appends: 16 bytes id; byte step; uvarint sequence, floor; byte policy; uvarint
// period, since, total, number of records; each a byte kind, a length and so many bytes.
func appendImport(dst []byte, c *fsm.Import) []byte {
	dst = append(append(dst, c.Restore[:]...), byte(c.Step))
	dst = append(binary.AppendUvarint(binary.AppendUvarint(dst, c.Sequence), c.Floor), byte(c.Overdue))
	for _, v := range [...]uint64{Unsigned(c.Period), Unsigned(c.Since), c.Total, uint64(len(c.Records))} {
		dst = binary.AppendUvarint(dst, v)
	}
	for i := range c.Records {
		dst = AppendRecord(dst, &c.Records[i])
	}
	return dst
}

// imports reads an Import into room for its records.
func (r *Reader) imports(room []fsm.BackupRecord) fsm.Import {
	c := fsm.Import{
		Restore: r.Array16(), Step: fsm.ImportStep(r.Byte()), Sequence: r.Uvarint(), Floor: r.Uvarint(),
		Overdue: fsm.ImportOverdue(r.Byte()),
	}
	c.Period, c.Since, c.Total = r.duration(), r.Time(), r.Uvarint()
	for n := r.Length(2); n > 0; n-- {
		room = append(room, r.Record())
	}
	if len(room) > 0 {
		c.Records = room
	}
	return c
}

// AppendRecord appends a record of a backup: byte kind, uvarint length, data.
func AppendRecord(dst []byte, r *fsm.BackupRecord) []byte {
	dst = binary.AppendUvarint(append(dst, byte(r.Kind)), uint64(len(r.Data)))
	return append(dst, r.Data...)
}

// Record reads a record of a backup; its data aliases the input.
func (r *Reader) Record() fsm.BackupRecord {
	kind := fsm.BackupKind(r.Byte())
	return fsm.BackupRecord{Kind: kind, Data: r.Bytes()}
}
