// Package model states the rules of package fsm a second time, to be read: slices, loops and
// sorting, in the order of the section "Rules" of fsm/DESIGN.md. It borrows the vocabulary of fsm
// (commands, results, records and their hashes) and nothing of its machine, codec or data
// structures. Tests apply the same entries to both and compare results, digests and reads.
//
// A rule that changes in fsm changes here in the same commit; where the two disagree, DESIGN.md
// decides.
package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/belfrydb/belfry/fsm"
)

// Model is the state of one shard. It must be used by one goroutine at a time.
type Model struct {
	cfg fsm.Config
	fsm.Scalars
	queues     []*queue        // in the order of their creation
	tombstones []fsm.Tombstone // in the order in which they came
	finished   []finished      // in the order in which they came
	answers    []answer        // oldest first
	restored   fsm.RestoreMark // zero if there was no restore
	format     fsm.Format      // the highest of the entries

	// Of the entry being applied:
	stamp   fsm.Time
	before  fsm.Time        // the clock as the entry before left it
	client  string          // of the request at hand
	settled map[string]bool // names of the queues that a command has named
	woken   map[*queue]bool // queues whose keys a Reserve has woken
	// resetting is set while the times of jobs change: keys take their turns anew afterwards.
	resetting bool
	// succeeded is the last job that was made of a successor.
	succeeded *job
}

// queue is a queue's own values and its held jobs in put order. Counts of the record stay zero: see
// queue.count.
type queue struct {
	fsm.QueueRecord
	jobs      []*job
	memories  []fsm.KeyMemory // of keys
	schedules []*fsm.Schedule
}

// job is a held job and the content hash of its put.
type job struct {
	fsm.Job
	content [16]byte
}

// finished is one finished lease, remembered up to and including expiry.
type finished struct {
	serial, fence uint64
	expiry        fsm.Time
}

// answer is one remembered request and its size, which is slow to compute.
type answer struct {
	fsm.Answer
	bytes int64
}

// New returns an empty shard. Zero fields of cfg mean the defaults that fsm.Config names.
func New(cfg fsm.Config) *Model {
	return &Model{format: fsm.FirstFormat, cfg: fsm.Config{
		TombstonesMax:   cmp.Or(cfg.TombstonesMax, 10_000_000),
		QueuesMax:       cmp.Or(cfg.QueuesMax, 100_000),
		FinishedMax:     cmp.Or(cfg.FinishedMax, 1_000_000),
		AnswersBytesMax: cmp.Or(cfg.AnswersBytesMax, 64<<20),
		SchedulesMax:    cmp.Or(cfg.SchedulesMax, 1_000_000),
		WakeMax:         cmp.Or(cfg.WakeMax, fsm.StepMax),
	}}
}

// Speak has the entries from here on be of a format. A lower one than before changes nothing.
func (m *Model) Speak(format fsm.Format) { m.format = max(m.format, format) }

// Apply carries out one log entry (rule Entry) and returns the results of its commands in order. It
// keeps no reference to requests.
func (m *Model) Apply(stamp fsm.Time, requests []fsm.Request) []fsm.Result {
	m.stamp, m.before, m.settled, m.woken = stamp, m.Clock, map[string]bool{}, map[*queue]bool{}
	m.Clock = max(m.Clock, stamp)
	var results []fsm.Result
	for i := range requests {
		results = append(results, m.request(&requests[i])...)
	}
	m.sweep()
	return results
}

// carryOut carries out one command. changed reports that it changed the state other than by
// settling and counting, so that its request must be remembered.
func (m *Model) carryOut(command fsm.Command) (result fsm.Result, changed bool) {
	if m.restored.Open() && !whileOpen(command) {
		return fsm.Result{Code: fsm.Restoring}, false
	}
	switch c := command.(type) {
	case *fsm.Put:
		result = m.put(c)
		return result, result.Created || result.Replaced
	case *fsm.Reserve:
		result = m.reserve(c)
		return result, len(result.Grants) > 0
	case *fsm.Ack:
		return m.ack(c)
	case *fsm.Nack:
		result = m.nack(c)
	case *fsm.Release:
		result = m.release(c)
	case *fsm.Extend:
		result = m.extend(c)
	case *fsm.Cancel:
		result = m.cancel(c)
	case *fsm.Reschedule:
		result = m.reschedule(c)
	case *fsm.Redrive:
		result = m.redrive(c)
		return result, result.Count > 0
	case *fsm.Purge:
		result = m.purge(c)
		return result, result.Count > 0
	case *fsm.Configure:
		return m.configure(c)
	case *fsm.Open:
		return m.open(c)
	case *fsm.DeleteQueue:
		result = m.deleteQueue(c)
	case *fsm.Expire:
		return m.expireOverdue(), false
	case *fsm.Lead:
		m.lead(c)
	case *fsm.Import:
		return m.imports(c)
	case *fsm.ResetClock:
		return result, m.resetClock(c)
	case *fsm.PauseKey:
		return m.pauseKey(c)
	case *fsm.ReserveJob:
		result = m.reserveJob(c)
	case *fsm.Kick:
		result = m.kick(c)
		return result, result.Count > 0
	case *fsm.PurgeKey:
		result = m.purgeKey(c)
		return result, result.Count > 0
	default:
		return m.carryOutSchedule(command)
	}
	return result, result.Code == fsm.OK
}

