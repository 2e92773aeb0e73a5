package fsm

import "encoding/binary"

// appendCommand appends the fields of c.
func appendCommand(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case *Put:
		dst = appendPartition(dst, c.Queue, c.Partition, c.Partitions)
		return appendContent(appendFlag(appendText(dst, c.ID), c.Again), c)
	case *Reserve:
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(c.Max)), unsigned(c.TTR))
		return appendTexts(binary.AppendUvarint(dst, c.Bytes), c.Queues)
	case *Ack:
		return appendRef(dst, c.Ref)
	case *Nack:
		dst = binary.AppendUvarint(appendRef(dst, c.Ref), unsigned(c.Delay))
		return appendFlag(appendText(appendFlag(dst, c.DelayGiven), c.Error), c.Dead)
	case *Release:
		return binary.AppendUvarint(appendRef(dst, c.Ref), unsigned(c.Delay))
	case *Extend:
		return binary.AppendUvarint(appendRef(dst, c.Ref), unsigned(c.TTR))
	case *Cancel:
		return appendFlag(appendText(appendText(dst, c.Queue), c.ID), c.Force)
	case *Reschedule:
		dst = append(appendText(appendText(dst, c.Queue), c.ID), byte(c.Given))
		return binary.AppendUvarint(binary.AppendUvarint(dst, unsigned(c.Delay)), unsigned(c.DueAt))
	case *Redrive:
		return appendTexts(binary.AppendUvarint(appendText(dst, c.Queue), uint64(c.Max)), c.IDs)
	case *Purge:
		return binary.AppendUvarint(append(appendText(dst, c.Queue), byte(c.States)), uint64(c.Max))
	case *Configure:
		dst = appendPartition(dst, c.Queue, c.Partition, c.Partitions)
		return appendSettings(binary.AppendUvarint(dst, c.Version), &c.Settings)
	case *Open:
		return appendPartition(dst, c.Queue, c.Partition, c.Partitions)
	case *DeleteQueue:
		return appendText(dst, c.Queue)
	case *Lead:
		return binary.AppendUvarint(dst, unsigned(c.Grace))
	case *ResetClock:
		return binary.AppendUvarint(binary.AppendUvarint(dst, unsigned(c.To)), unsigned(c.Grace))
	case *Expire:
		return dst
	case *Import:
		return appendImport(dst, c)
	}
	panic("fsm: command without an encoding")
}

// commandScratch is room to decode one command of each kind, so that applying an entry allocates nothing per command.
type commandScratch struct {
	put         Put
	reserve     Reserve
	ack         Ack
	nack        Nack
	release     Release
	extend      Extend
	cancel      Cancel
	reschedule  Reschedule
	redrive     Redrive
	purge       Purge
	configure   Configure
	open        Open
	deleteQueue DeleteQueue
	expire      Expire
	lead        Lead
	imports     Import
	resetClock  ResetClock
}

// read decodes the fields of a command of the given kind, nil if the kind is unknown.
func (s *commandScratch) read(kind Kind, r *reader) Command {
	switch kind {
	case KindPut:
		s.readPut(r)
		return &s.put
	case KindReserve:
		s.reserve = Reserve{Max: r.uint32(), TTR: r.duration(), Bytes: r.uvarint(), Queues: r.texts(s.reserve.Queues[:0])}
		return &s.reserve
	case KindAck:
		s.ack.Ref = r.ref()
		return &s.ack
	case KindNack:
		s.nack = Nack{Ref: r.ref(), Delay: r.duration(), DelayGiven: r.flag(), Error: r.text(), Dead: r.flag()}
		return &s.nack
	case KindRelease:
		s.release = Release{Ref: r.ref(), Delay: r.duration()}
		return &s.release
	case KindExtend:
		s.extend = Extend{Ref: r.ref(), TTR: r.duration()}
		return &s.extend
	case KindCancel:
		s.cancel = Cancel{Queue: r.text(), ID: r.text(), Force: r.flag()}
		return &s.cancel
	case KindReschedule:
		s.reschedule = Reschedule{Queue: r.text(), ID: r.text(), Given: Given(r.byte()), Delay: r.duration(), DueAt: r.time()}
		return &s.reschedule
	default:
		return s.readQueueCommand(kind, r)
	}
}

