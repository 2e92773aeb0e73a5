package fsm

import (
	"slices"
	"strings"
)

// QueryKind is the byte that names a query, and what answers it, on the wire. Kinds are never reused.
type QueryKind uint8

// The kinds.
const (
	KindJobQuery    QueryKind = 1
	KindListQuery   QueryKind = 2
	KindQueueQuery  QueryKind = 3
	KindQueuesQuery QueryKind = 4
	KindRecallQuery QueryKind = 5
	KindHeldQuery   QueryKind = 6
)

// Query is a question to a machine, as data: one of the pointer types *JobQuery, *ListQuery, *QueueQuery, *QueuesQuery, *RecallQuery,
// *HeldQuery. As with commands, names and ids are not checked here.
type Query interface {
	// Kind returns the kind of the query.
	Kind() QueryKind
	// answer returns a reading without Kind, Clock and Now that does not alias the machine. now is not before its clock.
	answer(m *Machine, now Time) Reading
}

// JobQuery asks for a job by its id, chosen or generated. Reading: Jobs, empty if no such job is held; with Ended also one
// that has ended and is remembered, of which Queue, Partition, Serial, ID, State, FirstDue, Ended and Attempt are known.
type JobQuery struct {
	Queue, ID string
	Ended     bool
}

// QueueQuery asks for what is known of a queue. Reading: Queues, empty if it is unknown.
type QueueQuery struct{ Queue string }

// QueuesQuery asks for the first Max queues by name of those whose names begin with Prefix and come after After. Reading: Queues,
// and More.
type QueuesQuery struct {
	Prefix string
	// After is the name of the last queue seen; empty before the first.
	After string
	Max   int
}

// RecallQuery asks for the jobs that an earlier attempt at a request was granted and whose leases
// are live. Reading: Jobs, and Code. Code is Invalid if the request's id is remembered with other
// content, as Apply would answer. See RecallOf.
type RecallQuery struct {
	Caller, RequestID string
	// Content is the RequestHash of the request.
	Content [16]byte
}

// RecallOf returns the query for the jobs that an earlier attempt at req was granted.
func RecallOf(req *Request) *RecallQuery {
	return &RecallQuery{Caller: req.Caller, RequestID: req.ID, Content: RequestHash(req)}
}

// HeldQuery asks for the jobs of grants that this shard gave out, in that order. It leaves out a
// job that is not held under its grant any more, but not one whose lease has lapsed and is not
// settled. Reading: Jobs.
type HeldQuery struct{ Grants []Grant }

// Kind returns KindJobQuery.
func (*JobQuery) Kind() QueryKind { return KindJobQuery }

// Kind returns KindListQuery.
func (*ListQuery) Kind() QueryKind { return KindListQuery }

// Kind returns KindQueueQuery.
func (*QueueQuery) Kind() QueryKind { return KindQueueQuery }

// Kind returns KindQueuesQuery.
func (*QueuesQuery) Kind() QueryKind { return KindQueuesQuery }

// Kind returns KindRecallQuery.
func (*RecallQuery) Kind() QueryKind { return KindRecallQuery }

// Kind returns KindHeldQuery.
func (*HeldQuery) Kind() QueryKind { return KindHeldQuery }

// Reading is the answer to a query. The comment of each query names the fields that it fills; the
// others are zero. A Reading shares no memory with the machine.
type Reading struct {
	// Kind is the kind of the query.
	Kind QueryKind
	Code Code
	// Clock is the machine's: counts and counters are exact as of then. Now, which is not before it, is what all else is seen from.
	Clock, Now Time
	// Jobs of grants are RESERVED and have the Until of the grant. Their leases may have been
	// extended since.
	Jobs   []Job
	Queues []Queue
	// More reports that there are more after the last one.
	More bool
}

// Answer answers a query as of now, or as of Clock if that is later. Like every read it changes nothing and may run beside others.
func (m *Machine) Answer(q Query, now Time) Reading {
	now = max(now, m.scalars.Clock)
	r := q.answer(m, now)
	r.Kind, r.Clock, r.Now = q.Kind(), m.scalars.Clock, now
	return r
}

func (q *JobQuery) answer(m *Machine, now Time) Reading {
	j, ok := m.Job(q.Queue, q.ID, now)
	if !ok && q.Ended {
		if j, ok := m.endedJob(q.Queue, q.ID, now); ok {
			return Reading{Jobs: []Job{j}}
		}
	}
	if !ok {
		return Reading{}
	}
	jobs := []Job{j}
	m.complete(jobs)
	ownBodies(jobs)
	return Reading{Jobs: jobs}
}

func (q *ListQuery) answer(m *Machine, now Time) Reading {
	jobs, more := m.List(q, now)
	for i := range jobs {
		jobs[i].Body = nil
	}
	m.complete(jobs)
	return Reading{Jobs: jobs, More: more}
}

func (q *QueueQuery) answer(m *Machine, now Time) Reading {
	v, ok := m.Queue(q.Queue, now)
	if !ok {
		return Reading{}
	}
	v.Recent = m.recent(m.queues.byName[q.Queue], now)
	return Reading{Queues: []Queue{v}}
}

func (q *QueuesQuery) answer(m *Machine, now Time) (r Reading) {
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
		v.Recent = m.recent(m.queues.byName[name], now)
		r.Queues = append(r.Queues, v)
		return true
	})
	return r
}

func (q *RecallQuery) answer(m *Machine, now Time) Reading {
	grants, code := m.recalled(q, now)
	return Reading{Code: code, Jobs: m.handedOut(grants)}
}

func (q *HeldQuery) answer(m *Machine, _ Time) Reading { return Reading{Jobs: m.handedOut(q.Grants)} }

// handedOut returns the jobs that are still held under these grants.
func (m *Machine) handedOut(grants []Grant) []Job {
	if len(grants) == 0 {
		return nil
	}
	jobs := make([]Job, len(grants))
	n := 0
	var q *queue // of the grant before: those of one queue are neighbours
	for i := range grants {
		g := &grants[i]
		if q == nil || q.name != g.Queue {
			q = m.queues.byName[g.Queue]
		}
		if j, ok := m.held(q, Ref{Queue: g.Queue, Partition: g.Partition, Serial: g.Serial, Fence: g.Fence}); ok {
			m.show(j, &jobs[n])
			jobs[n].Until = g.Until
			n++
		}
	}
	jobs = jobs[:n]
	m.complete(jobs)
	ownBodies(jobs)
	return jobs
}

// complete fills in what counts for jobs whose puts left it to the queue or to the default.
func (m *Machine) complete(jobs []Job) {
	var q *queue // of the job before: those of one queue are neighbours
	var delays []Duration
	for i := range jobs {
		j := &jobs[i]
		if q == nil || q.name != j.Queue {
			q = m.queues.byName[j.Queue]
			delays, _ = m.record(q).retryDelays()
			delays = slices.Clone(delays)
		}
		s := &m.record(q).Settings
		j.TTR, j.MaxAttempts = leaseLength(j, s), attemptsMax(j, s)
		if !j.Given.Has(GivenRetryDelays) {
			j.RetryDelays = delays
		}
	}
}

// ownBodies gives jobs copies of their bodies, all in one piece of memory: one allocation while readers hold up the shard.
func ownBodies(jobs []Job) {
	bytes := 0
	for i := range jobs {
		bytes += len(jobs[i].Body)
	}
	room := make([]byte, 0, bytes)
	for i := range jobs {
		start := len(room)
		room = append(room, jobs[i].Body...)
		jobs[i].Body = room[start:len(room):len(room)]
	}
}
