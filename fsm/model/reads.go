package model

import (
	"slices"
	"strings"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
)

// Job returns the held job with an id as it would be if its queue were settled at now, the clock or
// later, without bounds.
func (m *Model) Job(queueName, id string, now fsm.Time) (fsm.Job, bool) {
	q := m.queue(queueName)
	if q == nil || q.byID(id) == nil {
		return fsm.Job{}, false
	}
	return m.at(q, q.byID(id), now)
}

// at settles a shard with nothing but a copy of the one job, to see what becomes of it; false means
// that it is not held then.
func (m *Model) at(q *queue, j *job, now fsm.Time) (fsm.Job, bool) {
	then := New(m.cfg)
	then.Speak(m.format)
	then.Clock = max(m.Clock, now)
	copied := *j
	alone := &queue{QueueRecord: q.QueueRecord, jobs: []*job{&copied}}
	then.settleQueue(alone)
	then.settleQueue(alone) // what followed it may be over as well
	if len(alone.jobs) == 0 {
		return fsm.Job{}, false
	}
	left := alone.jobs[0].Job
	left.Serial = j.Serial // one that follows has none yet
	if left.State == fsm.Dead && left.FIFO && j.State != fsm.Dead {
		left.Fence = j.Fence // nor has one that dies
	}
	return left, true
}

// Held returns the job that is reserved with the fence of ref.
func (m *Model) Held(ref fsm.Ref) (fsm.Job, bool) {
	if q := m.queue(ref.Queue); q != nil && q.Partition == ref.Partition {
		if j := q.bySerial(ref.Serial); j != nil && j.State == fsm.Reserved && j.Fence == ref.Fence {
			return j.Job, true
		}
	}
	return fsm.Job{}, false
}

// Queue returns what a reader sees of a queue at now.
func (m *Model) Queue(name string, now fsm.Time) (fsm.Queue, bool) {
	q := m.queue(name)
	if q == nil {
		return fsm.Queue{}, false
	}
	return m.view(q, now), true
}

// oldest returns the due time of the job that counts as ready longest, of jobs in their order. Of the READY
// jobs the first one of each priority counts, with a key and without.
func oldest(jobs []*job) (due fsm.Time) {
	type class struct {
		keyed    bool
		priority int64
	}
	passed := map[class]bool{}
	for _, j := range jobs {
		of := class{j.Key != "", j.Priority}
		if j.State == fsm.Ready && passed[of] {
			continue
		}
		passed[of] = passed[of] || j.State == fsm.Ready
		if due == 0 || j.Due < due {
			due = j.Due
		}
	}
	return due
}

func (m *Model) view(q *queue, now fsm.Time) fsm.Queue {
	v := fsm.Queue{
		Name: q.Name, Partition: q.Partition, Partitions: q.Partitions, Version: q.Version, Settings: q.Settings.Clone(),
		Counts: q.count(), Counters: q.Counters, Created: q.Created, Format: q.Format,
		Tombstones: uint64(len(m.tombstonesOf(q))),
	}
	isReady := func(j *job) bool { return j.State == fsm.Ready || j.State == fsm.Delayed && j.Due <= now }
	v.OldestReady = oldest(q.jobsBy(byRank, isReady))
	v.Urgent = uint64(len(q.jobsBy(byRank, func(j *job) bool { return j.State == fsm.Ready && j.Priority < 1024 })))
	if jobs := q.jobsBy(byDue, func(j *job) bool { return j.State == fsm.Delayed && j.Due > now }); len(jobs) > 0 {
		v.NextDue = jobs[0].Due
	}
	v.DedupSince = max(q.Forgotten, q.Created)
	if !q.Settings.DedupForever {
		v.DedupSince = max(v.DedupSince, now-fsm.Time(q.window()))
	}
	v.Due = q.due(now)
	return v
}

// due counts the delayed jobs, for each slice anew.
func (q *queue) due(now fsm.Time) fsm.Due {
	v := fsm.Due{Overdue: q.count().Ready}
	_, v.Minute = q.slices(now, time.Minute, 1)
	v.Minutes, v.Hour = q.slices(now, time.Minute, 60)
	v.Hours, v.Day = q.slices(now, time.Hour, 24)
	v.Days, v.Month = q.slices(now, 24*time.Hour, 30)
	past := len(q.jobsBy(byDue, func(j *job) bool { return j.State == fsm.Delayed && j.Due < start(now, time.Minute) }))
	v.Overdue += uint64(past)
	v.Later = q.count().Delayed - uint64(past) - v.Month
	return v
}

// slices counts the delayed jobs of so many slices from the present one on, but for those whose
// minute is over. Empty slices are left out.
func (q *queue) slices(now fsm.Time, length time.Duration, most int) (list []fsm.DueSlice, sum uint64) {
	for i := range most {
		from := start(now, length) + fsm.Time(i)*fsm.Time(length)
		jobs := q.jobsBy(byDue, func(j *job) bool {
			return j.State == fsm.Delayed && j.Due >= max(from, start(now, time.Minute)) && j.Due < from+fsm.Time(length)
		})
		if n := uint64(len(jobs)); n > 0 {
			list = append(list, fsm.DueSlice{Start: from, Jobs: n})
			sum += n
		}
	}
	return list, sum
}

