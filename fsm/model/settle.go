package model

import (
	"cmp"
	"math/big"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// settleQueue is rule Settling: it brings a queue up to the clock, within StepMax of each kind, and
// returns the number of jobs touched.
func (m *Model) settleQueue(q *queue) (touched int) {
	lapsed := atMost(q.jobsBy(byUntil, func(j *job) bool {
		return j.State == fsm.Reserved && m.passed(j.Until)
	}), fsm.StepMax)
	for _, j := range lapsed {
		m.lapse(q, j)
	}

	expired := atMost(q.jobsBy(byTTL, func(j *job) bool { return waiting(j) && m.passed(j.TTL) }), fsm.StepMax)
	for _, j := range expired {
		m.expire(q, j)
	}

	isDue := func(j *job) bool { return j.State == fsm.Delayed && j.Due <= m.Clock }
	due, moved := q.jobsBy(byDue, isDue), 0
	for ; moved < fsm.StepMax && len(due) > 0; moved++ {
		j := due[0]
		due = due[1:]
		m.move(q, j)
		if isDue(j) { // spread to a time that has come as well: it is sorted in among the others
			due = append(due, j)
			slices.SortFunc(due, byDue)
		}
	}
	return len(lapsed) + len(expired) + moved
}

// lapse takes an overdue lease away.
func (m *Model) lapse(q *queue, j *job) {
	q.Counters.Lapsed++
	m.failed(j, fsm.Attempt{Ended: j.Until, Lapsed: true})
	if !m.fail(q, j, false) {
		j.State, j.Due = fsm.Ready, j.Until
	}
}

// move makes a due job READY, unless the overdue policy has something else for it.
func (m *Model) move(q *queue, j *job) {
	overdue := q.OverdueFrom < j.Due && j.Due <= q.OverdueTo
	switch {
	case overdue && q.Settings.Overdue == fsm.SpreadOverdue && q.Settings.OverduePeriod > 0:
		j.Due = spread(j.Due, q.OverdueFrom, q.OverdueTo, q.Settings.OverduePeriod)
	case overdue && q.Settings.Overdue == fsm.DropOverdue:
		q.Counters.Expired++
		m.endJob(q, j, fsm.Expired)
	default:
		j.State = fsm.Ready
	}
}

// spread maps a due time of the window (from, to] to the period after it, in proportion, rounded up
// so that it never stays in the window.
func spread(due, from, to fsm.Time, period time.Duration) fsm.Time {
	product := new(big.Int).Mul(big.NewInt(int64(due-from)), big.NewInt(int64(period)))
	window := big.NewInt(int64(to - from))
	offset := product.Add(product, window).Sub(product, big.NewInt(1)).Div(product, window)
	if !offset.IsInt64() {
		return fsm.TimeMax
	}
	return to.Add(time.Duration(offset.Int64())).Ceil()
}

// expireOverdue is the command Expire: it settles queues in the order of their next deadlines.
func (m *Model) expireOverdue() fsm.Result {
	touched := 0
	for touched < fsm.StepMax {
		q := m.mostOverdue()
		if q == nil {
			break
		}
		touched += m.settleQueue(q)
	}
	return fsm.Result{Count: uint64(touched), More: m.mostOverdue() != nil}
}

// mostOverdue returns the queue with the smallest deadline that has come, the older queue of two;
// nil if there is none.
func (m *Model) mostOverdue() *queue {
	var first *queue
	for _, q := range m.queues {
		if m.passed(q.deadline()) && (first == nil || q.deadline() < first.deadline()) {
			first = q
		}
	}
	return first
}

// deadline is the smallest until of RESERVED jobs, ttl of DELAYED and READY ones and due of DELAYED
// ones; 0 if there is none.
func (q *queue) deadline() fsm.Time {
	next := fsm.Time(0)
	consider := func(t fsm.Time) {
		if t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	for _, j := range q.jobs {
		if j.State == fsm.Reserved {
			consider(j.Until)
		}
		if waiting(j) {
			consider(j.TTL)
		}
		if j.State == fsm.Delayed {
			consider(j.Due)
		}
	}
	return next
}

// failed notes a failed attempt, of which it knows when and how it ended.
func (m *Model) failed(j *job, a fsm.Attempt) {
	if m.format < 3 {
		return
	}
	a.Number, a.Began, a.Client = j.Attempt, j.Leased, j.Client
	j.Client, j.Leased = "", 0
	j.Attempts = append(slices.Clone(j.Attempts), a)
	if len(j.Attempts) > 3 {
		j.Attempts = j.Attempts[1:]
	}
}

// fail is rule Failing up to where nack and lapse part: false means that the job lives on.
func (m *Model) fail(q *queue, j *job, dead bool) (over bool) {
	limit := q.maxAttempts(j)
	switch {
	case dead, limit > 0 && j.Attempt >= limit:
		m.die(q, j)
	case m.passed(j.TTL):
		m.expire(q, j)
	default:
		return false
	}
	return true
}

func (q *queue) maxAttempts(j *job) uint32 {
	switch {
	case j.Given.Has(fsm.GivenMaxAttempts):
		return j.MaxAttempts
	case q.Settings.MaxAttemptsSet:
		return q.Settings.MaxAttempts
	}
	return fsm.DefaultMaxAttempts
}

// retryDelay is how long a failed job waits when the nack does not say.
func (q *queue) retryDelay(j *job) time.Duration {
	delays := q.Settings.RetryDelays
	if j.Given.Has(fsm.GivenRetryDelays) {
		delays = j.RetryDelays
	} else if len(delays) == 0 && q.Format > fsm.FirstFormat {
		second := []time.Duration{1, 5, 30, 2 * 60, 10 * 60, 30 * 60, 60 * 60}[min(j.Attempt, 7)-1] * time.Second
		return fsm.Jitter(second, j.Fence)
	}
	if len(delays) == 0 {
		return 0
	}
	return delays[min(int(j.Attempt), len(delays))-1]
}

func (m *Model) die(q *queue, j *job) {
	q.Counters.Died++
	j.State, j.Died = fsm.Dead, m.Clock
}

// expire is rule Expiring.
func (m *Model) expire(q *queue, j *job) {
	if q.Settings.ExpireToDead {
		j.TTL = 0
		m.die(q, j)
		return
	}
	q.Counters.Expired++
	m.endJob(q, j, fsm.Expired)
}

// endJob removes a held job and leaves a tombstone if the client chose its id (rule Tombstones).
func (m *Model) endJob(q *queue, j *job, state fsm.State) {
	j.State = state
	q.remove(j)
	if j.Generated {
		return
	}
	for len(m.tombstones) >= m.cfg.TombstonesMax {
		m.forgetOldest()
	}
	m.tombstones = append(m.tombstones, fsm.Tombstone{
		Queue: q.Name, ID: j.ID, Serial: j.Serial, Content: j.content, FirstDue: j.FirstDue, State: state, Ended: m.Clock,
	})
}

// forgetOldest evicts the tombstone with the smallest (ended, creation number of its queue,
// serial). Its queue notes the end of the youngest tombstone that was evicted.
func (m *Model) forgetOldest() {
	oldest := slices.MinFunc(m.tombstones, func(a, b fsm.Tombstone) int {
		return cmp.Or(
			cmp.Compare(a.Ended, b.Ended),
			cmp.Compare(m.queue(a.Queue).CreateSeq, m.queue(b.Queue).CreateSeq),
			cmp.Compare(a.Serial, b.Serial),
		)
	})
	m.forget(oldest.Queue, oldest.ID)
	q := m.queue(oldest.Queue)
	q.Forgotten = max(q.Forgotten, oldest.Ended)
}

func byEnded(a, b fsm.Tombstone) int {
	return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Serial, b.Serial))
}

// forget removes the tombstone of an id, if there is one.
func (m *Model) forget(queue, id string) {
	for i := range m.tombstones {
		if t := &m.tombstones[i]; t.ID == id && t.Queue == queue {
			m.tombstones = slices.Delete(m.tombstones, i, i+1)
			return
		}
	}
}

func (q *queue) remove(j *job) {
	i := slices.Index(q.jobs, j)
	q.jobs = slices.Delete(q.jobs, i, i+1)
}

// tombstone returns what is remembered of an ended job, nil if nothing, not any more, or not yet
// swept.
func (m *Model) tombstone(q *queue, id string) *fsm.Tombstone {
	for i := range m.tombstones {
		t := &m.tombstones[i]
		if t.Queue == q.Name && t.ID == id && !m.pastWindow(q, t) {
			return t
		}
	}
	return nil
}

func (m *Model) pastWindow(q *queue, t *fsm.Tombstone) bool {
	return !q.Settings.DedupForever && t.Ended.Add(q.window()) <= m.Clock
}

// window is the dedup window of a queue that does not remember for ever.
func (q *queue) window() time.Duration {
	if q.Settings.DedupWindowSet {
		return q.Settings.DedupWindow
	}
	return fsm.DefaultDedupWindow
}
