package sim

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// reserve books what was handed out, queue by queue, and what was not though it could have been.
func (l *ledger) reserve(n *line, c *fsm.Reserve, r *fsm.Result) bool {
	grants := r.Grants
	if r.Code != fsm.OK || len(grants) > int(c.Max) {
		n.violated("an answer is one of its kind", "a reserve of %v was answered %+v", c.Max, *r)
		return false
	}
	left := int(c.Max)
	for _, name := range c.Queues {
		if left == 0 {
			break
		}
		b := l.named(n, name)
		mine := 0
		for mine < len(grants) && grants[mine].Queue == name {
			if !l.w.isKeyed(name) { // else the reference ledger judges it
				l.grant(n, c, &grants[mine])
			}
			mine++
		}
		grants = grants[mine:]
		left -= mine
		if b != nil && left > 0 {
			l.leftBehind(n, b)
		}
	}
	if len(grants) > 0 {
		n.violated("only queues that were asked for", "%v were asked, %+v was handed out", c.Queues, grants[0])
	}
	return len(r.Grants) > 0
}

// grant books one job that was handed out.
func (l *ledger) grant(n *line, c *fsm.Reserve, g *fsm.Grant) {
	a, clock := l.job(n.s, g.Serial), n.e.clock
	if a == nil || a.book.queue != g.Queue || a.book.partition != g.Partition || a.book.s != n.s {
		n.violated("nothing from nowhere", "%+v was handed out, which nobody put: %+v", *g, a)
		return
	}
	l.grantable(n, a, g)
	if a.state == leased {
		a.lapse()
	}
	l.judgeOrder(n, a, g)
	length := a.leaseLength(c.TTR)
	if first, last := dueAfter(clock, length); g.Until < first || g.Until > last {
		n.violated("a lease is as long as it was asked for", "job %v is leased until %v, not from %v to %v", g.Serial,
			g.Until, first, last)
	}
	job, ok := n.s.machine().Held(refOf(*g))
	if n.s.leader >= 0 && (!ok || !bytes.Equal(job.Body, a.put.Body) || !slices.Equal(job.Headers, a.put.Headers) ||
		a.put.ID != "" && job.ID != a.put.ID) {
		n.held(a, g)
	}
	l.w.tally[tally.Grants]++
	l.w.tally[tally.GrantedAgain] += one(a.attempt > 0)
	l.serial[n.s.number] = max(l.serial[n.s.number], g.Fence)
	a.state, a.fence, a.attempt, a.until, a.latest, a.length = leased, g.Fence, g.Attempt, g.Until, g.Until, length
	a.due, a.dueLast, a.granted, a.vague, a.maybe = g.Due, g.Due, n.e.stamped, false, false
	a.book.told.Granted++
}

// held complains of a body that is not what was put, unless a later command of the same entry has
// changed the lease again.
func (n *line) held(a *account, g *fsm.Grant) {
	later := 0
	for i := range n.e.requests {
		later += len(n.e.requests[i].Commands)
	}
	if later == 1 {
		n.violated("what is handed out is what was put", "job %v, fence %v: put was %+v", g.Serial, g.Fence, a.put)
	}
}

// leaseLength is the length of a lease for which a reserve asked, or did not.
func (a *account) leaseLength(asked time.Duration) time.Duration {
	return cmp.Or(asked, a.put.TTR, a.book.settings.TTR, fsm.DefaultTTR)
}

