package checker

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// handout is a Reserve under way in the books.
type handout struct {
	*fsm.Reserve
	grants    []fsm.Grant // of the log that are not yet booked
	granted   int
	bytes     uint64
	expirable int
	full      bool
}

// reserve books a Reserve: queue by queue the books say which job leaves next, and the log must say the same.
func (b *books) reserve(c *fsm.Reserve, r *fsm.Result) {
	h := handout{Reserve: c, grants: r.Grants, expirable: fsm.StepMax, full: c.Max == 0}
	for _, name := range c.Queues {
		if h.full {
			break
		}
		if q := b.queues[name]; q != nil {
			b.settle(q)
			b.reserveFrom(q, &h)
		}
	}
	b.found.look(14)
	for i := range h.grants {
		g := &h.grants[i]
		q := b.queues[g.Queue]
		if h.full && h.granted >= int(c.Max) {
			b.violated(37, "job %d of %s was granted beyond the %d that were asked for", g.Serial, g.Queue, c.Max)
		} else if q == nil || !contains(c.Queues, g.Queue) {
			b.violated(37, "job %d of %s was granted, which was not asked for", g.Serial, g.Queue)
		} else {
			b.violated(13, "job %d of %s was granted %s", g.Serial, g.Queue, b.outOfTurn(q, g))
		}
		b.grant(g, c)
	}
	if len(r.Grants) > 0 {
		b.effect(nil)
	}
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// reserveFrom books what one queue gives.
func (b *books) reserveFrom(q *ledger, h *handout) {
	paused := q.settings.PausedAt(b.clock)
	inFlight := q.share(q.settings.MaxInFlight)
	for !h.full {
		var want *account
		limited := inFlight != 0 && q.counts.Reserved >= inFlight
		if !paused && !limited {
			if want = b.next(q, h); want == nil && h.full {
				return
			}
		}
		if len(h.grants) == 0 || h.grants[0].Queue != q.name {
			if want != nil {
				b.violated(14, "job %d of %s, due since %d, was passed over: %d of %d were granted", want.serial, q.name, want.due,
					h.granted, h.Max)
			}
			return
		}
		g := &h.grants[0]
		b.found.look(13)
		switch {
		case paused:
			b.violated(24, "job %d of %s was granted, which is paused", g.Serial, q.name)
		case limited:
			b.violated(37, "job %d of %s was granted, of which %d are reserved and %d may be", g.Serial, q.name,
				q.counts.Reserved, inFlight)
		case want == nil || want.serial != g.Serial:
			if a := b.jobs[g.Serial]; a != nil && a.state == fsm.Ready {
				b.violated(13, "job %d of %s was granted %s", g.Serial, q.name, b.outOfTurn(q, g))
			} else if a != nil && a.state == fsm.Delayed && a.due <= b.clock && a.queue == q {
				b.violated(13, "job %d of %s was granted before it was moved: more than a step of others are due before it",
					g.Serial, q.name)
			}
		}
		if want != nil {
			h.bytes += want.bytes
		}
		b.grant(g, h.Reserve)
		h.grants = h.grants[1:]
		h.granted++
		h.full = h.granted >= int(h.Max)
	}
}

func (b *books) outOfTurn(q *ledger, g *fsm.Grant) string {
	first := q.ready.first()
	if first == nil || first.serial == g.Serial {
		return "out of turn"
	}
	return fmt.Sprintf("before job %d (priority %d, due %d)", first.serial, first.priority, first.at)
}

// next returns the job that leaves a queue next, nil if there is none, or if it would be too large;
// then the handout is full.
func (b *books) next(q *ledger, h *handout) *account {
	for {
		t := q.ready.first()
		if t == nil {
			return nil
		}
		a := t.account
		if b.overTTL(a) {
			if h.expirable == 0 {
				return nil
			}
			h.expirable--
			a.lift()
			b.expireJob(a)
			continue
		}
		if h.Bytes > 0 && h.granted > 0 && h.bytes+a.bytes > h.Bytes {
			h.full = true
			return nil
		}
		return a
	}
}

// grant books one grant of the log, and says what is wrong with it.
func (b *books) grant(g *fsm.Grant, c *fsm.Reserve) {
	b.found.count("grants", 1)
	b.found.look(2)
	a := b.jobs[g.Serial]
	if a == nil {
		b.violated(2, "job %d of %s was granted, which was never put", g.Serial, g.Queue)
		return
	}
	b.judgeGrant(a, g)
	if g.Queue != a.queue.name || g.Partition != a.queue.partition {
		b.violated(37, "job %d of %s (partition %d) was granted as one of %s (partition %d)", g.Serial, a.queue.name,
			a.queue.partition, g.Queue, g.Partition)
	}
	ttr := c.TTR
	if ttr == 0 {
		ttr = lengthOf(a)
	}
	b.found.look(18)
	if until := b.clock.After(ttr); g.Until != until {
		b.violated(18, "job %d was leased until %d, should be until %d", g.Serial, g.Until, until)
	}
	if g.Due != a.due {
		b.violated(24, "job %d was granted as due at %d, is due at %d", g.Serial, g.Due, a.due)
	}
	a.lift()
	a.queue.counters.Granted++
	a.fence, a.until, a.length, a.attempt, a.why = g.Fence, g.Until, ttr, g.Attempt, unended
	b.set(a, fsm.Reserved, a.due)
	a.live = &lease{
		account: a, command: b.now, fence: g.Fence, attempt: g.Attempt, due: g.Due, until: g.Until, since: sinceOf(a),
		lastError: a.lastError, ttl: a.ttl,
	}
	b.leases[g.Fence] = a.live
}

// judgeGrant holds a grant against the state of the job.
func (b *books) judgeGrant(a *account, g *fsm.Grant) {
	for _, i := range [...]invariant{8, 15, 17, 19, 21, 22, 23} {
		b.found.look(i)
	}
	switch {
	case a.state == fsm.Acked:
		b.violated(19, "job %d was granted, which was acked", g.Serial)
	case a.state == fsm.Cancelled:
		b.violated(23, "job %d was granted, which was cancelled or purged", g.Serial)
	case a.state == fsm.Dead:
		b.violated(22, "job %d was granted, which is dead after attempt %d", g.Serial, a.attempt)
	case !a.state.Held():
		b.violated(2, "job %d was granted, which had ended in state %d", g.Serial, a.state)
	case a.state == fsm.Reserved && b.clock < a.until:
		b.violated(17, "job %d was granted, which is leased with fence %d until %d, at %d", g.Serial, a.fence,
			a.until, b.clock)
		b.violated(15, "job %d has two holders, with fences %d and %d", g.Serial, a.fence, g.Fence)
	case a.state != fsm.Reserved && b.clock < a.due:
		b.violated(8, "job %d was granted at %d, which is due at %d", g.Serial, b.clock, a.due)
	}
	// The number of a queue may have been lowered since the last attempt failed.
	if limit := a.put.MaxAttempts; a.put.Given.Has(fsm.GivenMaxAttempts) && limit > 0 && a.attempt >= limit {
		b.violated(22, "job %d was granted after %d of %d attempts", g.Serial, a.attempt, limit)
	}
	if g.Fence <= a.fence {
		b.violated(15, "job %d was granted with fence %d after fence %d", g.Serial, g.Fence, a.fence)
	}
	b.found.look(6)
	if g.Fence <= b.serial {
		b.violated(6, "job %d was granted with fence %d after serial %d was given out", g.Serial, g.Fence, b.serial)
	}
	b.serial = max(b.serial, g.Fence)
	if g.Attempt != a.attempt+1 {
		b.violated(21, "job %d was granted as attempt %d after attempt %d", g.Serial, g.Attempt, a.attempt)
	}
	if a.fence == 0 {
		return
	}
	b.found.look(20)
	switch {
	case a.redrives > 0 && a.attempt == 0:
		b.found.count("jobs handed out again after a redrive", 1)
	case a.why == lapsed:
		b.found.count("jobs handed out again after a lapse", 1)
	case a.why == nacked:
		b.found.count("jobs handed out again after a nack", 1)
	case a.why == released:
		b.found.count("jobs handed out again after a release", 1)
	default:
		b.violated(20, "job %d was granted again with fence %d, and nothing had ended its lease with fence %d", g.Serial,
			g.Fence, a.fence)
	}
}
