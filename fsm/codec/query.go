package codec

import (
	"encoding/binary"
	"fmt"
	"github.com/belfrydb/belfry/fsm"
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
//	of a search: uvarints scanned, due and serial of the last job looked at
//	of a list, from format 5 on: uvarints due and serial of the last job
//	of minutes: uvarints since, number of minutes, then each
//	of schedules: uvarint number of schedules, then of each the queue and what AppendSchedule appends
//	of keys: uvarints scanned, next, number of keys, then each
//
// Fields are only ever added at the end of a query, a job or a queue, in a new format.

// AppendQuery is AppendQueryIn for FirstFormat.
func AppendQuery(dst []byte, q fsm.Query) []byte { return AppendQueryIn(dst, fsm.FirstFormat, q) }

// AppendQueryIn appends the encoding of q to dst. What the format does not have is left out.
func AppendQueryIn(dst []byte, format fsm.Format, q fsm.Query) []byte {
	dst = append(dst, byte(format), byte(q.Kind()))
	switch q := q.(type) {
	case *fsm.JobQuery:
		dst = AppendText(AppendText(dst, q.Queue), q.ID)
		if format >= 2 {
			dst = appendFlag(dst, q.Ended)
		}
		if format >= fsm.KeysFormat {
			dst = AppendText(dst, q.Key)
		}
		return dst
	case *fsm.ListQuery:
		return appendList(dst, q)
	case *fsm.SearchQuery:
		dst = appendList(dst, &q.ListQuery)
		for _, text := range [...]string{q.Match.IDPrefix, q.Match.Text, q.Match.Cause} {
			dst = AppendText(dst, text)
		}
		dst = binary.AppendUvarint(dst, uint64(max(q.Scan, 0)))
		if format >= fsm.KeysFormat {
			dst = AppendText(dst, q.Match.Key)
		}
		return dst
	case *fsm.KeysQuery:
		dst = append(AppendText(AppendText(dst, q.Queue), q.Prefix), byte(q.State))
		return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(q.From)), uint64(max(q.Scan, 0)))
	case *fsm.MinuteQuery:
		return AppendText(dst, q.Queue)
	case *fsm.SchedulesQuery:
		dst = AppendText(AppendText(AppendText(dst, q.Queue), q.Prefix), q.After)
		return appendTexts(binary.AppendUvarint(dst, uint64(max(q.Max, 0))), q.Names)
	case *fsm.ScheduleQuery:
		return AppendText(AppendText(dst, q.Queue), q.Name)
	case *fsm.QueueQuery:
		return AppendText(dst, q.Queue)
	case *fsm.SerialQuery:
		return binary.AppendUvarint(dst, q.Serial)
	case *fsm.FirstQuery:
		return append(AppendText(dst, q.Queue), byte(q.State))
	case *fsm.QueuesQuery:
		return binary.AppendUvarint(AppendText(AppendText(dst, q.Prefix), q.After), uint64(max(q.Max, 0)))
	case *fsm.RecallQuery:
		return append(AppendText(AppendText(dst, q.Caller), q.RequestID), q.Content[:]...)
	case *fsm.HeldQuery:
		dst = binary.AppendUvarint(dst, uint64(len(q.Grants)))
		for i := range q.Grants {
			dst = appendGrant(dst, &q.Grants[i])
		}
		return dst
	}
	panic("fsm: query without an encoding")
}

// ParseQuery reads a query back. It shares no memory with b. Errors wrap ErrDamaged or ErrVersion.
func ParseQuery(b []byte) (fsm.Query, error) {
	r := NewReader(b)
	format := r.format()
	q := r.query(format, fsm.QueryKind(r.Byte()))
	if err := r.CheckEnd(); err != nil {
		return nil, err
	}
	return q, nil
}

