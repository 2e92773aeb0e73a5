package model

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// resetClock is rule Reset.
func (m *Model) resetClock(c *fsm.ResetClock) (changed bool) {
	from, to := m.Clock, max(c.To, fsm.Time(time.Millisecond)).Ceil()
	if to >= from {
		return false
	}
	m.Clock = to
	m.LowWater = min(m.LowWater, to)
	left := func(t fsm.Time) time.Duration { return max(0, t.Sub(from)) }
	m.resetting = true
	for _, q := range m.queues {
		for i := range q.memories {
			if k := &q.memories[i]; k.RateAt > to {
				k.RateAt = to.Add(left(k.RateAt))
			}
		}
		for _, s := range q.schedules {
			s.Created, s.Changed = min(s.Created, to), min(s.Changed, to)
			for i := range s.Recent {
				s.Recent[i].At = min(s.Recent[i].At, to)
			}
		}
		q.Created, q.Forgotten = min(q.Created, to), min(q.Forgotten, to)
		if q.RateAt > to {
			q.RateAt = to.Add(left(q.RateAt))
		}
		q.OverdueTo = min(q.OverdueTo, to)
		if q.OverdueFrom >= q.OverdueTo {
			q.OverdueFrom, q.OverdueTo = 0, 0
		}
		for _, j := range q.jobs {
			j.reset(from, to, c.Grace)
		}
	}
	m.resetting = false
	for _, q := range m.queues {
		m.restartRounds(q)
	}
	for i := range m.tombstones {
		m.tombstones[i].Ended = min(m.tombstones[i].Ended, to)
	}
	for i := range m.answers {
		a := &m.answers[i]
		a.At = min(a.At, to)
		a.bytes = codec.AnswerBytes(&a.Answer)
	}
	for i := range m.finished {
		if m.finished[i].expiry > to {
			m.finished[i].expiry = to.Add(left(m.finished[i].expiry))
		}
	}
	return true
}

// reset is what rule Reset says of a job.
func (j *job) reset(from, to fsm.Time, grace time.Duration) {
	left := func(t fsm.Time) time.Duration { return max(0, t.Sub(from)) }
	putLate, grantedLate := j.Created > to, j.Until-fsm.Time(j.LeaseTTR) > to
	if waiting(j) && j.Due > to {
		named := j.Given.Has(fsm.GivenDueAt) && j.Due == j.FirstDue
		if (putLate || grantedLate) && !named {
			j.Due = to.After(left(j.Due))
		}
		j.State = fsm.Ready
		if j.Due > to {
			j.State = fsm.Delayed
		}
	}
	if j.State == fsm.Reserved {
		j.Due = min(j.Due, to)
	}
	if putLate && j.TTL != 0 {
		j.TTL = to.After(left(j.TTL))
	}
	j.Until = min(j.Until, to.After(max(j.LeaseTTR, left(j.Until))).Add(grace).Ceil())
	if n := j.Next; n != nil && n.Created > to {
		n.Created = to
		if n.TTL != 0 {
			n.TTL = to.After(left(n.TTL))
		}
		if !n.Given.Has(fsm.GivenDueAt) && n.FirstDue > to {
			n.FirstDue = to.After(left(n.FirstDue))
		}
		n.Due = n.FirstDue
	}
	j.Created, j.Died, j.Leased = min(j.Created, to), min(j.Died, to), min(j.Leased, to)
	for i := range j.Attempts {
		a := &j.Attempts[i]
		a.Began, a.Ended = min(a.Began, to), min(a.Ended, to)
	}
}
