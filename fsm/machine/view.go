package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/rule"
)

// Job returns a held job by its id, chosen or generated, as it is at time now: as an unlimited
// settling at now would leave it. It reports false if the job is not held then. now must not be
// before Clock.
func (m *Machine) Job(name, id string, now fsm.Time) (fsm.Job, bool) {
	return m.heldJob(&fsm.JobQuery{Queue: name, ID: id}, now)
}

// heldJob is Job for a query.
func (m *Machine) heldJob(query *fsm.JobQuery, now fsm.Time) (fsm.Job, bool) {
	q := m.queues.byName[query.Queue]
	if q == nil {
		return fsm.Job{}, false
	}
	j, _ := m.lookup(q, query.ID, query.Key)
	if j.index == 0 {
		return fsm.Job{}, false
	}
	v := m.view(j)
	return v, m.at(q, &v, now)
}

// endedJob returns what is remembered at time now of a job that has ended.
func (m *Machine) endedJob(query *fsm.JobQuery, now fsm.Time) (fsm.Job, bool) {
	q := m.queues.byName[query.Queue]
	if q == nil {
		return fsm.Job{}, false
	}
	_, tombstone := m.lookup(q, query.ID, query.Key)
	if tombstone == 0 || m.forgottenAt(q, tombstone, now) {
		return fsm.Job{}, false
	}
	t := m.tombstone(q, tombstone)
	attempts, known := m.store.Tomb(tombstone).Attempts()
	return fsm.Job{
		Queue: t.Queue, Partition: m.record(q).Partition, Serial: t.Serial, ID: t.ID, Key: t.Key, State: t.State,
		Due: t.FirstDue, FirstDue: t.FirstDue, Attempt: attempts,
		End: &fsm.End{At: t.Ended, AttemptUnknown: !known},
	}, true
}

// Held returns the job under the lease that ref names, whether or not the lease has lapsed by now.
func (m *Machine) Held(ref fsm.Ref) (fsm.Job, bool) {
	j, ok := m.held(m.queues.byName[ref.Queue], ref)
	if !ok {
		return fsm.Job{}, false
	}
	return m.view(j), true
}

// held finds the job under the lease that ref names in a queue, which may be nil.
func (m *Machine) held(q *queue, ref fsm.Ref) (job, bool) {
	if q == nil {
		return job{}, false
	}
	j := job{m.store.BySerial(q.index, ref.Serial), q}
	if j.index == 0 {
		return job{}, false
	}
	s := m.slot(j)
	live := s.Queue == q.index && s.State() == fsm.Reserved && m.leaseOf(j).Fence == ref.Fence
	return j, live && m.record(q).Partition == ref.Partition
}

// view returns a held job as it is stored.
func (m *Machine) view(j job) (v fsm.Job) {
	m.show(j, &v)
	return v
}

// show is view into a job that is there.
func (m *Machine) show(j job, v *fsm.Job) {
	s, r := m.slot(j), m.record(j.q)
	*v = fsm.Job{
		Queue: j.q.name, Partition: r.Partition, Serial: s.Serial, Generated: !s.HasID(), State: s.State(),
		Priority: m.store.Priority(s), FIFO: s.IsFIFO(), Due: s.Due,
	}
	m.payload(j).Read(v)
	v.BodyBytes = uint32(len(v.Body))
	if v.Generated {
		v.ID = fsm.FormatID(r.Partition, s.Serial)
	}
	if !s.HasTTL() {
		v.TTL = 0
	}
	l := m.leaseOf(j)
	v.Attempt, v.Fence, v.Until, v.LeaseTTR, v.Redrives, v.Died = l.Attempt, l.Fence, l.Until, l.TTR, l.Redrives, l.Died
	m.showWork(&l, v)
	v.Place, v.Next, v.Uses = m.store.Place(&l), m.successorOf(j), m.store.Uses(&l).OrNil()
}

