package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/activity"
	"github.com/belfrydb/belfry/fsm/listing"
	"github.com/belfrydb/belfry/fsm/rule"
)

// Answer answers a query as of now, or as of Clock if that is later. Like every read it changes
// nothing and may run beside others.
func (m *Machine) Answer(q fsm.Query, now fsm.Time) fsm.Reading {
	now = max(now, m.scalars.Clock)
	r := m.read(q, now)
	r.Kind, r.Clock, r.Now = q.Kind(), m.scalars.Clock, now
	return r
}

// read returns a reading without Kind, Clock and Now that does not alias the machine. now is not
// before its clock.
func (m *Machine) read(q fsm.Query, now fsm.Time) fsm.Reading {
	switch q := q.(type) {
	case *fsm.JobQuery:
		return m.answerJob(q, now)
	case *fsm.ListQuery:
		return m.answerList(q, now)
	case *fsm.QueueQuery:
		return m.answerQueue(q, now)
	case *fsm.QueuesQuery:
		return m.answerQueues(q, now)
	case *fsm.RecallQuery:
		return m.answerRecall(q, now)
	case *fsm.SearchQuery:
		return m.answerSearch(q, now)
	case *fsm.MinuteQuery:
		return m.answerMinutes(q, now)
	case *fsm.SchedulesQuery:
		return m.scheduled(q.Queue).Page(q)
	case *fsm.ScheduleQuery:
		return m.scheduled(q.Queue).Named(q.Name)
	case *fsm.KeysQuery:
		if of := m.queues.byName[q.Queue]; of != nil && of.keys != nil {
			return of.keys.Read(q, now)
		}
		return fsm.Reading{}
	case *fsm.SerialQuery:
		return m.answerSerial(q, now)
	case *fsm.FirstQuery:
		return m.answerFirst(q, now)
	case *fsm.HeldQuery:
		return fsm.Reading{Jobs: m.handedOut(q.Grants)}
	}
	panic(fmt.Sprintf("fsm: query %T has no answer", q))
}

func (m *Machine) answerJob(q *fsm.JobQuery, now fsm.Time) fsm.Reading {
	j, ok := m.heldJob(q, now)
	if !ok && q.Ended {
		if j, ok := m.endedJob(q, now); ok {
			return fsm.Reading{Jobs: []fsm.Job{j}}
		}
	}
	if !ok {
		return fsm.Reading{}
	}
	return m.readingOf(&j)
}

func (m *Machine) answerList(q *fsm.ListQuery, now fsm.Time) fsm.Reading {
	jobs, more := m.List(q, now)
	last := fsm.Cursor{}
	if len(jobs) > 0 {
		last = jobs[len(jobs)-1].ListPlace()
	}
	for i := range jobs {
		jobs[i].Body = nil
	}
	m.complete(jobs)
	return fsm.Reading{Jobs: jobs, More: more, Last: last}
}

func (m *Machine) answerQueue(q *fsm.QueueQuery, now fsm.Time) fsm.Reading {
	v, ok := m.Queue(q.Queue, now)
	if !ok {
		return fsm.Reading{}
	}
	v.Recent = m.activity.Recent(&m.queues.byName[q.Queue].activity, now)
	return fsm.Reading{Queues: []fsm.Queue{v}}
}

func (m *Machine) answerQueues(q *fsm.QueuesQuery, now fsm.Time) (r fsm.Reading) {
	m.queues.names.AscendGreaterOrEqual(max(q.After, q.Prefix), func(name string) bool {
		if name == q.After && name != "" {
			return true
		}
		if !strings.HasPrefix(name, q.Prefix) {
			return false
		}
		if len(r.Queues) >= q.Max {
			r.More = true
			return false
		}
		v, _ := m.Queue(name, now)
		v.Recent = m.activity.Recent(&m.queues.byName[name].activity, now)
		r.Queues = append(r.Queues, v)
		return true
	})
	return r
}

func (m *Machine) answerMinutes(query *fsm.MinuteQuery, now fsm.Time) (r fsm.Reading) {
	var of *activity.Queue
	if q := m.queues.byName[query.Queue]; q != nil {
		of = &q.activity
	}
	r.Minutes, r.Since = m.activity.Minutes(of, now)
	return r
}

func (m *Machine) answerRecall(q *fsm.RecallQuery, now fsm.Time) fsm.Reading {
	grants, code := m.recalled(q, now)
	return fsm.Reading{Code: code, Jobs: m.handedOut(grants)}
}

// handedOut returns the jobs that are still held under these grants.
func (m *Machine) handedOut(grants []fsm.Grant) []fsm.Job {
	if len(grants) == 0 {
		return nil
	}
	jobs := make([]fsm.Job, len(grants))
	n := 0
	var q *queue // of the grant before: those of one queue are neighbours
	for i := range grants {
		g := &grants[i]
		if q == nil || q.name != g.Queue {
			q = m.queues.byName[g.Queue]
		}
		if j, ok := m.held(q, fsm.Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}); ok {
			m.show(j, &jobs[n])
			jobs[n].Until = g.Until
			n++
		}
	}
	jobs = jobs[:n]
	m.complete(jobs)
	listing.OwnBodies(jobs)
	return jobs
}

// complete fills in what counts for jobs whose puts left it to the queue or to the default.
func (m *Machine) complete(jobs []fsm.Job) {
	var q *queue // of the job before: those of one queue are neighbours
	var delays []fsm.Duration
	for i := range jobs {
		j := &jobs[i]
		if q == nil || q.name != j.Queue {
			q = m.queues.byName[j.Queue]
			delays, _ = rule.RetryDelays(m.record(q))
			delays = slices.Clone(delays)
		}
		s := &m.record(q).Settings
		if j.Next != nil {
			j.Next.Body = nil
		}
		j.TTR, j.MaxAttempts = rule.LeaseLength(j, s), rule.AttemptsMax(j, s)
		if !j.Given.Has(fsm.GivenRetryDelays) {
			j.RetryDelays = delays
		}
	}
}