// query reads the fields of a query.
func (r *Reader) query(format fsm.Format, kind fsm.QueryKind) fsm.Query {
	if kind.Format() >= fsm.FIFOFormat && kind.Format() > format {
		r.fail(fmt.Errorf("%w: query kind %d in format %d", fsm.ErrVersion, kind, format))
		return nil
	}
	switch kind {
	case fsm.KindJobQuery:
		q := &fsm.JobQuery{Queue: r.Text(), ID: r.Text(), Ended: format >= 2 && r.flag()}
		if format >= fsm.KeysFormat {
			q.Key = r.Text()
		}
		return q
	case fsm.KindListQuery:
		q := r.list()
		return &q
	case fsm.KindSearchQuery:
		q := &fsm.SearchQuery{
			ListQuery: r.list(), Match: fsm.Match{IDPrefix: r.Text(), Text: r.Text(), Cause: r.Text()}, Scan: r.limit(),
		}
		if format >= fsm.KeysFormat {
			q.Match.Key = r.Text()
		}
		return q
	case fsm.KindKeysQuery:
		return &fsm.KeysQuery{
			Queue: r.Text(), Prefix: r.Text(), State: fsm.State(r.Byte()), From: r.Uint32(), Scan: r.limit(),
		}
	case fsm.KindMinuteQuery:
		return &fsm.MinuteQuery{Queue: r.Text()}
	case fsm.KindSchedulesQuery:
		return &fsm.SchedulesQuery{
			Queue: r.Text(), Prefix: r.Text(), After: r.Text(), Max: r.limit(), Names: r.texts(nil),
		}
	case fsm.KindScheduleQuery:
		return &fsm.ScheduleQuery{Queue: r.Text(), Name: r.Text()}
	case fsm.KindQueueQuery:
		return &fsm.QueueQuery{Queue: r.Text()}
	case fsm.KindSerialQuery:
		return &fsm.SerialQuery{Serial: r.Uvarint()}
	case fsm.KindFirstQuery:
		return &fsm.FirstQuery{Queue: r.Text(), State: fsm.State(r.Byte())}
	case fsm.KindQueuesQuery:
		return &fsm.QueuesQuery{Prefix: r.Text(), After: r.Text(), Max: r.limit()}
	case fsm.KindRecallQuery:
		return &fsm.RecallQuery{Caller: r.Text(), RequestID: r.Text(), Content: r.Array16()}
	case fsm.KindHeldQuery:
		return &fsm.HeldQuery{Grants: r.grants()}
	default:
		r.fail(fmt.Errorf("%w: query kind %d", fsm.ErrVersion, kind))
		return nil
	}
}

// known reports whether this program knows a kind of query.
func known(kind fsm.QueryKind) bool {
	return kind >= fsm.KindJobQuery && kind <= fsm.KindFirstQuery
}