// at changes a stored job to its state at time now, and reports whether it is still held then.
func (m *Machine) at(q *queue, v *fsm.Job, now fsm.Time) bool {
	return rule.Settle(v, m.record(q), m.format, now)
}

// Queue returns what is known of a queue. Counts and counters are as of the last entry; times are
// as of now.
func (m *Machine) Queue(name string, now fsm.Time) (fsm.Queue, bool) {
	q := m.queues.byName[name]
	if q == nil {
		return fsm.Queue{}, false
	}
	r := m.record(q)
	v := fsm.Queue{
		Name: r.Name, Partition: r.Partition, Partitions: r.Partitions, Version: r.Version, Settings: r.Settings.Clone(),
		Counts: r.Counts, Counters: r.Counters, Created: r.Created, Format: r.Format, Tombstones: uint64(q.ended.Len()),
		OldestReady: q.OldestReady(now), DedupSince: max(r.Created, r.Forgotten),
	}
	if window, forever := rule.DedupWindow(&r.Settings); !forever {
		v.DedupSince = max(v.DedupSince, now-fsm.Time(window))
	}
	v.NextDue, v.Urgent = q.NextDue(now), q.Urgent()
	v.Due = q.due.View(now, q.Delayed.FirstAt(), &r.Counts)
	return v, true
}

// Queues returns up to most queues whose names come after the given one, by name, as of the last
// entry.
func (m *Machine) Queues(after string, most int) []fsm.Queue {
	var list []fsm.Queue
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
func (m *Machine) Available(name string, now fsm.Time) (n uint64, next fsm.Time) {
	q := m.queues.byName[name]
	if q == nil || m.restored.Open() {
		return 0, 0
	}
	r := m.record(q)
	if r.Settings.PausedAt(now) {
		return 0, r.Settings.PausedUntil
	}
	n, token := r.Counts.Ready, fsm.Time(0)
	if q.keys != nil {
		n, token = q.keys.Available(now)
	}
	return q.Available(r, n, token, now)
}

// Withheld reports whether a queue gives out no job at time now, due or not. It is paused, has
// reached its maxInFlight, or is being restored.
func (m *Machine) Withheld(name string, now fsm.Time) bool {
	q := m.queues.byName[name]
	if q == nil {
		return false
	}
	r := m.record(q)
	if m.restored.Open() || r.Settings.PausedAt(now) {
		return true
	}
	lapsed, _ := q.Leases.UpTo(now, fsm.StepMax)
	limit := rule.PartitionLimit(r.Settings.MaxInFlight, r)
	if limit > 0 && r.Counts.Reserved-lapsed >= limit {
		return true
	}
	n, _ := m.Available(name, now)
	return n == 0 && r.Counts.Ready > 0 // their keys are held back
}

// Recall returns the live grants of an earlier attempt at a request at time now, nil if there are
// none. The code is Invalid if the request's id is remembered with other content, as Apply would
// answer, else OK.
func (m *Machine) Recall(req *fsm.Request, now fsm.Time) ([]fsm.Grant, fsm.Code) {
	return m.recalled(codec.RecallOf(req), now)
}

// recalled is Recall with the hash of the content.
func (m *Machine) recalled(q *fsm.RecallQuery, now fsm.Time) ([]fsm.Grant, fsm.Code) {
	index := m.store.Answers.Find(q.Caller, q.RequestID)
	if index == 0 || m.store.Answers.Time(index).Add(fsm.RequestWindow) < now {
		return nil, fsm.OK
	}
	a := m.store.Answers.Answer(index)
	if a.Content != q.Content {
		return nil, fsm.Invalid
	}
	var live []fsm.Grant
	for _, res := range a.Results {
		live = append(live, m.liveGrants(res.Grants, now)...)
	}
	return live, fsm.OK
}

// Stats returns the sizes of the machine as of the last entry.
func (m *Machine) Stats() fsm.Stats {
	v := m.store.Stats()
	v.Queues = len(m.queues.byName)
	return v
}