// grantable holds a grant against what is known of the job.
func (l *ledger) grantable(n *line, a *account, g *fsm.Grant) {
	clock := n.e.clock
	switch {
	case a.state == ended && !a.maybe:
		n.violated("what ended is not handed out", "job %v was: %+v", g.Serial, a)
	case a.state == dead && !a.vague:
		n.violated("the dead are not handed out", "job %v was: %+v", g.Serial, a)
	case a.state == leased && clock < a.until:
		n.violated("one holder", "job %v was handed out, which is leased until %v with fence %v", g.Serial, a.until, a.fence)
	case a.state == leased && n.e.at < a.granted+fsm.Time(a.length)-2*fsm.Time(l.w.skew):
		n.violated("one holder", "job %v was handed out, which was leased for %v at true time %v", g.Serial,
			a.length, a.granted)
	case a.state == leased && a.exhausted():
		n.violated("attempts end", "job %v was handed out after %v of %v attempts", g.Serial, a.attempt, a.most())
	case g.Due > clock || a.state == waiting && !a.vague && a.due > clock:
		n.violated("never early", "job %v, due at %v, was handed out", g.Serial, g.Due)
	case n.e.at+fsm.Time(l.w.skew) < g.Due:
		n.violated("never early", "job %v, due at %v, was handed out at true time %v", g.Serial, g.Due, n.e.at)
	case a.state == leased && !a.vague && (g.Due < a.until || g.Due > a.latest), a.state == waiting && !a.vague &&
		(g.Due < a.due || g.Due > a.dueLast):
		n.violated("a due time stays", "job %v was handed out with due time %v, not %v to %v: %+v", g.Serial, g.Due, a.due,
			a.dueLast, a)
	case a.state != leased && a.expires != 0 && a.expires <= clock:
		n.violated("what expired is not handed out", "job %v was, its end was at %v", g.Serial, a.expires)
	case a.book.settings.PausedAt(clock):
		n.violated("a paused queue hands out nothing", "job %v of %s was", g.Serial, g.Queue)
	case g.Fence <= l.serial[n.s.number] || g.Fence <= a.fence:
		n.violated("fences grow", "job %v was handed out with fence %v after %v", g.Serial, g.Fence,
			max(a.fence, l.serial[n.s.number]))
	case g.Attempt != a.attempt+1 && !a.vague || g.Attempt == 0:
		n.violated("attempts are counted", "job %v was handed out as attempt %v after %v", g.Serial, g.Attempt, a.attempt)
	}
	if limit := a.book.settings.MaxInFlight; limit > 0 {
		sure := 0
		for _, other := range a.book.held {
			sure += int(one(other != a && other.must(fsm.Set(fsm.Reserved), clock)))
		}
		if uint64(sure) >= max(1, limit/uint64(a.book.partitions)) {
			n.violated("a limit holds", "%s has %v jobs reserved of at most %v and handed out job %v", g.Queue, sure,
				limit, g.Serial)
		}
	}
}

// judgeOrder checks that no job that certainly was ready should have left first.
func (l *ledger) judgeOrder(n *line, a *account, g *fsm.Grant) {
	for _, other := range a.book.held {
		if other == a || !other.ready(n.e.clock) {
			continue
		}
		if cmp.Or(cmp.Compare(other.put.Priority, a.put.Priority), cmp.Compare(other.dueLast, g.Due),
			cmp.Compare(other.serial, g.Serial)) < 0 {
			n.violated("jobs leave in order", "job %v (priority %v, due %v) was handed out before job %v (priority %v, due %v)",
				g.Serial, a.put.Priority, g.Due, other.serial, other.put.Priority, other.dueLast)
		}
	}
}

// ready reports whether a job certainly can be handed out. Its queue has been settled.
func (a *account) ready(clock fsm.Time) bool {
	return a.state == waiting && !a.maybe && !a.vague && a.dueLast <= clock
}

// leftBehind checks that a reserve that got less than it asked for left nothing that was ready.
func (l *ledger) leftBehind(n *line, b *book) {
	if b.settings.MaxInFlight > 0 || b.settings.PausedAt(n.e.clock) {
		return
	}
	for i := len(b.held) - 1; i >= 0; i-- {
		a := b.held[i]
		if a.maybe && a.state == waiting && a.dueLast <= n.e.clock {
			a.closeAccount(cmp.Or(a.how, fsm.Expired), 0) // so it had
			continue
		}
		if a.ready(n.e.clock) {
			n.violated("what is due is handed out", "job %v, due at %v, was not: %+v", a.serial, a.dueLast, a)
		}
	}
}