func appendList(dst []byte, q *fsm.ListQuery) []byte {
	dst = append(AppendText(dst, q.Queue), byte(q.State))
	for _, v := range [...]uint64{
		Unsigned(q.DueAfter), Unsigned(q.DueBefore), Unsigned(q.After.Due), q.After.Serial, uint64(max(q.Max, 0)),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

func (r *Reader) list() fsm.ListQuery {
	return fsm.ListQuery{
		Queue: r.Text(), State: fsm.State(r.Byte()), DueAfter: r.Time(), DueBefore: r.Time(),
		After: fsm.Cursor{Due: r.Time(), Serial: r.Uvarint()}, Max: r.limit(),
	}
}

// limit reads the largest number of things that a query wants.
func (r *Reader) limit() int {
	v := r.Uvarint()
	if v > math.MaxInt32 {
		r.Damaged("limit out of range")
		return 0
	}
	return int(v)
}

// format reads the format of a query or of a reading.
func (r *Reader) format() fsm.Format {
	f := fsm.Format(r.Byte())
	if r.err == nil {
		if err := f.Readable(); err != nil {
			r.fail(err)
		}
	}
	return f
}

// AppendReading is AppendReadingIn for FirstFormat.
func AppendReading(dst []byte, v *fsm.Reading) []byte {
	return AppendReadingIn(dst, fsm.FirstFormat, v)
}

// AppendReadingIn appends the encoding of a reading to dst. What the format does not have is left
// out.
func AppendReadingIn(dst []byte, format fsm.Format, v *fsm.Reading) []byte {
	dst = appendFlag(append(dst, byte(format), byte(v.Kind), byte(v.Code)), v.More)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(v.Clock)), Unsigned(v.Now))
	dst = binary.AppendUvarint(dst, uint64(len(v.Jobs)))
	queue := ""
	for i := range v.Jobs {
		dst = appendJob(dst, &v.Jobs[i], queue)
		if format >= 2 {
			dst = appendEnd(dst, v.Jobs[i].End)
		}
		if format >= 3 {
			dst = appendWork(dst, &v.Jobs[i])
		}
		if format >= fsm.KeysFormat {
			dst = appendKeyed(dst, &v.Jobs[i])
		}
		if format >= fsm.FIFOFormat {
			dst = appendFIFO(dst, &v.Jobs[i])
		}
		queue = v.Jobs[i].Queue
	}
	dst = binary.AppendUvarint(dst, uint64(len(v.Queues)))
	for i := range v.Queues {
		dst = appendQueue(dst, &v.Queues[i])
		if format >= 2 {
			dst = append(appendRecent(dst, v.Queues[i].Recent), byte(v.Queues[i].Format))
		}
		if format >= 3 {
			dst = appendParked(dst, v.Queues[i].Parked)
		}
		if format >= fsm.KeysFormat {
			dst = SetLength(AppendKeySettings(append(dst, 0), &v.Queues[i].Settings.Keys), len(dst), 1)
		}
		if format >= fsm.FIFOFormat {
			dst = binary.AppendUvarint(dst, v.Queues[i].Urgent)
		}
	}
	switch v.Kind {
	case fsm.KindSearchQuery:
		for _, n := range [...]uint64{v.Scanned, Unsigned(v.Last.Due), v.Last.Serial} {
			dst = binary.AppendUvarint(dst, n)
		}
	case fsm.KindListQuery:
		if format >= fsm.FIFOFormat {
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(v.Last.Due)), v.Last.Serial)
		}
	case fsm.KindMinuteQuery:
		dst = appendMinutes(dst, v)
	case fsm.KindSchedulesQuery, fsm.KindScheduleQuery:
		dst = appendSchedules(dst, v.Schedules)
	case fsm.KindKeysQuery:
		dst = appendKeys(dst, v)
	default: // the others have no more
	}
	return dst
}

// ParseReading reads a reading back. The bodies of its jobs alias b, so that they are not copied
// once more; nothing else does. Errors wrap ErrDamaged or ErrVersion.
func ParseReading(b []byte) (fsm.Reading, error) {
	r := Reader{B: b}
	format := r.format()
	v := fsm.Reading{Kind: fsm.QueryKind(r.Byte()), Code: fsm.Code(r.Byte())}
	if r.err == nil && (!known(v.Kind) || v.Code > fsm.LastCode) {
		r.fail(fmt.Errorf("%w: reading of kind %d, code %d", fsm.ErrVersion, v.Kind, v.Code))
	}
	v.More, v.Clock, v.Now = r.flag(), r.Time(), r.Time()
	if n := r.Length(jobBytesMin); n > 0 {
		v.Jobs = make([]fsm.Job, n)
	}
	queue := ""
	for i := range v.Jobs {
		r.job(&v.Jobs[i], queue)
		if format >= 2 {
			v.Jobs[i].End = r.end(v.Jobs[i].State)
		}
		if format >= 3 {
			r.work(&v.Jobs[i])
		}
		if format >= fsm.KeysFormat {
			r.keyed(&v.Jobs[i])
		}
		if format >= fsm.FIFOFormat {
			r.fifo(&v.Jobs[i])
		}
		queue = v.Jobs[i].Queue
	}
	if n := r.Length(queueBytesMin); n > 0 {
		v.Queues = make([]fsm.Queue, n)
	}
	for i := range v.Queues {
		r.queue(&v.Queues[i])
		if format >= 2 {
			v.Queues[i].Recent, v.Queues[i].Format = r.recent(), fsm.Format(r.Byte())
		}
		if format >= 3 {
			v.Queues[i].Parked = r.parked()
		}
		if format >= fsm.KeysFormat {
			settings := Reader{B: r.Bytes(), err: r.err}
			v.Queues[i].Settings.Keys = settings.KeySettings()
			r.failWith(settings.err)
		}
		if format >= fsm.FIFOFormat {
			v.Queues[i].Urgent = r.Uvarint()
		}
	}
	switch v.Kind {
	case fsm.KindSearchQuery:
		v.Scanned, v.Last = r.Uvarint(), fsm.Cursor{Due: r.Time(), Serial: r.Uvarint()}
	case fsm.KindListQuery:
		if format >= fsm.FIFOFormat {
			v.Last = fsm.Cursor{Due: r.Time(), Serial: r.Uvarint()}
		}
	case fsm.KindMinuteQuery:
		r.minutes(&v)
	case fsm.KindSchedulesQuery, fsm.KindScheduleQuery:
		v.Schedules = r.schedules()
	case fsm.KindKeysQuery:
		r.keys(&v)
	default: // the others have no more
	}
	if err := r.CheckEnd(); err != nil {
		return fsm.Reading{}, err
	}
	return v, nil
}