func (s *commandScratch) readQueueCommand(kind Kind, r *reader) Command {
	switch kind {
	case KindRedrive:
		s.redrive = Redrive{Queue: r.text(), Max: r.uint32(), IDs: r.texts(s.redrive.IDs[:0])}
		return &s.redrive
	case KindPurge:
		s.purge = Purge{Queue: r.text(), States: StateSet(r.byte()), Max: r.uint32()}
		return &s.purge
	case KindConfigure:
		s.configure = Configure{
			Queue: r.text(), Partition: r.uint32(), Partitions: r.uint32(), Version: r.uvarint(), Settings: r.settings(),
		}
		return &s.configure
	case KindOpen:
		s.open = Open{Queue: r.text(), Partition: r.uint32(), Partitions: r.uint32()}
		return &s.open
	case KindDeleteQueue:
		s.deleteQueue = DeleteQueue{Queue: r.text()}
		return &s.deleteQueue
	case KindExpire:
		return &s.expire
	case KindLead:
		s.lead = Lead{Grace: r.duration()}
		return &s.lead
	case KindImport:
		s.imports = r.imports(s.imports.Records[:0])
		return &s.imports
	case KindResetClock:
		s.resetClock = ResetClock{To: r.time(), Grace: r.duration()}
		return &s.resetClock
	default:
		return nil
	}
}

// own returns a copy of a command that was read.
func (s *commandScratch) own(c Command) Command {
	switch c := c.(type) {
	case *Put:
		return copied(c)
	case *Reserve:
		v := copied(c)
		s.reserve.Queues = nil // the copy has it
		return v
	case *Ack:
		return copied(c)
	case *Nack:
		return copied(c)
	case *Release:
		return copied(c)
	case *Extend:
		return copied(c)
	case *Cancel:
		return copied(c)
	case *Reschedule:
		return copied(c)
	case *Redrive:
		v := copied(c)
		s.redrive.IDs = nil // as above
		return v
	case *Purge:
		return copied(c)
	case *Configure:
		return copied(c)
	case *Open:
		return copied(c)
	case *DeleteQueue:
		return copied(c)
	case *Expire:
		return copied(c)
	case *Lead:
		return copied(c)
	case *Import:
		v := copied(c)
		s.imports.Records = nil // as above
		return v
	case *ResetClock:
		return copied(c)
	}
	panic("fsm: command that is not copied")
}

func copied[T any](v *T) *T {
	c := *v
	return &c
}

// appendContent appends what ContentHash covers: options as written, headers, body. The form must never change without a
// new version of the hash, since remembered hashes are compared with it.
func appendContent(dst []byte, p *Put) []byte {
	dst = append(dst, byte(p.Given))
	if p.Given.Has(GivenDelay) {
		dst = binary.AppendUvarint(dst, unsigned(p.Delay))
	}
	if p.Given.Has(GivenDueAt) {
		dst = binary.AppendUvarint(dst, unsigned(p.DueAt))
	}
	if p.Given.Has(GivenTTR) {
		dst = binary.AppendUvarint(dst, unsigned(p.TTR))
	}
	if p.Given.Has(GivenTTL) {
		dst = binary.AppendUvarint(dst, unsigned(p.TTL))
	}
	if p.Given.Has(GivenPriority) {
		dst = append(dst, byte(p.Priority))
	}
	if p.Given.Has(GivenMaxAttempts) {
		dst = binary.AppendUvarint(dst, uint64(p.MaxAttempts))
	}
	if p.Given.Has(GivenRetryDelays) {
		dst = appendDurations(dst, p.RetryDelays)
	}
	dst = appendHeaders(dst, p.Headers)
	return append(binary.AppendUvarint(dst, uint64(len(p.Body))), p.Body...)
}

