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
	lapsed := func(j *job) bool { return j.State == fsm.Reserved && m.passed(j.Until) }
	expired := func(j *job) bool { return waiting(j) && m.passed(j.TTL) }
	due := func(j *job) bool { return j.State == fsm.Delayed && j.Due <= m.Clock }
	touched += m.settleEach(q, byUntil, lapsed, func(j *job) { m.lapse(q, j) })
	touched += m.settleEach(q, byTTL, expired, func(j *job) { m.expire(q, j) })
	touched += m.settleEach(q, byDue, due, func(j *job) { m.move(q, j) })
	return touched
}

// settleEach calls f for at most StepMax jobs that match, in order. A job that f spreads to a time that
// has come as well, or makes of a successor, joins in.
func (m *Model) settleEach(q *queue, o order, match func(*job) bool, f func(*job)) (touched int) {
	list := q.jobsBy(o, match)
	for ; touched < fsm.StepMax && len(list) > 0; touched++ {
		j := list[0]
		list, m.succeeded = list[1:], nil
		f(j)
		if m.succeeded != nil {
			j = m.succeeded
		}
		if match(j) {
			list = append(list, j)
			slices.SortFunc(list, o)
		}
	}
	return touched
}

// lapse takes an overdue lease away.
func (m *Model) lapse(q *queue, j *job) {
	q.Counters.Lapsed++
	m.failed(j, fsm.Attempt{Ended: j.Until, Lapsed: true})
	j.used(func(u *fsm.Uses) { u.Lapses++ })
	if !m.fail(q, j, false) {
		j.State, j.Due = fsm.Ready, j.Until
		m.changed(q, j.Key)
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
	m.changed(q, j.Key)
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
	if j.Next != nil {
		q.Counters.Purged++
		m.endJob(q, j, fsm.Dead)
		return
	}
	if j.FIFO {
		j.Fence = m.nextSerial()
	}
	j.State, j.Died = fsm.Dead, m.Clock
	m.changed(q, j.Key)
	q.deadFiring(j)
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

// dropJob removes a held job, with its successor, and leaves a tombstone if the client chose its id
// (rule Tombstones).
func (m *Model) dropJob(q *queue, j *job, state fsm.State) {
	j.State = state
	q.remove(j)
	m.changed(q, j.Key)
	if j.Generated {
		return
	}
	for len(m.tombstones) >= m.cfg.TombstonesMax {
		m.forgetOldest()
	}
	m.tombstones = append(m.tombstones, fsm.Tombstone{
		Queue: q.Name, ID: j.ID, Key: j.Key, Serial: j.Serial, Content: j.content, FirstDue: j.FirstDue, State: state,
		Ended: m.Clock,
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
	m.forget(oldest)
	q := m.queue(oldest.Queue)
	q.Forgotten = max(q.Forgotten, oldest.Ended)
}

func byEnded(a, b fsm.Tombstone) int {
	return cmp.Or(cmp.Compare(a.Ended, b.Ended), cmp.Compare(a.Serial, b.Serial))
}

// forget removes a tombstone.
func (m *Model) forget(t fsm.Tombstone) {
	i := slices.Index(m.tombstones, t)
	m.tombstones = slices.Delete(m.tombstones, i, i+1)
}

// forgetID removes the tombstone that a put of an id and a key meets, if there is one.
func (m *Model) forgetID(q *queue, id, key string) {
	m.tombstones = slices.DeleteFunc(m.tombstones, func(t fsm.Tombstone) bool {
		return t.Queue == q.Name && q.sameID(id, key, t.ID, t.Key)
	})
}

func (q *queue) remove(j *job) {
	i := slices.Index(q.jobs, j)
	q.jobs = slices.Delete(q.jobs, i, i+1)
}

// tombstone returns what is remembered of an ended job, nil if nothing, not any more, or not yet
// swept.
func (m *Model) tombstone(q *queue, id, key string) *fsm.Tombstone {
	var found *fsm.Tombstone
	for i := range m.tombstones {
		t := &m.tombstones[i]
		if t.Queue == q.Name && t.ID == id && (key == "" || t.Key == key) && (found == nil || t.Serial < found.Serial) {
			found = t
		}
	}
	if found == nil || m.pastWindow(q, found) {
		return nil
	}
	return found
}

// tombstoneOf is tombstone for a put of an id and a key.
func (m *Model) tombstoneOf(q *queue, id, key string) *fsm.Tombstone {
	for i := range m.tombstones {
		t := &m.tombstones[i]
		if t.Queue == q.Name && q.sameID(id, key, t.ID, t.Key) && !m.pastWindow(q, t) {
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