// A job of a reading is a byte of these flags, the queue unless it is that of the job before, the
// id unless it is generated, and the other fields in the order of appendJob. At the end is the
// body, or its size alone.
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

func appendJob(dst []byte, j *fsm.Job, queueBefore string) []byte {
	fields := byte(0)
	for bit, set := range [...]bool{j.Queue == queueBefore, j.Generated, j.Body != nil} {
		if set {
			fields |= 1 << bit
		}
	}
	dst = append(dst, fields, byte(j.State), Narrow(j.Priority), byte(j.Given))
	if fields&jobQueueBefore == 0 {
		dst = AppendText(dst, j.Queue)
	}
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(j.Partition)), j.Serial)
	if !j.Generated {
		dst = AppendText(dst, j.ID)
	}
	for _, v := range [...]uint64{
		Unsigned(j.Due), Unsigned(j.FirstDue), Unsigned(j.Created), Unsigned(j.TTL), Unsigned(j.TTR), uint64(j.MaxAttempts),
		uint64(j.Attempt), j.Fence, Unsigned(j.Until), Unsigned(j.LeaseTTR), uint64(j.Redrives), Unsigned(j.Died),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = AppendHeaders(AppendText(AppendDurations(dst, j.RetryDelays), j.LastError), j.Headers)
	if j.Body == nil {
		return binary.AppendUvarint(dst, uint64(j.BodyBytes))
	}
	return append(binary.AppendUvarint(dst, uint64(len(j.Body))), j.Body...)
}

// appendEnd appends the end of a job. The time of nil is 0.
func appendEnd(dst []byte, end *fsm.End) []byte {
	if end == nil {
		end = &fsm.End{}
	}
	return appendFlag(binary.AppendUvarint(dst, Unsigned(end.At)), end.AttemptUnknown)
}

func (r *Reader) end(state fsm.State) *fsm.End {
	at, unknown := r.Time(), r.flag()
	if state <= fsm.Dead && at == 0 && !unknown { // no state of a job that has ended
		return nil
	}
	return &fsm.End{At: at, AttemptUnknown: unknown}
}

// job reads a job. A generated id is made again from partition and serial.
func (r *Reader) job(j *fsm.Job, queueBefore string) {
	fields := r.Byte()
	if fields >= jobFieldsEnd {
		r.fail(fmt.Errorf("%w: job with fields %08b", fsm.ErrVersion, fields))
	}
	j.State, j.Priority, j.Given = fsm.State(r.Byte()), int64(int8(r.Byte())), fsm.Given(r.Byte())
	if j.State > fsm.Expired {
		r.fail(fmt.Errorf("%w: state %d", fsm.ErrVersion, j.State))
	}
	if j.Queue = queueBefore; fields&jobQueueBefore == 0 {
		j.Queue = r.Text()
	}
	j.Partition, j.Serial = r.Uint32(), r.Uvarint()
	if j.Generated = fields&jobGenerated != 0; j.Generated {
		j.ID = fsm.FormatID(j.Partition, j.Serial)
	} else {
		j.ID = r.Text()
	}
	j.Due, j.FirstDue, j.Created, j.TTL, j.TTR, j.MaxAttempts = r.Time(), r.Time(), r.Time(), r.Time(), r.duration(),
		r.Uint32()
	j.Attempt, j.Fence, j.Until, j.LeaseTTR, j.Redrives, j.Died = r.Uint32(), r.Uvarint(), r.Time(), r.duration(),
		r.Uint32(), r.Time()
	j.RetryDelays, j.LastError, j.Headers = r.durations(), r.Text(), r.headers()
	if fields&jobBody != 0 {
		j.Body = r.Bytes()
		j.BodyBytes = uint32(len(j.Body))
	} else {
		j.BodyBytes = r.Uint32()
	}
}

