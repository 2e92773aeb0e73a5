package soak

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// standing is where a job is by the books.
type standing uint8

const (
	waiting standing = iota
	leased
	ended
)

// account is what the books say of one job.
type account struct {
	queue, id string
	index     uint64 // of its put
	state     standing
	due       fsm.Time
	fence     uint64
	// until is when the lease ends at the earliest, latest when at the latest: the books cannot tell whether a lease that was over was settled
	// before a new leader prolonged all.
	until, latest fsm.Time
	attempt, most uint32
	expires       fsm.Time // 0 for never
	acked         bool
}

// ledger follows every job by what commands and their results say. It knows the promises, not the machine: it has no queues and no order.
type ledger struct {
	history *history
	jobs    map[uint64]*account
	byID    map[[2]string]*account
	serial  uint64 // the highest so far, of jobs and fences
	counts  map[string]int
}

func newLedger(h *history) *ledger {
	return &ledger{history: h, jobs: map[uint64]*account{}, byID: map[[2]string]*account{}, counts: map[string]int{}}
}

// enter books one command with its result.
func (l *ledger) enter(index uint64, clock fsm.Time, command fsm.Command, r fsm.Result) {
	if r.Replayed {
		l.counts["requests answered from memory"]++
		return
	}
	switch c := command.(type) {
	case *fsm.Put:
		l.put(index, clock, c, r)
	case *fsm.Reserve:
		for _, g := range r.Grants {
			l.grant(index, clock, g)
		}
	case *fsm.Ack:
		l.ack(index, clock, c, r)
	case *fsm.Nack:
		l.giveBack(index, clock, c.Ref, r)
	case *fsm.Release:
		if b := l.giveBack(index, clock, c.Ref, r); b != nil {
			b.attempt--
		}
	case *fsm.Extend:
		l.extend(index, clock, c, r)
	case *fsm.Cancel:
		l.cancel(index, c, r)
	case *fsm.Reschedule:
		if b := l.byID[[2]string{c.Queue, c.ID}]; r.Code == fsm.OK && b != nil {
			b.due = r.Due
		}
	case *fsm.Lead:
		for _, b := range l.jobs {
			if least := clock.After(c.Grace); b.state == leased {
				if b.until > clock {
					b.until = max(b.until, least)
				}
				b.latest = max(b.latest, least)
			}
		}
	default: // Expire changes what the books treat as ambiguous anyway
	}
}

func (l *ledger) put(index uint64, clock fsm.Time, c *fsm.Put, r fsm.Result) {
	if r.Code != fsm.OK {
		return
	}
	key := [2]string{c.Queue, c.ID}
	first := l.byID[key]
	if !r.Created {
		if first == nil || c.ID == "" || l.jobs[r.Serial] != first {
			l.history.violated("a put is answered as its first", "at index %d %s %q is answered as job %d, which is another", index, c.Queue, c.ID, r.Serial)
		}
		return
	}
	if c.ID != "" && first != nil {
		l.history.violated("an id is put once", "at index %d %s %q was created again, first at %d", index, c.Queue, c.ID, first.index)
	}
	if r.Serial <= l.serial {
		l.history.violated("serials grow", "at index %d job %d was created after serial %d", index, r.Serial, l.serial)
	}
	if r.Due < clock.Add(c.Delay)-fsm.Time(time.Millisecond) {
		l.history.violated("never early", "at index %d and time %d a put with delay %v is due at %d", index, clock, c.Delay, r.Due)
	}
	l.serial = max(l.serial, r.Serial)
	b := &account{queue: c.Queue, id: c.ID, index: index, due: r.Due}
	if c.Given.Has(fsm.GivenMaxAttempts) {
		b.most = c.MaxAttempts
	}
	if c.Given.Has(fsm.GivenTTL) {
		b.expires = clock.Add(c.TTL).Ceil()
	}
	l.jobs[r.Serial] = b
	if c.ID != "" {
		l.byID[key] = b
	}
	l.counts["jobs put"]++
}

