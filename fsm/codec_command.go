package fsm

import "encoding/binary"

// appendCommand appends the fields of c.
func appendCommand(dst []byte, c Command) []byte {
	switch c := c.(type) {
	case *Put:
		dst = appendPlace(dst, c.Queue, c.Partition, c.Partitions)
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
		dst = appendPlace(dst, c.Queue, c.Partition, c.Partitions)
		return appendSettings(binary.AppendUvarint(dst, c.Version), &c.Settings)
	case *Open:
		return appendPlace(dst, c.Queue, c.Partition, c.Partitions)
	case *DeleteQueue:
		return appendText(dst, c.Queue)
	case *Lead:
		return binary.AppendUvarint(dst, unsigned(c.Grace))
	case *Expire:
		return dst
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
	default:
		return nil
	}
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

func appendPlace(dst []byte, queue string, partition, partitions uint32) []byte {
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

// The answer:
//
//	text caller, text request id, 16 bytes content, uvarint at, uvarint number of results, then each result
//
// A result is a byte Code, a byte State, a byte of resultFields, the fields it names, and the grants.
const (
	resultCreated = 1 << iota
	resultMore
	resultJob    // partition, serial
	resultTimes  // due, until
	resultCount  // count
	resultWait   // wait
	resultGrants // number, then each
)

func appendAnswer(dst []byte, a *Answer) []byte {
	dst = append(appendText(appendText(dst, a.Caller), a.ID), a.Content[:]...)
	dst = binary.AppendUvarint(dst, uint64(a.At))
	dst = binary.AppendUvarint(dst, uint64(len(a.Results)))
	for i := range a.Results {
		dst = appendResult(dst, &a.Results[i])
	}
	return dst
}

func appendResult(dst []byte, r *Result) []byte {
	fields := byte(0)
	for bit, set := range [...]bool{
		r.Created, r.More, r.Serial != 0 || r.Partition != 0, r.Due != 0 || r.Until != 0, r.Count != 0, r.Wait != 0,
		len(r.Grants) > 0,
	} {
		if set {
			fields |= 1 << bit
		}
	}
	dst = append(dst, byte(r.Code), byte(r.State), fields)
	if fields&resultJob != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Partition)), r.Serial)
	}
	if fields&resultTimes != 0 {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Due)), uint64(r.Until))
	}
	if fields&resultCount != 0 {
		dst = binary.AppendUvarint(dst, r.Count)
	}
	if fields&resultWait != 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Wait))
	}
	if fields&resultGrants != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Grants)))
		for i := range r.Grants {
			dst = appendGrant(dst, &r.Grants[i])
		}
	}
	return dst
}

func appendGrant(dst []byte, g *Grant) []byte {
	dst = binary.AppendUvarint(appendText(dst, g.Queue), uint64(g.Partition))
	for _, v := range [...]uint64{g.Serial, g.Fence, uint64(g.Attempt), uint64(g.Due), uint64(g.Until)} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func (r *reader) answer() Answer {
	a := Answer{Caller: r.text(), ID: r.text(), Content: r.array16(), At: r.time()}
	if n := r.length(3); n > 0 {
		a.Results = make([]Result, n)
	}
	for i := range a.Results {
		a.Results[i] = r.result()
	}
	return a
}

func (r *reader) result() Result {
	v := Result{Code: Code(r.byte()), State: State(r.byte())}
	fields := r.byte()
	v.Created, v.More = fields&resultCreated != 0, fields&resultMore != 0
	if fields&resultJob != 0 {
		v.Partition, v.Serial = r.uint32(), r.uvarint()
	}
	if fields&resultTimes != 0 {
		v.Due, v.Until = r.time(), r.time()
	}
	if fields&resultCount != 0 {
		v.Count = r.uvarint()
	}
	if fields&resultWait != 0 {
		v.Wait = r.duration()
	}
	if fields&resultGrants != 0 {
		v.Grants = make([]Grant, r.length(7))
	}
	for i := range v.Grants {
		v.Grants[i] = Grant{
			Queue: r.text(), Partition: r.uint32(), Serial: r.uvarint(), Fence: r.uvarint(), Attempt: r.uint32(),
			Due: r.time(), Until: r.time(),
		}
	}
	return v
}