// start returns when the slice began that now is in.
func start(now fsm.Time, length time.Duration) fsm.Time { return now - now%fsm.Time(length) }

// Queues returns all queues by name.
func (m *Model) Queues(now fsm.Time) []fsm.Queue {
	var list []fsm.Queue
	for _, q := range m.queues {
		list = append(list, m.view(q, now))
	}
	slices.SortFunc(list, func(a, b fsm.Queue) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Jobs returns the held jobs of a queue as they are stored, in put order.
func (m *Model) Jobs(queue string) []fsm.Job {
	var list []fsm.Job
	if q := m.queue(queue); q != nil {
		for _, j := range q.jobs {
			list = append(list, j.Job)
		}
	}
	return list
}

// List returns a page of the jobs that are in a state at a time, by (due, serial), and whether
// there are more.
func (m *Model) List(query *fsm.ListQuery, now fsm.Time) (jobs []fsm.Job, more bool) {
	q := m.queue(query.Queue)
	if q == nil {
		return nil, false
	}
	var matching []*job
	for _, stored := range q.jobs {
		j, held := m.at(q, stored, now)
		due, serial := (&job{Job: j}).place()
		after := due > query.After.Due || due == query.After.Due && serial > query.After.Serial
		before := query.DueBefore == 0 || due < query.DueBefore
		if held && j.State == query.State && due >= query.DueAfter && before && after {
			matching = append(matching, &job{Job: j})
		}
	}
	slices.SortFunc(matching, byListPlace)
	for _, j := range atMost(matching, query.Max) {
		jobs = append(jobs, j.Job)
	}
	return jobs, len(matching) > query.Max
}

// Search returns the jobs of a list that match, and how many the list has. Max and Scan bound how much
// of this one answer of a machine has, and so do not count here.
func (m *Model) Search(query *fsm.SearchQuery, now fsm.Time) (found []fsm.Job, looked uint64) {
	list := query.ListQuery
	list.Max = len(m.Jobs(query.Queue))
	jobs, _ := m.List(&list, now)
	for _, j := range jobs {
		text := j.ID + "\x00" + j.LastError + "\x00" + string(j.Body)
		for _, h := range j.Headers {
			text += "\x00" + h.Name + "\x00" + h.Value
		}
		caused := query.Match.Cause == "" || query.Match.Cause == fsm.Fingerprint(j.LastError)
		if query.Match.Key != "" && query.Match.Key != j.Key {
			continue
		}
		if caused && strings.HasPrefix(j.ID, query.Match.IDPrefix) && strings.Contains(text, query.Match.Text) {
			found = append(found, j)
		}
	}
	return found, uint64(len(jobs))
}

// Keys returns the keys of a query in the order of their names, whatever its From and Scan.
func (m *Model) Keys(query *fsm.KeysQuery, now fsm.Time) []fsm.Key {
	var list []fsm.Key
	q := m.queue(query.Queue)
	if q == nil {
		return nil
	}
	names := q.keysOf()
	for _, k := range q.memories {
		if k.Paused && !slices.Contains(names, k.Key) {
			names = append(names, k.Key)
		}
	}
	slices.Sort(names)
	for _, key := range names {
		count := func(state fsm.State) uint32 { return uint32(len(q.jobsBy(byDue, ofKey(key, state)))) }
		v := fsm.Key{
			Name: key, Delayed: count(fsm.Delayed), Ready: count(fsm.Ready), Reserved: count(fsm.Reserved),
			Dead: count(fsm.Dead), Paused: q.memory(key) != nil && q.memory(key).Paused,
		}
		if at := q.tokenAt(key); at > now {
			v.NextToken = at
		}
		if query.State != fsm.StateNone && count(query.State) == 0 || key == "" || !strings.HasPrefix(key, query.Prefix) {
			continue
		}
		waiting := q.jobsBy(byRank, ofKey(key, fsm.Ready))
		if q.Settings.Keys.Ordered {
			waiting = q.jobsBy(byPlace, ofKey(key, fsm.Ready, fsm.Delayed))
		}
		if len(waiting) > 0 {
			v.HeadDue = waiting[0].Due
		}
		for _, reason := range []struct {
			applies bool
			block   fsm.KeyBlock
		}{
			{v.NextToken > 0, fsm.BlockedByRate},
			{q.head(key) == nil, fsm.BlockedByOrder},
			{int(v.Reserved) >= q.concurrency(), fsm.BlockedByLimit},
			{q.Settings.Keys.HoldOnDead && v.Dead > 0, fsm.BlockedByDead},
			{v.Paused, fsm.BlockedByPause},
		} {
			if reason.applies && v.Ready > 0 {
				v.Blocked = reason.block
			}
		}
		list = append(list, v)
	}
	return list
}

// Available returns how many jobs a Reserve at now could get at most, and the next time at which
// that may grow by itself. A backlog of StepMax jobs hides what falls due after it.
func (m *Model) Available(name string, now fsm.Time) (n uint64, next fsm.Time) {
	q := m.queue(name)
	if q == nil || m.restored.Open() {
		return 0, 0
	}
	if q.Settings.PausedAt(now) {
		return 0, q.Settings.PausedUntil
	}
	due := q.jobsBy(byDue, func(j *job) bool { return j.State == fsm.Delayed && j.Due <= now })
	if later := q.jobsBy(byDue, func(j *job) bool {
		return j.State == fsm.Delayed && j.Due > now
	}); len(due) < fsm.StepMax && len(later) > 0 {
		next = later[0].Due
	}
	lapsed := q.jobsBy(byUntil, func(j *job) bool { return j.State == fsm.Reserved && j.Until <= now })
	later := q.jobsBy(byUntil, func(j *job) bool { return j.State == fsm.Reserved && j.Until > now })
	if len(lapsed) < fsm.StepMax && len(later) > 0 && (next == 0 || later[0].Until < next) {
		next = later[0].Until
	}
	lapsing := uint64(min(len(lapsed), fsm.StepMax))
	held := q.count()
	n = uint64(min(len(due), fsm.StepMax)) + lapsing
	for _, key := range q.keysOf() {
		at := q.tokenAt(key)
		switch {
		case key == "":
			n += uint64(len(q.jobsBy(byRank, ofKey(key, fsm.Ready))))
		case q.unblocked(key) && at <= now:
			n += q.grants(key)
		case q.unblocked(key) && (next == 0 || at < next):
			next = at
		}
	}
	if limit := q.partitionLimit(q.Settings.MaxInFlight); limit > 0 {
		n = min(n, limit-min(limit, held.Reserved-lapsing))
	}
	return n, next
}

// Stats returns the sizes of what is held and remembered; it knows no bytes of pages. KeysBlocked is as
// of the clock.
func (m *Model) Stats() fsm.Stats {
	stats := fsm.Stats{
		Queues: len(m.queues), Tombstones: len(m.tombstones), Finished: len(m.finished), Answers: len(m.answers),
		AnswersBytes: m.answersBytes(),
	}
	for _, q := range m.queues {
		stats.Jobs += len(q.jobs)
		stats.Schedules += len(q.schedules)
		for _, s := range q.schedules {
			if s.Paused {
				stats.SchedulesPaused++
			}
		}
		keys := q.keysOf()[1:]
		for _, k := range q.memories {
			if !slices.Contains(keys, k.Key) {
				keys = append(keys, k.Key)
			}
		}
		stats.Keys += len(keys)
		for _, k := range m.Keys(&fsm.KeysQuery{Queue: q.Name}, m.Clock) {
			if k.Blocked != fsm.NotBlocked {
				stats.KeysBlocked[k.Blocked]++
			}
		}
	}
	return stats
}

// Recall returns the grants that a remembered request answered with and whose leases are still held
// at now, or refuses other content.
func (m *Model) Recall(r *fsm.Request, now fsm.Time) ([]fsm.Grant, fsm.Code) {
	then := *m
	then.Clock = max(m.Clock, now)
	a := then.answer(r.Caller, r.ID)
	switch {
	case a == nil:
		return nil, fsm.OK
	case a.Content != codec.RequestHash(r):
		return nil, fsm.Invalid
	}
	var live []fsm.Grant
	for _, r := range a.Results {
		live = append(live, then.live(r.Grants)...)
	}
	return live, fsm.OK
}

// NextDeadline returns the earliest time at which settling some queue would touch a job.
func (m *Model) NextDeadline() (fsm.Time, bool) {
	next := fsm.Time(0)
	if m.restored.Open() {
		return 0, false
	}
	for _, q := range m.queues {
		if t := q.deadline(); t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	return next, next != 0
}

// Digest is rule Digest: the plain sum over all logical records.
func (m *Model) Digest() uint64 {
	sum := digest.Scalars(m.Scalars) + digest.RestoreMark(&m.restored)
	for _, q := range m.queues {
		record := q.QueueRecord
		record.Counts = q.count()
		sum += digest.Queue(&record)
		for _, j := range q.jobs {
			sum += digest.Job(&j.Job, j.content)
		}
		for i := range q.memories {
			sum += digest.KeyMemory(&q.memories[i])
		}
		for _, s := range q.schedules {
			sum += digest.Schedule(s)
		}
	}
	for i := range m.tombstones {
		sum += digest.Tombstone(&m.tombstones[i])
	}
	for _, f := range m.finished {
		sum += digest.Finished(f.serial, f.fence, f.expiry)
	}
	for i := range m.answers {
		sum += digest.Answer(&m.answers[i].Answer)
	}
	return sum
}
