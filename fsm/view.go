package fsm

// Job returns a held job by its id, chosen or generated, as it is at time now: as an unlimited
// settling at now would leave it. It reports false if the job is not held then. now must not be
// before Clock.
func (m *Machine) Job(name, id string, now Time) (Job, bool) {
	q := m.queues.byName[name]
	if q == nil {
		return Job{}, false
	}
	j, _ := m.lookup(q, id)
	if j.index == 0 {
		return Job{}, false
	}
	v := m.view(j)
	return v, m.at(q, &v, now)
}

// endedJob returns what is remembered at time now of a job that has ended.
func (m *Machine) endedJob(name, id string, now Time) (Job, bool) {
	q := m.queues.byName[name]
	if q == nil {
		return Job{}, false
	}
	_, tombstone := m.lookup(q, id)
	if tombstone == 0 || m.forgottenAt(q, tombstone, now) {
		return Job{}, false
	}
	t, attempts := m.tombstone(q, tombstone), m.store.tombs.at(tombstone).attempts
	return Job{
		Queue: t.Queue, Partition: m.record(q).Partition, Serial: t.Serial, ID: t.ID, State: t.State,
		Due: t.FirstDue, FirstDue: t.FirstDue, Ended: t.Ended,
		Attempt: uint32(max(attempts, 1) - 1), AttemptUnknown: attempts == 0,
	}, true
}

// Held returns the job under the lease that ref names, whether or not the lease has lapsed by now.
func (m *Machine) Held(ref Ref) (Job, bool) {
	j, ok := m.held(m.queues.byName[ref.Queue], ref)
	if !ok {
		return Job{}, false
	}
	return m.view(j), true
}

// held finds the job under the lease that ref names in a queue, which may be nil.
func (m *Machine) held(q *queue, ref Ref) (job, bool) {
	if q == nil {
		return job{}, false
	}
	j := job{m.store.bySerial(q.index, ref.Serial), q}
	if j.index == 0 {
		return job{}, false
	}
	s := m.slot(j)
	live := s.queue == q.index && s.state() == Reserved && m.leaseOf(j).fence == ref.Fence
	return j, live && m.record(q).Partition == ref.Partition
}

// view returns a held job as it is stored.
func (m *Machine) view(j job) (v Job) {
	m.show(j, &v)
	return v
}

// show is view into a job that is there.
func (m *Machine) show(j job, v *Job) {
	s, r := m.slot(j), m.record(j.q)
	*v = Job{
		Queue: j.q.name, Partition: r.Partition, Serial: s.serial, Generated: s.flags&slotHasID == 0, State: s.state(),
		Priority: s.priority, Due: s.due,
	}
	m.payload(j).read(v)
	v.BodyBytes = uint32(len(v.Body))
	if v.Generated {
		v.ID = FormatID(r.Partition, s.serial)
	}
	if s.flags&slotHasTTL == 0 {
		v.TTL = 0
	}
	l := m.leaseOf(j)
	v.Attempt, v.Fence, v.Until, v.LeaseTTR, v.Redrives, v.Died = l.attempt, l.fence, l.until, l.ttr, l.redrives, l.died
	v.LastError = m.note(l.note)
}

// at changes a stored job to its state at time now, and reports whether it is still held then.
func (m *Machine) at(q *queue, v *Job, now Time) bool {
	r := m.record(q)
	if v.State == Reserved && v.Until <= now {
		if limit := attemptsMax(v, &r.Settings); limit > 0 && v.Attempt >= limit {
			v.State, v.Died = Dead, now
			return true
		}
		v.State = Ready
		if v.TTL == 0 || v.TTL > now {
			v.Due = v.Until
		}
	}
	if (v.State == Delayed || v.State == Ready) && v.TTL != 0 && v.TTL <= now {
		if !r.Settings.ExpireToDead {
			return false
		}
		v.State, v.TTL, v.Died = Dead, 0, now
		return true
	}
	if v.State == Delayed && v.Due <= now {
		if r.OverdueFrom < v.Due && v.Due <= r.OverdueTo {
			switch {
			case r.Settings.Overdue == DropOverdue:
				return false
			case r.Settings.Overdue == SpreadOverdue && r.Settings.OverduePeriod > 0:
				v.Due = spreadDue(r.OverdueFrom, r.OverdueTo, v.Due, r.Settings.OverduePeriod)
			}
		}
		if v.Due <= now {
			v.State = Ready
		}
	}
	return true
}

// attemptsMax is the number of failed attempts after which a job is dead, 0 if there is no limit.
func attemptsMax(v *Job, s *Settings) uint32 {
	switch {
	case v.Given.Has(GivenMaxAttempts):
		return v.MaxAttempts
	case s.MaxAttemptsSet:
		return s.MaxAttempts
	default:
		return DefaultMaxAttempts
	}
}