func (l *ledger) grant(index uint64, clock fsm.Time, g fsm.Grant) {
	b := l.jobs[g.Serial]
	if b == nil {
		l.history.violated("nothing from nowhere", "at index %d job %d was granted, which was never put", index, g.Serial)
		return
	}
	switch {
	case b.state == ended:
		l.history.violated("what ended is not handed out", "at index %d job %d was granted (acked: %v)", index, g.Serial, b.acked)
	case b.state == leased && clock < b.until:
		l.history.violated("one holder", "at index %d and time %d job %d was granted, which is leased until %d", index, clock, g.Serial, b.until)
	case b.state == waiting && clock < b.due:
		l.history.violated("never early", "at index %d and time %d job %d was granted, which is due at %d", index, clock, g.Serial, b.due)
	case b.most > 0 && b.attempt >= b.most:
		l.history.violated("attempts end", "at index %d job %d was granted after %d of %d attempts", index, g.Serial, b.attempt, b.most)
	}
	if g.Fence <= b.fence || g.Fence <= l.serial {
		l.history.violated("fences grow", "at index %d job %d was granted with fence %d after %d", index, g.Serial, g.Fence, max(b.fence, l.serial))
	}
	if g.Attempt != b.attempt+1 {
		l.history.violated("attempts are counted", "at index %d job %d was granted as attempt %d after %d", index, g.Serial, g.Attempt, b.attempt)
	}
	if b.attempt > 0 {
		l.counts["jobs handed out again"]++
	}
	l.serial = max(l.serial, g.Fence)
	b.state, b.fence, b.attempt, b.until, b.latest = leased, g.Fence, g.Attempt, g.Until, g.Until
	l.counts["grants"]++
}

// holds returns the account of a lease that a command names. It complains if the command was answered otherwise than the lease allows.
func (l *ledger) holds(index uint64, clock fsm.Time, ref fsm.Ref, r fsm.Result) *account {
	b := l.jobs[ref.Serial]
	current := b != nil && b.state == leased && b.fence == ref.Fence
	switch {
	case r.Code == fsm.OK && (!current || clock >= b.latest):
		l.history.violated("a stale lease is refused", "at index %d and time %d job %d with fence %d was taken: %+v", index, clock, ref.Serial, ref.Fence, b)
	case r.Code == fsm.StaleLease && current && clock < b.until:
		l.history.violated("a lease lasts", "at index %d and time %d job %d with fence %d, leased until %d, was called stale", index, clock, ref.Serial, ref.Fence, b.until)
	case r.Code == fsm.StaleLease:
		l.counts["stale leases refused"]++
	}
	if r.Code != fsm.OK {
		return nil
	}
	return b
}

func (l *ledger) ack(index uint64, clock fsm.Time, c *fsm.Ack, r fsm.Result) {
	if b := l.jobs[c.Serial]; b != nil && b.acked && b.fence == c.Fence && r.Code == fsm.OK {
		return // repeated
	}
	if b := l.holds(index, clock, c.Ref, r); b != nil {
		b.state, b.acked = ended, true
		l.counts["jobs acked"]++
	}
}

func (l *ledger) giveBack(index uint64, clock fsm.Time, ref fsm.Ref, r fsm.Result) *account {
	b := l.holds(index, clock, ref, r)
	if b == nil {
		return nil
	}
	b.state, b.due = waiting, r.Due
	switch r.State {
	case fsm.Dead:
		b.expires, b.due = 0, fsm.TimeMax
	case fsm.Expired:
		b.state = ended
	default:
	}
	return b
}

func (l *ledger) extend(index uint64, clock fsm.Time, c *fsm.Extend, r fsm.Result) {
	b := l.holds(index, clock, c.Ref, r)
	if b == nil {
		return
	}
	if r.Until < b.until {
		l.history.violated("extend never shortens", "at index %d job %d leased until %d is leased until %d", index, c.Serial, b.until, r.Until)
	}
	b.until, b.latest = r.Until, r.Until
}

func (l *ledger) cancel(index uint64, c *fsm.Cancel, r fsm.Result) {
	b := l.byID[[2]string{c.Queue, c.ID}]
	if r.Code != fsm.OK {
		return
	}
	if b == nil || b.state == ended {
		l.history.violated("what ended is not cancelled", "at index %d %s %q was cancelled", index, c.Queue, c.ID)
		return
	}
	if b.state == leased && !c.Force && r.State == fsm.Reserved {
		l.history.violated("a reserved job is not cancelled", "at index %d %s %q was", index, c.Queue, c.ID)
	}
	b.state = ended
	l.counts["jobs cancelled"]++
}
