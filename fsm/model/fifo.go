package model

import (
	"cmp"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// normal returns the priority that a job has of one that is asked for: those above the last one that has a
// rank of its own are the same.
func normal(priority int64) int64 {
	switch {
	case priority < -128:
		return -128
	case priority >= 1<<32-129:
		return 1<<32 - 1
	default:
		return priority
	}
}

// fifoNeeded reports whether a job has what only format 5 has.
func fifoNeeded(j *fsm.Job) bool {
	return j.FIFO || j.Priority > 127 || j.Uses != nil || j.Next != nil && fifoNeeded(&j.Next.Job)
}

// place is by what a job is listed in its state.
func (j *job) place() (at fsm.Time, serial uint64) {
	if j.FIFO && j.State == fsm.Ready {
		return j.Created, j.Serial
	}
	if j.FIFO && j.State == fsm.Dead {
		return j.Died, cmp.Or(j.Fence, j.Serial)
	}
	return j.Due, j.Serial
}

// byListPlace is the order of the lists of jobs of one state.
func byListPlace(a, b *job) int {
	at, serial := a.place()
	otherAt, otherSerial := b.place()
	return cmp.Or(cmp.Compare(at, otherAt), cmp.Compare(serial, otherSerial))
}

// used counts what happens to a job, if it is a FIFO job.
func (j *job) used(count func(*fsm.Uses)) {
	if !j.FIFO {
		return
	}
	var u fsm.Uses
	if j.Uses != nil {
		u = *j.Uses
	}
	count(&u)
	j.Uses = &u
}

// kick is rule Kick.
func (m *Model) kick(c *fsm.Kick) fsm.Result {
	q := m.name(c.Queue)
	if c.Serial != 0 {
		return m.kickOne(q, c.Serial)
	}
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}
	}
	jobs := q.jobsBy(byListPlace, in(fsm.Dead))
	if len(jobs) == 0 {
		jobs = q.jobsBy(byDue, in(fsm.Delayed))
	}
	kicked := atMost(jobs, step(c.Max))
	for _, j := range kicked {
		m.wakeEarly(q, j)
	}
	return fsm.Result{Count: uint64(len(kicked)), More: len(jobs) > len(kicked)}
}

func (m *Model) kickOne(q *queue, serial uint64) fsm.Result {
	if q == nil || q.bySerial(serial) == nil {
		return fsm.Result{Code: fsm.JobNotFound}
	}
	switch j := q.bySerial(serial); j.State {
	case fsm.Reserved:
		return fsm.Result{Code: fsm.JobReserved, State: fsm.Reserved}
	case fsm.Ready:
		return fsm.Result{Code: fsm.JobNotFound, State: fsm.Ready}
	default:
		m.wakeEarly(q, j)
		return fsm.Result{Count: 1}
	}
}

func (m *Model) wakeEarly(q *queue, j *job) {
	j.used(func(u *fsm.Uses) { u.Kicks++ })
	if j.State == fsm.Dead {
		m.revive(q, j)
		return
	}
	q.Counters.Rescheduled++
	j.State, j.Due = fsm.Ready, m.Clock.After(0)
	m.changed(q, j.Key)
}

// reserveJob is rule ReserveJob.
func (m *Model) reserveJob(c *fsm.ReserveJob) fsm.Result {
	q := m.name(c.Queue)
	if q == nil || q.bySerial(c.Serial) == nil {
		return fsm.Result{Code: fsm.JobNotFound}
	}
	j := q.bySerial(c.Serial)
	if j.State == fsm.Reserved {
		return fsm.Result{Code: fsm.JobReserved, State: fsm.Reserved}
	}
	if waiting(j) && m.passed(j.TTL) {
		m.expire(q, j)
		return fsm.Result{Code: fsm.JobNotFound, State: j.State}
	}
	k := q.memory(j.Key)
	held := j.Key != "" && (k != nil && k.Paused || q.tokenAt(j.Key) > m.Clock ||
		q.Settings.Keys.HoldOnDead && len(q.jobsBy(byDue, ofKey(j.Key, fsm.Dead))) > 0 ||
		len(q.jobsBy(byDue, ofKey(j.Key, fsm.Reserved))) >= q.concurrency())
	if held || q.room(1) == 0 {
		return fsm.Result{Code: fsm.RateLimited, State: j.State}
	}
	if j.State == fsm.Dead {
		j.TTL = 0
	}
	j.Due = min(j.Due, m.Clock.After(0))
	return fsm.Result{Grants: []fsm.Grant{m.leaseJob(q, j, c.TTR)}}
}

// BySerial returns the held job of a serial at now that was put last.
func (m *Model) BySerial(serial uint64, now fsm.Time) (found fsm.Job, ok bool) {
	for _, q := range m.queues {
		stored := q.bySerial(serial)
		if stored == nil {
			continue
		}
		if j, held := m.at(q, stored, now); held && (!ok || j.Created >= found.Created) {
			found, ok = j, true
		}
	}
	return found, ok
}

// First returns the first job of a queue in a state at now.
func (m *Model) First(query *fsm.FirstQuery, now fsm.Time) (fsm.Job, bool) {
	q := m.queue(query.Queue)
	if q == nil {
		return fsm.Job{}, false
	}
	var jobs []*job
	next := m.next(q)
	for _, stored := range q.jobs {
		j, held := m.at(q, stored, now)
		may := query.State != fsm.Ready || stored == next || stored.Key == "" && !q.Settings.Keys.Fair
		if held && j.State == query.State && may {
			jobs = append(jobs, &job{Job: j})
		}
	}
	if len(jobs) == 0 {
		return fsm.Job{}, false
	}
	if query.State == fsm.Ready {
		return slices.MinFunc(jobs, byRank).Job, true
	}
	return slices.MinFunc(jobs, byListPlace).Job, true
}
