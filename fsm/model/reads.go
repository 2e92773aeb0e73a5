package model

import (
	"slices"
	"strings"

	"github.com/belfrydb/belfry/fsm"
)

// Job returns the held job with an id as it would be if its queue were settled at now, the clock or later, without bounds.
func (m *Model) Job(queueName, id string, now fsm.Time) (fsm.Job, bool) {
	q := m.queue(queueName)
	if q == nil || q.byID(id) == nil {
		return fsm.Job{}, false
	}
	// A shard with nothing but a copy of the one job shows what settling would make of it.
	j := *q.byID(id)
	alone := queue{QueueRecord: q.QueueRecord, jobs: []*job{&j}}
	then := New(m.cfg)
	then.Clock = max(m.Clock, now)
	then.settle(&alone)
	return j.Job, j.State.Held()
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

func (m *Model) view(q *queue, now fsm.Time) fsm.Queue {
	v := fsm.Queue{
		Name: q.Name, Partition: q.Partition, Partitions: q.Partitions, Version: q.Version, Settings: q.Settings.Clone(),
		Counts: q.count(), Counters: q.Counters, Created: q.Created, Tombstones: uint64(len(m.tombstonesOf(q))),
	}
	isReady := func(j *job) bool { return j.State == fsm.Ready || j.State == fsm.Delayed && j.Due <= now }
	if jobs := q.jobsBy(byDue, isReady); len(jobs) > 0 {
		v.OldestReady = jobs[0].Due
	}
	if jobs := q.jobsBy(byDue, func(j *job) bool { return j.State == fsm.Delayed && j.Due > now }); len(jobs) > 0 {
		v.NextDue = jobs[0].Due
	}
	v.DedupSince = max(q.Forgotten, q.Created)
	if !q.Settings.DedupForever {
		v.DedupSince = max(v.DedupSince, now-fsm.Time(q.window()))
	}
	return v
}

// Queues returns all queues by name.
func (m *Model) Queues(now fsm.Time) []fsm.Queue {
	var list []fsm.Queue
	for _, q := range m.queues {
		list = append(list, m.view(q, now))
	}
	slices.SortFunc(list, func(a, b fsm.Queue) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Jobs returns the held jobs of a queue in the given state as stored, in order (due, serial).
func (m *Model) Jobs(queue string, state fsm.State) []fsm.Job {
	var list []fsm.Job
	if q := m.queue(queue); q != nil {
		for _, j := range q.jobsBy(byDue, in(state)) {
			list = append(list, j.Job)
		}
	}
	return list
}

// Recall returns the grants of a remembered Reserve whose leases are still held at now.
func (m *Model) Recall(caller, requestID string, now fsm.Time) []fsm.Grant {
	then := *m
	then.Clock = max(m.Clock, now)
	a := then.answer(caller, requestID)
	if a == nil || len(a.Results) != 1 {
		return nil
	}
	return then.live(a.Results[0].Grants)
}

// NextDeadline returns the earliest time at which settling some queue would touch a job.
func (m *Model) NextDeadline() (fsm.Time, bool) {
	next := fsm.Time(0)
	for _, q := range m.queues {
		if t := q.deadline(); t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	return next, next != 0
}

// Digest is rule Digest: the plain sum over all logical records.
func (m *Model) Digest() uint64 {
	sum := fsm.HashScalars(m.Scalars)
	for _, q := range m.queues {
		record := q.QueueRecord
		record.Counts = q.count()
		sum += fsm.HashQueue(&record)
		for _, j := range q.jobs {
			sum += fsm.HashJob(&j.Job, j.content)
		}
	}
	for i := range m.tombstones {
		sum += fsm.HashTombstone(&m.tombstones[i])
	}
	for _, f := range m.finished {
		sum += fsm.HashFinished(f.serial, f.fence, f.expiry)
	}
	for i := range m.answers {
		sum += fsm.HashAnswer(&m.answers[i])
	}
	return sum
}