// carryOutSchedule is carryOut for commands about schedules.
func (m *Model) carryOutSchedule(command fsm.Command) (result fsm.Result, changed bool) {
	switch c := command.(type) {
	case *fsm.PutSchedule:
		return m.putSchedule(c)
	case *fsm.DeleteSchedule:
		result = m.deleteSchedule(c)
	case *fsm.PauseSchedules:
		result = m.pauseSchedules(c)
		return result, result.Count > 0
	case *fsm.Fire:
		result = m.fire(c)
	case *fsm.RunSchedule:
		result = m.runSchedule(c)
		return result, result.Count > 0
	default:
		panic(fmt.Sprintf("model: command %T has no rule", command))
	}
	return result, result.Code == fsm.OK
}

// name returns the queue that a command names, settled if this is the first command of the entry to
// name it (rule Settling); nil if there is no such queue.
func (m *Model) name(name string) *queue {
	q := m.queue(name)
	open := m.restored.Open() // nothing is settled then
	if q != nil && !m.settled[name] && !open {
		m.settleQueue(q)
	}
	if q == nil || !open {
		m.settled[name] = true
	}
	return q
}

func (m *Model) queue(name string) *queue {
	for _, q := range m.queues {
		if q.Name == name {
			return q
		}
	}
	return nil
}

// queuesFull reports whether the shard has as many queues as it may have.
func (m *Model) queuesFull() bool { return len(m.queues) >= m.cfg.QueuesMax }

// createQueue creates a queue.
func (m *Model) createQueue(name string, partition, partitions uint32) *queue {
	m.QueuesCreated++
	q := &queue{QueueRecord: fsm.QueueRecord{
		Name: name, Partition: partition, Partitions: partitions, CreateSeq: m.QueuesCreated, Created: m.Clock,
		Format: m.format,
	}}
	m.queues = append(m.queues, q)
	return q
}

// nextSerial is rule Serial.
func (m *Model) nextSerial() uint64 {
	m.Serial++
	return m.Serial
}

// passed reports whether the deadline t has come; zero stands for no deadline.
func (m *Model) passed(t fsm.Time) bool { return t != 0 && t <= m.Clock }

func (q *queue) byID(id string) *job { return q.byKeyedID(id, "") }

// byKeyedID returns the first job of an id that has the key, or any key if that is empty.
func (q *queue) byKeyedID(id, key string) *job {
	var found *job
	for _, j := range q.jobs {
		if j.ID == id && (key == "" || j.Key == key) && (found == nil || j.Serial < found.Serial) {
			found = j
		}
	}
	return found
}

// sameID reports whether two jobs, or what is left of them, cannot be in the queue together.
func (q *queue) sameID(id, key, otherID, otherKey string) bool {
	return id == otherID && (q.Partitions == 1 || key == otherKey)
}

// byPutID returns the job that a put of an id and a key meets.
func (q *queue) byPutID(id, key string) *job {
	for _, j := range q.jobs {
		if !j.Generated && q.sameID(id, key, j.ID, j.Key) {
			return j
		}
	}
	return nil
}

func (q *queue) bySerial(serial uint64) *job {
	for _, j := range q.jobs {
		if j.Serial == serial {
			return j
		}
	}
	return nil
}

// count counts the held jobs; nothing keeps the counts up to date, so nothing can get them wrong.
func (q *queue) count() fsm.Counts {
	var n fsm.Counts
	for _, j := range q.jobs {
		switch j.State {
		case fsm.Delayed:
			n.Delayed++
		case fsm.Ready:
			n.Ready++
		case fsm.Reserved:
			n.Reserved++
		case fsm.Dead:
			n.Dead++
		default: // an ended job is not held
		}
		n.Bytes += j.bytes()
	}
	for _, s := range q.schedules {
		n.Bytes += scheduleBytes(s.Name, &s.Job)
	}
	return n
}

// bytes is what a job counts against maxBytes: itself and its successor.
func (j *job) bytes() uint64 {
	if j.Next != nil {
		return j.ownBytes() + (&job{Job: j.Next.Job}).bytes()
	}
	return j.ownBytes()
}

// ownBytes is the size of a job without its successor.
func (j *job) ownBytes() uint64 {
	n := len(j.Body) + len(j.Key)
	if !j.Generated {
		n += len(j.ID)
	}
	for _, h := range j.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return uint64(n)
}

// An order is a strict total order of jobs.
type order func(a, b *job) int

func byDue(a, b *job) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Serial, b.Serial))
}

func byTTL(a, b *job) int {
	return cmp.Or(cmp.Compare(a.TTL, b.TTL), cmp.Compare(a.Serial, b.Serial))
}

func byUntil(a, b *job) int {
	return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.Serial, b.Serial))
}

// byRank is the order in which ready jobs leave.
func byRank(a, b *job) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), byListPlace(a, b))
}

// jobsBy returns the jobs that match, in the given order.
func (q *queue) jobsBy(o order, match func(*job) bool) []*job {
	var jobs []*job
	for _, j := range q.jobs {
		if match(j) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, o)
	return jobs
}

// in matches the jobs in one state.
func in(state fsm.State) func(*job) bool {
	return func(j *job) bool { return j.State == state }
}

// waiting reports whether a job is DELAYED or READY: the states in which its ttl counts.
func waiting(j *job) bool { return j.State == fsm.Delayed || j.State == fsm.Ready }

// atMost returns the first n elements, or all if there are fewer.
func atMost[T any](list []T, n int) []T { return list[:min(n, len(list))] }
