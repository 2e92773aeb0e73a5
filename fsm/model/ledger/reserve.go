package ledger

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
)

// handout is a Reserve under way in the ledger.
type handout struct {
	*fsm.Reserve
	grants    []fsm.Grant // of the log that are not yet booked
	granted   int
	bytes     uint64
	expirable int
	full      bool
	again     bool // the queue under way is named once more
}

// reserve records a Reserve: queue by queue the ledger says which job leaves next, and the log must
// say the same.
func (b *Shard) reserve(c *fsm.Reserve, r *fsm.Result) {
	h := handout{Reserve: c, grants: r.Grants, expirable: fsm.StepMax, full: c.Max == 0}
	for i, name := range c.Queues {
		if h.full {
			break
		}
		if q := b.queues[name]; q != nil {
			b.settleQueue(q)
			h.again = contains(c.Queues[i+1:], name)
			b.reserveFrom(q, &h)
		}
	}
	b.look(14)
	for i := range h.grants {
		g := &h.grants[i]
		q := b.queues[g.Queue]
		if h.full && h.granted >= int(c.Max) {
			b.violated(37, "job %d of %s was granted beyond the %d that were asked for", g.Serial, g.Queue, c.Max)
		} else if q == nil || !contains(c.Queues, g.Queue) {
			b.violated(37, "job %d of %s was granted, which was not asked for", g.Serial, g.Queue)
		} else {
			b.violated(13, "job %d of %s was granted %s", g.Serial, g.Queue, outOfOrder(b.first(q), g))
		}
		b.grant(g, c.TTR)
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

// reserveFrom records what one queue gives.
func (b *Shard) reserveFrom(q *Queue, h *handout) {
	paused := q.Settings.PausedAt(b.clock)
	if !paused {
		b.wake(q, int(h.Max)-h.granted)
	}
	inFlight := q.partOf(q.Settings.MaxInFlight)
	for !h.full {
		var want *Job
		limited := inFlight != 0 && q.counts.Reserved >= inFlight
		if !paused && !limited && !q.unsure {
			if want = b.next(q, h); want == nil && (h.full || h.again) { // the next time it wakes more keys
				return
			}
		}
		if len(h.grants) == 0 || h.grants[0].Queue != q.Name {
			if want != nil {
				b.violated(14, "job %d of %s, due since %d, was passed over: %d of %d were granted", want.Serial, q.Name, want.Due,
					h.granted, h.Max)
			}
			return
		}
		g := &h.grants[0]
		b.look(13)
		switch {
		case paused:
			b.violated(24, "job %d of %s was granted, which is paused", g.Serial, q.Name)
		case limited:
			b.violated(37, "job %d of %s was granted, of which %d are reserved and %d may be", g.Serial, q.Name,
				q.counts.Reserved, inFlight)
		case !q.unsure && (want == nil || want.Serial != g.Serial):
			if a := b.jobs[g.Serial]; a != nil && a.State == fsm.Ready {
				b.violated(13, "job %d of %s was granted %s", g.Serial, q.Name, outOfOrder(want, g))
			} else if a != nil && a.State == fsm.Delayed && a.Due <= b.clock && a.Queue == q {
				b.violated(13, "job %d of %s was granted before it was moved: more than a step of others are due before it",
					g.Serial, q.Name)
			}
		}
		if want != nil {
			h.bytes += want.bytes
		}
		b.grant(g, h.TTR)
		h.grants = h.grants[1:]
		h.granted++
		h.full = h.granted >= int(h.Max)
	}
}

// outOfOrder says before which job another one was granted.
func outOfOrder(first *Job, g *fsm.Grant) string {
	if first == nil || first.Serial == g.Serial {
		return "and may not be yet"
	}
	return fmt.Sprintf("before job %d (priority %d, due %d)", first.Serial, first.Priority(), first.Due)
}

// next returns the job that leaves a queue next, nil if there is none, or if it would be too large;
// then the handout is full.
func (b *Shard) next(q *Queue, h *handout) *Job {
	for {
		a := b.first(q)
		if a == nil {
			return nil
		}
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

// grant records one grant of the log, and says what is wrong with it.
func (b *Shard) grant(g *fsm.Grant, asked fsm.Duration) {
	b.count("grants", 1)
	b.look(2)
	a := b.jobs[g.Serial]
	if a == nil {
		b.violated(2, "job %d of %s was granted, which was never put", g.Serial, g.Queue)
		return
	}
	b.judgeGrant(a, g)
	b.judgeKey(a, g)
	if g.Queue != a.Queue.Name || g.Partition != a.Queue.Partition {
		b.violated(37, "job %d of %s (partition %d) was granted as one of %s (partition %d)", g.Serial, a.Queue.Name,
			a.Queue.Partition, g.Queue, g.Partition)
	}
	ttr := ttrOf(a, asked)
	b.look(18)
	if until := b.clock.After(ttr); g.Until != until {
		b.violated(18, "job %d was leased until %d, should be until %d", g.Serial, g.Until, until)
	}
	if g.Due != a.Due {
		b.violated(24, "job %d was granted as due at %d, is due at %d", g.Serial, g.Due, a.Due)
	}
	a.lift()
	b.granted(a)
	a.Queue.counters.Granted++
	a.fence, a.Until, a.length, a.attempt, a.why = g.Fence, g.Until, ttr, g.Attempt, unended
	b.set(a, fsm.Reserved, a.Due)
	a.live = &Lease{
		Job: a, Command: b.now, Ordinal: len(b.allLeases), Fence: g.Fence, Attempt: g.Attempt, Due: g.Due,
		Until: g.Until, Since: a.AvailableSince(),
		Put: a.Put, LastError: a.lastError, TTL: a.TTL, Created: a.Created, FirstDue: a.FirstDue,
	}
	b.leases[g.Fence] = a.live
	b.allLeases = append(b.allLeases, a.live)
}

// judgeGrant holds a grant against the state of the job.
func (b *Shard) judgeGrant(a *Job, g *fsm.Grant) {
	for _, i := range [...]Rule{8, 15, 17, 19, 21, 22, 23} {
		b.look(i)
	}
	switch {
	case a.State == fsm.Acked:
		b.violated(19, "job %d was granted, which was acked", g.Serial)
	case a.State == fsm.Cancelled:
		b.violated(23, "job %d was granted, which was cancelled or purged", g.Serial)
	case a.State == fsm.Dead && !b.oneJob():
		b.violated(22, "job %d was granted, which is dead after attempt %d", g.Serial, a.attempt)
	case !a.State.Held():
		b.violated(2, "job %d was granted, which had ended in state %d", g.Serial, a.State)
	case a.State == fsm.Reserved && b.clock < a.Until:
		b.violated(17, "job %d was granted, which is leased with fence %d until %d, at %d", g.Serial, a.fence,
			a.Until, b.clock)
		b.violated(15, "job %d has two holders, with fences %d and %d", g.Serial, a.fence, g.Fence)
	case a.State != fsm.Reserved && b.clock < a.Due && !b.oneJob():
		b.violated(8, "job %d was granted at %d, which is due at %d", g.Serial, b.clock, a.Due)
	}
	// The number of a queue may have been lowered since the last attempt failed.
	if limit := a.Put.MaxAttempts; a.Put.Given.Has(fsm.GivenMaxAttempts) && limit > 0 && a.attempt >= limit &&
		!b.oneJob() {
		b.violated(22, "job %d was granted after %d of %d attempts", g.Serial, a.attempt, limit)
	}
	if g.Fence <= a.fence {
		b.violated(15, "job %d was granted with fence %d after fence %d", g.Serial, g.Fence, a.fence)
	}
	b.look(6)
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
	b.look(20)
	switch {
	case a.redrives > 0 && a.attempt == 0:
		b.count("jobs handed out again after a redrive", 1)
	case a.why == lapsed:
		b.count("jobs handed out again after a lapse", 1)
	case a.why == nacked:
		b.count("jobs handed out again after a nack", 1)
	case a.why == released:
		b.count("jobs handed out again after a release", 1)
	default:
		b.violated(20, "job %d was granted again with fence %d, and nothing had ended its lease with fence %d", g.Serial,
			g.Fence, a.fence)
	}
}
