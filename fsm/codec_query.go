package fsm

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The query:
//
//	byte  Format, byte QueryKind, then the fields
//
// The reading, which has the format of its query:
//
//	byte     Format, byte QueryKind, byte Code, flag more, uvarints clock and now
//	uvarint  number of jobs, then each
//	uvarint  number of queues, then each
//
// Fields are only ever added at the end of a query, a job or a queue, in a new format.

// AppendQuery is AppendQueryIn for FirstFormat.
func AppendQuery(dst []byte, q Query) []byte { return AppendQueryIn(dst, FirstFormat, q) }

// AppendQueryIn appends the encoding of q to dst. What the format does not have is left out.
func AppendQueryIn(dst []byte, format Format, q Query) []byte {
	dst = append(dst, byte(format), byte(q.Kind()))
	switch q := q.(type) {
	case *JobQuery:
		dst = appendText(appendText(dst, q.Queue), q.ID)
		if format >= 2 {
			dst = appendFlag(dst, q.Ended)
		}
		return dst
	case *ListQuery:
		dst = append(appendText(dst, q.Queue), byte(q.State))
		for _, v := range [...]uint64{
			unsigned(q.DueAfter), unsigned(q.DueBefore), unsigned(q.After.Due), q.After.Serial, uint64(max(q.Max, 0)),
		} {
			dst = binary.AppendUvarint(dst, v)
		}
		return dst
	case *QueueQuery:
		return appendText(dst, q.Queue)
	case *QueuesQuery:
		return binary.AppendUvarint(appendText(appendText(dst, q.Prefix), q.After), uint64(max(q.Max, 0)))
	case *RecallQuery:
		return append(appendText(appendText(dst, q.Caller), q.RequestID), q.Content[:]...)
	case *HeldQuery:
		dst = binary.AppendUvarint(dst, uint64(len(q.Grants)))
		for i := range q.Grants {
			dst = appendGrant(dst, &q.Grants[i])
		}
		return dst
	}
	panic("fsm: query without an encoding")
}

// ParseQuery reads a query back. It shares no memory with b. Errors wrap ErrDamaged or ErrVersion.
func ParseQuery(b []byte) (Query, error) {
	r := newReader(b)
	format := r.format()
	q := r.query(format, QueryKind(r.byte()))
	if err := r.checkEnd(); err != nil {
		return nil, err
	}
	return q, nil
}

// query reads the fields of a query.
func (r *reader) query(format Format, kind QueryKind) Query {
	switch kind {
	case KindJobQuery:
		return &JobQuery{Queue: r.text(), ID: r.text(), Ended: format >= 2 && r.flag()}
	case KindListQuery:
		return &ListQuery{
			Queue: r.text(), State: State(r.byte()), DueAfter: r.time(), DueBefore: r.time(),
			After: Cursor{Due: r.time(), Serial: r.uvarint()}, Max: r.limit(),
		}
	case KindQueueQuery:
		return &QueueQuery{Queue: r.text()}
	case KindQueuesQuery:
		return &QueuesQuery{Prefix: r.text(), After: r.text(), Max: r.limit()}
	case KindRecallQuery:
		return &RecallQuery{Caller: r.text(), RequestID: r.text(), Content: r.array16()}
	case KindHeldQuery:
		return &HeldQuery{Grants: r.grants()}
	default:
		r.fail(fmt.Errorf("%w: query kind %d", ErrVersion, kind))
		return nil
	}
}

// limit reads the largest number of things that a query wants.
func (r *reader) limit() int {
	v := r.uvarint()
	if v > math.MaxInt32 {
		r.damaged("limit out of range")
		return 0
	}
	return int(v)
}

// format reads the format of a query or of a reading.
func (r *reader) format() Format {
	f := Format(r.byte())
	if r.err == nil {
		if err := f.Readable(); err != nil {
			r.fail(err)
		}
	}
	return f
}

// AppendReading is AppendReadingIn for FirstFormat.
func AppendReading(dst []byte, v *Reading) []byte { return AppendReadingIn(dst, FirstFormat, v) }