func (s *commandScratch) readPut(r *reader) {
	p := &s.put
	*p = Put{Queue: r.text(), Partition: r.uint32(), Partitions: r.uint32(), ID: r.text(), Again: r.flag(), Given: Given(r.byte())}
	if p.Given.Has(GivenDelay) {
		p.Delay = r.duration()
	}
	if p.Given.Has(GivenDueAt) {
		p.DueAt = r.time()
	}
	if p.Given.Has(GivenTTR) {
		p.TTR = r.duration()
	}
	if p.Given.Has(GivenTTL) {
		p.TTL = r.duration()
	}
	if p.Given.Has(GivenPriority) {
		p.Priority = int8(r.byte())
	}
	if p.Given.Has(GivenMaxAttempts) {
		p.MaxAttempts = r.uint32()
	}
	if p.Given.Has(GivenRetryDelays) {
		p.RetryDelays = r.durations()
	}
	p.Headers = r.headers()
	p.Body = r.bytes()
}

// appendPartition appends the name of a queue, the partition, and the number of partitions.
func appendPartition(dst []byte, queue string, partition, partitions uint32) []byte {
	dst = binary.AppendUvarint(appendText(dst, queue), uint64(partition))
	return binary.AppendUvarint(dst, uint64(partitions))
}

func appendRef(dst []byte, ref Ref) []byte {
	dst = binary.AppendUvarint(appendText(dst, ref.Queue), uint64(ref.Partition))
	return binary.AppendUvarint(binary.AppendUvarint(dst, ref.Serial), ref.Fence)
}

func (r *reader) ref() Ref {
	return Ref{Queue: r.text(), Partition: r.uint32(), Serial: r.uvarint(), Fence: r.uvarint()}
}

func appendTexts(dst []byte, list []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, s := range list {
		dst = appendText(dst, s)
	}
	return dst
}

// texts appends a list of texts to list.
func (r *reader) texts(list []string) []string {
	for range r.length(1) {
		list = append(list, r.text())
	}
	return list
}

func appendSettings(dst []byte, s *Settings) []byte {
	for _, v := range [...]uint64{
		unsigned(s.TTR), uint64(s.MaxAttempts), unsigned(s.DedupWindow), s.MaxInFlight, s.MaxJobs, s.MaxBytes, s.PutsPerSecond,
		uint64(s.Overdue), unsigned(s.OverduePeriod), unsigned(s.OverdueAfter), unsigned(s.PausedUntil),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, v := range [...]bool{s.MaxAttemptsSet, s.DedupWindowSet, s.DedupForever, s.ExpireToDead, s.Paused} {
		dst = appendFlag(dst, v)
	}
	return appendDurations(dst, s.RetryDelays)
}

func (r *reader) settings() Settings {
	return Settings{
		TTR: r.duration(), MaxAttempts: r.uint32(), DedupWindow: r.duration(), MaxInFlight: r.uvarint(), MaxJobs: r.uvarint(),
		MaxBytes: r.uvarint(), PutsPerSecond: r.uvarint(), Overdue: r.overduePolicy(), OverduePeriod: r.duration(),
		OverdueAfter: r.duration(), PausedUntil: r.time(),
		MaxAttemptsSet: r.flag(), DedupWindowSet: r.flag(), DedupForever: r.flag(), ExpireToDead: r.flag(), Paused: r.flag(),
		RetryDelays: r.durations(),
	}
}

func (r *reader) overduePolicy() OverduePolicy {
	v := r.uvarint()
	if v > uint64(DropOverdue) {
		r.damaged("unknown overdue policy")
		return FireOverdue
	}
	return OverduePolicy(v)
}