// Queue returns what is known of a queue. Counts and counters are as of the last entry; times are as of now.
func (m *Machine) Queue(name string, now Time) (Queue, bool) {
	q := m.queues.byName[name]
	if q == nil {
		return Queue{}, false
	}
	r := m.record(q)
	v := Queue{
		Name: r.Name, Partition: r.Partition, Partitions: r.Partitions, Version: r.Version, Settings: r.Settings.Clone(),
		Counts: r.Counts, Counters: r.Counters, Created: r.Created, Format: r.Format, Tombstones: uint64(q.ended.len()),
		OldestReady: m.oldestReady(q, now), DedupSince: max(r.Created, r.Forgotten),
	}
	if window, forever := dedupWindow(&r.Settings); !forever {
		v.DedupSince = max(v.DedupSince, now-Time(window))
	}
	if v.NextDue = q.delayed.firstAt(); v.NextDue != 0 && v.NextDue <= now {
		next, _ := q.delayed.from(key{at: now + 1})
		v.NextDue = next.at
	}
	v.Due = m.due(q, now)
	return v, true
}

// oldestReady returns the due time of the job that has been ready longest, 0 if none is.
func (m *Machine) oldestReady(q *queue, now Time) Time {
	var oldest Time
	for k, ok := q.ready.min(); ok; k, ok = q.ready.from(key{priority: k.priority, at: TimeMax, serial: 1<<64 - 1}) {
		if oldest == 0 || k.at < oldest {
			oldest = k.at
		}
	}
	if at := q.delayed.firstAt(); at != 0 && at <= now && (oldest == 0 || at < oldest) {
		oldest = at
	}
	return oldest
}

// Queues returns up to most queues whose names come after the given one, by name, as of the last entry.
func (m *Machine) Queues(after string, most int) []Queue {
	var list []Queue
	m.queues.names.AscendGreaterOrEqual(after, func(name string) bool {
		if name == after && after != "" {
			return true
		}
		if len(list) == most {
			return false
		}
		v, _ := m.Queue(name, m.scalars.Clock)
		list = append(list, v)
		return true
	})
	return list
}

// Available returns the number of jobs that a Reserve of this queue at time now could get at most.
// next is the next time after now at which that number may grow by itself; 0 if there is none. With
// StepMax jobs due or leases lapsed and not yet settled, next may leave out later times: the
// settling that follows brings them up.
func (m *Machine) Available(name string, now Time) (n uint64, next Time) {
	q := m.queues.byName[name]
	if q == nil || m.restored.Open() {
		return 0, 0
	}
	r := m.record(q)
	if r.Settings.PausedAt(now) {
		return 0, r.Settings.PausedUntil
	}
	due, nextDue := q.delayed.upTo(now, StepMax)
	lapsed, nextUntil := q.leases.upTo(now, StepMax)
	n, next = r.Counts.Ready+due+lapsed, nextDue
	if nextUntil != 0 && (next == 0 || nextUntil < next) {
		next = nextUntil
	}
	if limit := partitionLimit(r.Settings.MaxInFlight, r); limit > 0 {
		held := r.Counts.Reserved - lapsed
		if held >= limit {
			return 0, next
		}
		n = min(n, limit-held)
	}
	return n, next
}

// Withheld reports whether a queue gives out no job at time now, due or not. It is paused, has
// reached its maxInFlight, or is being restored.
func (m *Machine) Withheld(name string, now Time) bool {
	q := m.queues.byName[name]
	if q == nil {
		return false
	}
	r := m.record(q)
	if m.restored.Open() || r.Settings.PausedAt(now) {
		return true
	}
	lapsed, _ := q.leases.upTo(now, StepMax)
	limit := partitionLimit(r.Settings.MaxInFlight, r)
	return limit > 0 && r.Counts.Reserved-lapsed >= limit
}

// Recall returns the live grants of an earlier attempt at a request at time now, nil if there are
// none. The code is Invalid if the request's id is remembered with other content, as Apply would
// answer, else OK.
func (m *Machine) Recall(req *Request, now Time) ([]Grant, Code) {
	return m.recalled(RecallOf(req), now)
}

// recalled is Recall with the hash of the content.
func (m *Machine) recalled(q *RecallQuery, now Time) ([]Grant, Code) {
	index := m.answers.find(requestKeyHash(m.cfg.Seed, q.Caller, q.RequestID), q.Caller, q.RequestID)
	if index == 0 || m.answers.records.at(index).at.Add(RequestWindow) < now {
		return nil, OK
	}
	r := reader{b: m.answers.at(index)}
	a := r.answer()
	if a.Content != q.Content {
		return nil, Invalid
	}
	var live []Grant
	for _, res := range a.Results {
		live = append(live, m.liveGrants(res.Grants, now)...)
	}
	return live, OK
}

// Stats are the sizes of a machine.
type Stats struct {
	Queues     int
	Jobs       int
	Tombstones int
	Finished   int
	Answers    int
	// AnswersBytes counts against Config.AnswersBytesMax; BlobBytes are all pages that hold bodies and other blobs.
	AnswersBytes int64
	BlobBytes    int64
}

// Stats returns the sizes of the machine as of the last entry.
func (m *Machine) Stats() Stats {
	return Stats{
		Queues: len(m.queues.byName), Jobs: m.store.slots.count(), Tombstones: m.store.tombs.count(),
		Finished: m.finished.records.count(), Answers: m.answers.records.count(), AnswersBytes: m.answers.bytes,
		BlobBytes: m.store.blobs.bytes,
	}
}