// AppendReadingIn appends the encoding of a reading to dst. What the format does not have is left out.
func AppendReadingIn(dst []byte, format Format, v *Reading) []byte {
	dst = appendFlag(append(dst, byte(format), byte(v.Kind), byte(v.Code)), v.More)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, unsigned(v.Clock)), unsigned(v.Now))
	dst = binary.AppendUvarint(dst, uint64(len(v.Jobs)))
	queue := ""
	for i := range v.Jobs {
		dst = appendJob(dst, &v.Jobs[i], queue)
		if format >= 2 {
			dst = appendFlag(binary.AppendUvarint(dst, unsigned(v.Jobs[i].Ended)), v.Jobs[i].AttemptUnknown)
		}
		queue = v.Jobs[i].Queue
	}
	dst = binary.AppendUvarint(dst, uint64(len(v.Queues)))
	for i := range v.Queues {
		dst = appendQueue(dst, &v.Queues[i])
		if format >= 2 {
			dst = append(appendRecent(dst, v.Queues[i].Recent), byte(v.Queues[i].Format))
		}
	}
	return dst
}

// ParseReading reads a reading back. The bodies of its jobs alias b, so that they are not copied once more; nothing else does.
// Errors wrap ErrDamaged or ErrVersion.
func ParseReading(b []byte) (Reading, error) {
	r := reader{b: b}
	format := r.format()
	v := Reading{Kind: QueryKind(r.byte()), Code: Code(r.byte())}
	if r.err == nil && (v.Kind < KindJobQuery || v.Kind > KindHeldQuery || v.Code > Restoring) {
		r.fail(fmt.Errorf("%w: reading of kind %d, code %d", ErrVersion, v.Kind, v.Code))
	}
	v.More, v.Clock, v.Now = r.flag(), r.time(), r.time()
	if n := r.length(jobBytesMin); n > 0 {
		v.Jobs = make([]Job, n)
	}
	queue := ""
	for i := range v.Jobs {
		r.job(&v.Jobs[i], queue)
		if format >= 2 {
			v.Jobs[i].Ended, v.Jobs[i].AttemptUnknown = r.time(), r.flag()
		}
		queue = v.Jobs[i].Queue
	}
	if n := r.length(queueBytesMin); n > 0 {
		v.Queues = make([]Queue, n)
	}
	for i := range v.Queues {
		r.queue(&v.Queues[i])
		if format >= 2 {
			v.Queues[i].Recent, v.Queues[i].Format = r.recent(), Format(r.byte())
		}
	}
	if err := r.checkEnd(); err != nil {
		return Reading{}, err
	}
	return v, nil
}

// A job of a reading is a byte of jobFields, the queue unless it is that of the job before, the id unless it is generated, and the
// other fields in the order of appendJob. At the end is the body, or its size alone.
const (
	jobQueueBefore = 1 << iota
	jobGenerated
	jobBody
	jobFieldsEnd
)

// jobBytesMin and queueBytesMin are the least bytes of a job and of a queue.
const (
	jobBytesMin   = 20
	queueBytesMin = 40
)

func appendJob(dst []byte, j *Job, queueBefore string) []byte {
	fields := byte(0)
	for bit, set := range [...]bool{j.Queue == queueBefore, j.Generated, j.Body != nil} {
		if set {
			fields |= 1 << bit
		}
	}
	dst = append(dst, fields, byte(j.State), byte(j.Priority), byte(j.Given))
	if fields&jobQueueBefore == 0 {
		dst = appendText(dst, j.Queue)
	}
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(j.Partition)), j.Serial)
	if !j.Generated {
		dst = appendText(dst, j.ID)
	}
	for _, v := range [...]uint64{
		unsigned(j.Due), unsigned(j.FirstDue), unsigned(j.Created), unsigned(j.TTL), unsigned(j.TTR), uint64(j.MaxAttempts),
		uint64(j.Attempt), j.Fence, unsigned(j.Until), unsigned(j.LeaseTTR), uint64(j.Redrives), unsigned(j.Died),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = appendHeaders(appendText(appendDurations(dst, j.RetryDelays), j.LastError), j.Headers)
	if j.Body == nil {
		return binary.AppendUvarint(dst, uint64(j.BodyBytes))
	}
	return append(binary.AppendUvarint(dst, uint64(len(j.Body))), j.Body...)
}