// holds returns the account of a lease that a command names, nil if it was refused. It complains if
// the lease says otherwise.
func (l *ledger) holds(n *line, ref fsm.Ref, code fsm.Code) *account {
	l.named(n, ref.Queue)
	a, clock := l.job(n.s, ref.Serial), n.e.clock
	current := a != nil && a.state == leased && a.fence == ref.Fence && a.book.queue == ref.Queue &&
		a.book.partition == ref.Partition
	switch {
	case code == fsm.OK && (!current || clock >= a.latest):
		n.violated("a stale lease is refused", "job %v with fence %v was taken: %+v", ref.Serial, ref.Fence, a)
		return nil
	case code == fsm.OK:
		return a
	case code != fsm.StaleLease:
		n.violated("an answer is one of its kind", "a lease was answered with code %v", code)
	case current && clock < a.until:
		n.violated("a lease lasts", "job %v with fence %v, leased until %v, was called stale", ref.Serial, ref.Fence, a.until)
	case current:
		l.w.tally[tally.StaleRefused]++
		a.latest = min(a.latest, clock) // so it was over
		a.book.settleAccounts(clock)
	default:
		l.w.tally[tally.StaleRefused]++
	}
	return nil
}

func (l *ledger) ack(n *line, c *fsm.Ack, r *fsm.Result) bool {
	a := l.job(n.s, c.Serial)
	if a != nil && a.state == ended && a.how == fsm.Acked && a.fence == c.Fence {
		if b := l.book(n.s, c.Queue); b != nil {
			b.settleAccounts(n.e.clock)
		}
		if r.Code != fsm.OK && n.e.clock <= a.until.Add(fsm.FinishedWindow) {
			n.violated("an ack may be repeated", "of job %v, fence %v, it was called stale", c.Serial, c.Fence)
		}
		if r.Code == fsm.OK && n.e.clock > a.latest.Add(fsm.FinishedWindow) {
			n.violated("a stale lease is refused", "job %v with fence %v, acked long ago, was acked again", c.Serial, c.Fence)
		}
		return false
	}
	a = l.holds(n, c.Ref, r.Code)
	if a == nil {
		return false
	}
	a.closeAccount(fsm.Acked, n.e.clock)
	a.book.told.Acked++
	l.w.tally[tally.Acks]++
	return true
}

// nack books a job that was given back as failed.
func (l *ledger) nack(n *line, c *fsm.Nack, r *fsm.Result) bool {
	a := l.holds(n, c.Ref, r.Code)
	if a == nil {
		return false
	}
	delay := delayRange{c.Delay, c.Delay}
	if !c.DelayGiven {
		delay = a.retryDelay()
	}
	a.book.told.Nacked++
	if (c.Dead || a.exhausted()) != (r.State == fsm.Dead) && (r.State != fsm.Dead || !a.past(n.e.clock)) {
		n.violated("attempts end", "job %v after attempt %v of %v is in state %v", c.Serial, a.attempt, a.most(), r.State)
	}
	l.back(n, a, delay, r)
	return true
}

// delayRange is how long a job may wait that was given back.
type delayRange struct{ least, most time.Duration }

// retryDelay returns what follows the present attempt, if it fails.
func (a *account) retryDelay() delayRange {
	delays := a.book.settings.RetryDelays
	if a.put.Given.Has(fsm.GivenRetryDelays) {
		delays = a.put.RetryDelays
	} else if len(delays) == 0 && a.book.s.w.format > fsm.FirstFormat {
		seconds := [...]time.Duration{1, 5, 30, 120, 600, 1800, 3600}
		delay := seconds[min(int(a.attempt), len(seconds))-1] * time.Second
		return delayRange{delay - delay/10, delay + delay/10}
	}
	if len(delays) == 0 {
		return delayRange{}
	}
	delay := delays[min(int(a.attempt), len(delays))-1]
	return delayRange{delay, delay}
}

