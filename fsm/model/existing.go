package model

import (
	"cmp"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// versionOf is the version of the last content that was put for the id of a job.
func (j *job) versionOf() uint64 {
	if j.Next != nil {
		return j.Next.Version
	}
	return max(j.Version, 1)
}

// putHeld is rule Put (b) for an id that a held job has.
func (m *Model) putHeld(q *queue, c *fsm.Put, held *job) fsm.Result {
	if c.OnExisting >= fsm.ReplaceExisting && held.Key != c.Key {
		return fsm.Result{Code: fsm.JobExists}
	}
	if c.IfVersion != 0 && c.IfVersion != held.versionOf() {
		return fsm.Result{Code: fsm.VersionChanged, State: held.State, Version: held.versionOf()}
	}
	switch {
	case c.OnExisting == fsm.ReturnExisting:
		return q.putAgain(codec.ContentHash(c) == held.content, held.State, held.Serial, held.FirstDue)
	case c.OnExisting == fsm.KeepExisting:
		result := q.putAgain(c.Key == held.Key, held.State, held.Serial, held.FirstDue)
		if result.Code == fsm.OK {
			result.Version = held.versionOf()
		}
		return result
	case held.State != fsm.Reserved:
		return m.replace(q, c, held)
	case c.OnExisting == fsm.ReplaceExisting:
		return fsm.Result{Code: fsm.JobReserved, State: fsm.Reserved, Version: held.versionOf()}
	default:
		return m.putNext(q, c, held)
	}
}

// replacement is the job that a put makes of one that was first put at a time.
func (m *Model) replacement(q *queue, c *fsm.Put, first fsm.Time) *job {
	j := m.newJob(q, c)
	j.Created = first
	if c.MaxWait > 0 {
		j.FirstDue = min(j.FirstDue, first.After(c.MaxWait))
	}
	j.Due, j.State = j.FirstDue, m.stateAt(j.FirstDue)
	return j
}

// grows reports whether maxBytes forbids a content in place of another.
func (q *queue) grows(before, bytes uint64) bool {
	limit := q.partitionLimit(q.Settings.MaxBytes)
	return limit > 0 && bytes > before && q.count().Bytes-before+bytes > limit
}

// replace is what REPLACE and NEXT do with a job that is not RESERVED.
func (m *Model) replace(q *queue, c *fsm.Put, held *job) fsm.Result {
	first := held.Created
	if held.State == fsm.Dead || held.Attempt > 0 || held.Died > held.Created {
		first = m.Clock // it starts anew
	}
	j := m.replacement(q, c, first)
	if q.grows(held.bytes(), j.bytes()) {
		return fsm.Result{Code: fsm.QueueFull}
	}
	q.Counters.Duplicate++
	j.Serial, j.Version, j.Place = held.Serial, held.versionOf()+1, held.Place
	j.Fence, j.Until, j.LeaseTTR, j.LastError = held.Fence, held.Until, held.LeaseTTR, held.LastError
	j.Redrives, j.Attempts, j.Died = held.Redrives, held.Attempts, held.Died
	if c.FIFO {
		j.Uses = held.Uses
	}
	if held.State == fsm.Dead {
		q.Counters.Redriven++
		j.Redrives++
		if j.Key != "" && !q.Settings.Keys.HoldOnDead {
			j.Place = m.nextSerial()
		}
	}
	*held = *j
	m.changed(q, held.Key)
	return fsm.Result{
		Replaced: true, State: held.State, Partition: q.Partition, Serial: held.Serial, Due: held.Due, Version: held.Version,
	}
}

// putNext is what NEXT does with a RESERVED job.
func (m *Model) putNext(q *queue, c *fsm.Put, held *job) fsm.Result {
	first, before := m.Clock, uint64(0)
	if held.Next != nil {
		first, before = held.Next.Created, (&job{Job: held.Next.Job}).bytes()
	}
	j := m.replacement(q, c, first)
	j.ID, j.Key = "", "" // it has those of the job, which count once
	if q.grows(before, j.bytes()) {
		return fsm.Result{Code: fsm.QueueFull}
	}
	q.Counters.Duplicate++
	j.Version = held.versionOf() + 1
	result := fsm.Result{
		Replaced: true, State: fsm.Reserved, Partition: q.Partition, Serial: held.Serial, Due: j.FirstDue, Version: j.Version,
	}
	j.Queue, j.Partition, j.State = "", 0, fsm.StateNone // also those of the job, or none yet
	held.Next = &fsm.Successor{Job: j.Job, Content: j.content}
	return result
}

// endJob removes a held job. Its successor becomes a job, or else it leaves a tombstone.
func (m *Model) endJob(q *queue, j *job, state fsm.State) {
	if j.Next == nil {
		m.dropJob(q, j, state)
		return
	}
	next := &job{Job: j.Next.Job, content: j.Next.Content}
	next.Queue, next.Partition, next.ID, next.Key = j.Queue, j.Partition, j.ID, j.Key
	j.State = state
	q.remove(j)
	m.changed(q, j.Key)
	next.Serial = m.nextSerial()
	next.Due, next.State = next.FirstDue, m.stateAt(next.FirstDue)
	q.jobs, m.succeeded = append(q.jobs, next), next
	q.Counters.Put++
	m.changed(q, next.Key)
}

// versionAnswer is the version that a put answers.
func versionAnswer(c *fsm.Put, version uint64) uint64 {
	if c.OnExisting == fsm.ReturnExisting {
		return 0
	}
	return cmp.Or(version, 1)
}