// job reads a job. A generated id is made again from partition and serial.
func (r *reader) job(j *Job, queueBefore string) {
	fields := r.byte()
	if fields >= jobFieldsEnd {
		r.fail(fmt.Errorf("%w: job with fields %08b", ErrVersion, fields))
	}
	j.State, j.Priority, j.Given = State(r.byte()), int8(r.byte()), Given(r.byte())
	if j.State > Expired {
		r.fail(fmt.Errorf("%w: state %d", ErrVersion, j.State))
	}
	if j.Queue = queueBefore; fields&jobQueueBefore == 0 {
		j.Queue = r.text()
	}
	j.Partition, j.Serial = r.uint32(), r.uvarint()
	if j.Generated = fields&jobGenerated != 0; j.Generated {
		j.ID = FormatID(j.Partition, j.Serial)
	} else {
		j.ID = r.text()
	}
	j.Due, j.FirstDue, j.Created, j.TTL, j.TTR, j.MaxAttempts = r.time(), r.time(), r.time(), r.time(), r.duration(), r.uint32()
	j.Attempt, j.Fence, j.Until, j.LeaseTTR, j.Redrives, j.Died = r.uint32(), r.uvarint(), r.time(), r.duration(), r.uint32(), r.time()
	j.RetryDelays, j.LastError, j.Headers = r.durations(), r.text(), r.headers()
	if fields&jobBody != 0 {
		j.Body = r.bytes()
		j.BodyBytes = uint32(len(j.Body))
	} else {
		j.BodyBytes = r.uint32()
	}
}

func appendQueue(dst []byte, q *Queue) []byte {
	dst = binary.AppendUvarint(appendPartition(dst, q.Name, q.Partition, q.Partitions), q.Version)
	dst = appendCounts(appendSettings(dst, &q.Settings), &q.Counts, &q.Counters)
	for _, v := range [...]uint64{unsigned(q.OldestReady), unsigned(q.NextDue), unsigned(q.Created), unsigned(q.DedupSince), q.Tombstones} {
		dst = binary.AppendUvarint(dst, v)
	}
	return appendDue(dst, &q.Due)
}

func (r *reader) queue(q *Queue) {
	q.Name, q.Partition, q.Partitions, q.Version, q.Settings = r.text(), r.uint32(), r.uint32(), r.uvarint(), r.settings()
	r.counts(&q.Counts, &q.Counters)
	q.OldestReady, q.NextDue, q.Created, q.DedupSince, q.Tombstones = r.time(), r.time(), r.time(), r.time(), r.uvarint()
	q.Due = r.due()
}

// appendDue appends: uvarint overdue, minute, hour, day, month, later; then the slices of minutes, hours and days.
func appendDue(dst []byte, v *Due) []byte {
	for _, n := range [...]uint64{v.Overdue, v.Minute, v.Hour, v.Day, v.Month, v.Later} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = appendSlices(dst, v.Minutes, minute)
	dst = appendSlices(dst, v.Hours, hour)
	return appendSlices(dst, v.Days, day)
}

func (r *reader) due() Due {
	return Due{
		Overdue: r.uvarint(), Minute: r.uvarint(), Hour: r.uvarint(), Day: r.uvarint(), Month: r.uvarint(), Later: r.uvarint(),
		Minutes: r.slices(minute), Hours: r.slices(hour), Days: r.slices(day),
	}
}

// appendSlices appends: uvarint number of slices, then of each its number since the epoch and its jobs.
func appendSlices(dst []byte, list []DueSlice, length Time) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, s := range list {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, unsigned(s.Start/length)), s.Jobs)
	}
	return dst
}

func (r *reader) slices(length Time) []DueSlice {
	n := r.length(2)
	if n == 0 {
		return nil
	}
	list := make([]DueSlice, n)
	for i := range list {
		number := r.uvarint()
		if number > uint64(TimeMax/length) {
			r.damaged("slice out of range")
			return nil
		}
		list[i] = DueSlice{Start: Time(number) * length, Jobs: r.uvarint()}
	}
	return list
}

// appendRecent appends: flag known; if so uvarints window, puts, grants, acks, lateMax, number of buckets and each up to
// the last that is not empty.
func appendRecent(dst []byte, v *Recent) []byte {
	if dst = appendFlag(dst, v != nil); v == nil {
		return dst
	}
	buckets := len(v.Late)
	for buckets > 0 && v.Late[buckets-1] == 0 {
		buckets--
	}
	for _, n := range [...]uint64{uint64(v.Window), v.Puts, v.Grants, v.Acks, uint64(v.LateMax), uint64(buckets)} {
		dst = binary.AppendUvarint(dst, n)
	}
	for _, n := range v.Late[:buckets] {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

func (r *reader) recent() *Recent {
	if !r.flag() {
		return nil
	}
	v := &Recent{Window: r.duration(), Puts: r.uvarint(), Grants: r.uvarint(), Acks: r.uvarint(), LateMax: r.duration()}
	buckets := r.length(1)
	if buckets > len(v.Late) {
		r.damaged("too many buckets of lateness")
		return nil
	}
	for i := range buckets {
		v.Late[i] = r.uvarint()
	}
	return v
}