// past reports whether a job's time to live is over and it becomes a dead letter then.
func (a *account) past(clock fsm.Time) bool {
	return a.expires != 0 && a.expires <= clock && a.book.settings.ExpireToDead
}

// back books where a job went that was given back.
func (l *ledger) back(n *line, a *account, delay delayRange, r *fsm.Result) {
	first, _ := dueAfter(n.e.clock, delay.least)
	_, last := dueAfter(n.e.clock, delay.most)
	switch r.State {
	case fsm.Dead:
		a.state = dead
		if a.past(n.e.clock) {
			a.expires = 0
		}
	case fsm.Expired:
		if a.expires == 0 || a.expires > n.e.clock {
			n.violated("only what is over expires", "job %v did: %+v", a.serial, a)
		}
		a.closeAccount(fsm.Expired, n.e.clock)
	case fsm.Delayed, fsm.Ready:
		a.outlived(n)
		if r.Due < first || r.Due > last || (r.Due <= n.e.clock) != (r.State == fsm.Ready) {
			n.violated("a retry comes when it was asked for", "job %v is %+v, to be due from %v to %v", a.serial, *r,
				first, last)
		}
		a.state, a.due, a.dueLast = waiting, r.Due, r.Due
	default:
		n.violated("an answer is one of its kind", "a job that was given back is %+v", *r)
	}
}

// outlived complains of a job that waits again though its time to live is over.
func (a *account) outlived(n *line) {
	if a.expires != 0 && a.expires <= n.e.clock {
		n.violated("what is over expires", "job %d was given back and waits: %v", a.serial, a)
	}
}

// release books a job that was given back without an attempt. Without a delay it keeps its due
// time.
func (l *ledger) release(n *line, c *fsm.Release, r *fsm.Result) bool {
	a := l.holds(n, c.Ref, r.Code)
	if a == nil {
		return false
	}
	a.attempt--
	a.book.told.Released++
	if c.Delay == 0 && r.State == fsm.Ready {
		if r.Due != a.due {
			n.violated("a due time stays", "job %v, due at %v, was released to %v", a.serial, a.due, r.Due)
		}
		a.outlived(n)
		a.state = waiting
		return true
	}
	if r.State == fsm.Dead && !a.past(n.e.clock) {
		n.violated("a release does not count", "job %v is dead", a.serial)
	}
	l.back(n, a, delayRange{c.Delay, c.Delay}, r)
	return true
}

func (l *ledger) extend(n *line, c *fsm.Extend, r *fsm.Result) bool {
	a := l.holds(n, c.Ref, r.Code)
	if a == nil {
		return false
	}
	a.length = cmp.Or(c.TTR, a.length)
	first, _ := dueAfter(n.e.clock, a.length)
	if r.Until < a.until || r.Until < first {
		n.violated("extend never shortens", "job %v, leased until %v, is leased until %v", a.serial, a.until, r.Until)
	}
	a.until, a.latest = r.Until, r.Until
	a.book.told.Extended++
	return true
}

// lead books the grace of a new leader, and outages after which a queue's policy may move or end
// what fell due.
func (l *ledger) lead(n *line, c *fsm.Lead) {
	clock := n.e.clock
	_, floor := dueAfter(clock, c.Grace)
	least := clock.Add(c.Grace).Ceil()
	for _, b := range l.books {
		if b.s != n.s {
			continue
		}
		for _, a := range b.held {
			if a.state == leased && a.until > clock {
				a.until = max(a.until, least)
			}
			if a.state == leased {
				a.latest = max(a.latest, min(floor, least))
			}
			if a.state != leased && a.state != waiting || a.due > clock {
				continue
			}
			switch b.settings.Overdue {
			case fsm.DropOverdue:
				a.maybe = a.state == waiting
			case fsm.SpreadOverdue:
				if a.state == waiting {
					a.dueLast = max(a.dueLast, clock.Add(b.settings.OverduePeriod).Ceil().Add(time.Millisecond))
				}
			case fsm.FireOverdue:
			}
		}
	}
}