func appendQueue(dst []byte, q *fsm.Queue) []byte {
	dst = binary.AppendUvarint(appendPartition(dst, q.Name, q.Partition, q.Partitions), q.Version)
	dst = appendCounts(AppendSettings(dst, &q.Settings), &q.Counts, &q.Counters)
	for _, v := range [...]uint64{Unsigned(q.OldestReady), Unsigned(q.NextDue), Unsigned(q.Created),
		Unsigned(q.DedupSince), q.Tombstones} {
		dst = binary.AppendUvarint(dst, v)
	}
	return appendDue(dst, &q.Due)
}

func (r *Reader) queue(q *fsm.Queue) {
	q.Name, q.Partition, q.Partitions, q.Version, q.Settings = r.Text(), r.Uint32(), r.Uint32(), r.Uvarint(), r.Settings()
	r.counts(&q.Counts, &q.Counters)
	q.OldestReady, q.NextDue, q.Created, q.DedupSince, q.Tombstones = r.Time(), r.Time(), r.Time(), r.Time(), r.Uvarint()
	q.Due = r.due()
}

// appendDue appends: uvarint overdue, minute, hour, day, month, later; then the slices of minutes,
// hours and days.
func appendDue(dst []byte, v *fsm.Due) []byte {
	for _, n := range [...]uint64{v.Overdue, v.Minute, v.Hour, v.Day, v.Month, v.Later} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = appendSlices(dst, v.Minutes, fsm.Minute)
	dst = appendSlices(dst, v.Hours, fsm.Hour)
	return appendSlices(dst, v.Days, fsm.Day)
}

func (r *Reader) due() fsm.Due {
	return fsm.Due{
		Overdue: r.Uvarint(), Minute: r.Uvarint(), Hour: r.Uvarint(), Day: r.Uvarint(), Month: r.Uvarint(),
		Later:   r.Uvarint(),
		Minutes: r.slices(fsm.Minute), Hours: r.slices(fsm.Hour), Days: r.slices(fsm.Day),
	}
}

// appendSlices appends: uvarint number of slices, then of each its number since the epoch and its
// jobs.
func appendSlices(dst []byte, list []fsm.DueSlice, length fsm.Time) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, s := range list {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, Unsigned(s.Start/length)), s.Jobs)
	}
	return dst
}

func (r *Reader) slices(length fsm.Time) []fsm.DueSlice {
	n := r.Length(2)
	if n == 0 {
		return nil
	}
	list := make([]fsm.DueSlice, n)
	for i := range list {
		number := r.Uvarint()
		if number > uint64(fsm.TimeMax/length) {
			r.Damaged("slice out of range")
			return nil
		}
		list[i] = fsm.DueSlice{Start: fsm.Time(number) * length, Jobs: r.Uvarint()}
	}
	return list
}

// appendParked appends: uvarint 0 if it is not known, else one more than the number.
func appendParked(dst []byte, calls *uint64) []byte {
	if calls == nil {
		return append(dst, 0)
	}
	return binary.AppendUvarint(dst, *calls+1)
}

func (r *Reader) parked() *uint64 {
	n := r.Uvarint()
	if n == 0 {
		return nil
	}
	n--
	return &n
}

// appendRecent appends: flag known; if so uvarints window, puts, grants, acks, lateMax, number of
// buckets and each up to the last that is not empty.
func appendRecent(dst []byte, v *fsm.Recent) []byte {
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

func (r *Reader) recent() *fsm.Recent {
	if !r.flag() {
		return nil
	}
	v := &fsm.Recent{
		Window: r.duration(), Puts: r.Uvarint(), Grants: r.Uvarint(), Acks: r.Uvarint(), LateMax: r.duration(),
	}
	buckets := r.Length(1)
	if buckets > len(v.Late) {
		r.Damaged("too many buckets of lateness")
		return nil
	}
	for i := range buckets {
		v.Late[i] = r.Uvarint()
	}
	return v
}
