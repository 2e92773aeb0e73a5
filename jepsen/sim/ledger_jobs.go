package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// dueAfter returns the bounds of a time that lies so long after another one: times are whole
// milliseconds, never rounded down unless there is nothing to add.
func dueAfter(clock fsm.Time, d time.Duration) (first, last fsm.Time) {
	if d == 0 {
		return clock - fsm.Time(time.Millisecond) + 1, clock
	}
	return clock.Add(d), clock.Add(d).Add(time.Millisecond - 1)
}

// put books a put.
func (l *ledger) put(n *line, c *fsm.Put, r *fsm.Result) bool {
	b := l.named(n, c.Queue)
	first := l.ids[[2]string{c.Queue, c.ID}]
	if c.ID == "" {
		first = nil
	}
	right := b == nil && c.Partition == 0 && c.Partitions == 1 || b != nil && b.partition == c.Partition &&
		b.partitions == c.Partitions
	if right == (r.Code == fsm.QueueChanged) {
		n.violated("a put goes where its queue is", "%s, partition %v of %v, was answered %+v", c.Queue, c.Partition,
			c.Partitions, *r)
		return false
	}
	if right && b == nil {
		b = l.add(n.s, c.Queue, 0, 1)
	}
	switch r.Code {
	case fsm.OK:
		if r.Created {
			return l.created(n, b, c, r)
		}
		l.repeated(n, first, c, r)
	case fsm.JobExists:
		if first == nil || samePut(first.put, c) {
			n.violated("only another job is a conflict", "%s %q was called one: %+v", c.Queue, c.ID, first)
		}
	case fsm.QueueFull, fsm.RateLimited:
		if limit := b.settings.MaxJobs; r.Code == fsm.QueueFull &&
			(limit == 0 || uint64(len(b.held)) < max(1, limit/uint64(b.partitions))) {
			n.violated("a limit is reached before it refuses", "%s holds %v of %v and was called full", c.Queue,
				len(b.held), limit)
		}
		if b.forget(n.e.clock); r.Code == fsm.RateLimited &&
			(b.settings.PutsPerSecond == 0 || r.Wait <= 0 || len(b.rated) == 0) {
			n.violated("a limit is reached before it refuses", "%s was called fast: %+v", c.Queue, *r)
		}
	case fsm.QueueChanged:
	default:
		n.violated("an answer is one of its kind", "put was answered %+v", *r)
	}
	return false
}

// remembered reports whether the end of a job is certainly still known.
func (a *account) remembered(clock fsm.Time) bool {
	window := fsm.DefaultDedupWindow
	if a.book.settings.DedupWindowSet {
		window = a.book.settings.DedupWindow
	}
	return a.book.settings.DedupForever || clock < a.endedAt.Add(window)
}

// created books a job that a put made.
func (l *ledger) created(n *line, b *book, c *fsm.Put, r *fsm.Result) bool {
	clock, key := n.e.clock, [2]string{c.Queue, c.ID}
	if first := l.ids[key]; c.ID != "" && first != nil {
		if first.certain() && !first.could(fsm.Expired, clock) || first.state == ended && !first.maybe && !c.Again &&
			first.remembered(clock) {
			n.violated("an id is put once", "%s %q was created again: %+v", c.Queue, c.ID, first)
		}
		if first.state != ended {
			first.closeAccount(fsm.Expired, clock)
		}
	}
	if r.Serial <= l.serial[n.s.number] || r.Partition != c.Partition {
		n.violated("serials grow", "job %v of partition %v was created after serial %v", r.Serial, r.Partition,
			l.serial[n.s.number])
		return true
	}
	a := &account{book: b, put: c, serial: r.Serial, firstDue: r.Due, due: r.Due, dueLast: r.Due}
	first, last := dueAfter(clock, c.Delay)
	if c.Given.Has(fsm.GivenDueAt) {
		first, last = c.DueAt, c.DueAt.Add(time.Millisecond-1)
	}
	if r.Due < first || r.Due > last || (r.Due <= clock) != (r.State == fsm.Ready) || r.State != fsm.Ready &&
		r.State != fsm.Delayed {
		n.violated("a job is due when it was asked for", "job %v is %+v, to be due from %v to %v", r.Serial, *r, first, last)
	}
	if limit := b.settings.MaxJobs; limit > 0 {
		sure := 0
		for _, other := range b.held {
			sure += int(one(other.certain() && !other.could(fsm.Expired, clock)))
		}
		if uint64(sure) >= max(1, limit/uint64(b.partitions)) {
			n.violated("a limit holds", "%s holds %v jobs of at most %v and took one more", c.Queue, sure, limit)
		}
	}
	b.rate(n)
	if c.Given.Has(fsm.GivenTTL) {
		a.expires = clock.Add(c.TTL).Ceil()
	}
	l.serial[n.s.number] = r.Serial
	l.enroll(n.s, a)
	b.held = append(b.held, a)
	b.told.Put++
	if c.ID != "" {
		l.ids[key] = a
	}
	return true
}

// rate books a job that came into a queue with a limit on its rate: a bucket that holds what comes
// in a second, and is filled as fast.
func (b *book) rate(n *line) {
	limit := b.settings.PutsPerSecond
	if limit == 0 {
		return
	}
	b.forget(n.e.clock)
	b.rated = append(b.rated, n.e.clock)
	if most := 2 * max(1, limit/uint64(b.partitions)); uint64(len(b.rated)) > most+1 {
		n.violated("a limit holds", "%s took %d jobs within a second", b.queue, len(b.rated))
	}
}

// forget drops what came in more than a second ago: its tokens are back.
func (b *book) forget(clock fsm.Time) {
	b.rated = slices.DeleteFunc(b.rated, func(t fsm.Time) bool { return t.Add(time.Second) < clock })
}

func (l *ledger) enroll(s *shard, a *account) {
	list := l.jobs[s.number]
	for uint64(len(list)) <= a.serial {
		list = append(list, nil)
	}
	list[a.serial] = a
	l.jobs[s.number] = list
}

// repeated books a put that met its first.
func (l *ledger) repeated(n *line, first *account, c *fsm.Put, r *fsm.Result) {
	switch {
	case first == nil:
		n.violated("a put is answered as its first", "%s %q was never put: %+v", c.Queue, c.ID, *r)
		return
	case !samePut(first.put, c):
		n.violated("another put is a conflict", "%s %q was taken for its first, which is another", c.Queue, c.ID)
	case first.serial != r.Serial || first.firstDue != r.Due:
		n.violated("a put is answered as its first", "%s %q was answered %+v, its first is job %v, due %v", c.Queue, c.ID,
			*r, first.serial, first.firstDue)
	case !first.could(r.State, n.e.clock):
		n.violated("a state is told as it is", "%s %q is told to be in state %v: %+v", c.Queue, c.ID, r.State, first)
	}
	first.book.told.Duplicate++
}

// samePut reports whether two puts have the same content: all but routing.
func samePut(a, b *fsm.Put) bool {
	return a.Given == b.Given && a.Delay == b.Delay && a.DueAt == b.DueAt && a.TTR == b.TTR && a.TTL == b.TTL &&
		a.Priority == b.Priority &&
		a.MaxAttempts == b.MaxAttempts && slices.Equal(a.RetryDelays, b.RetryDelays) && slices.Equal(a.Headers, b.Headers) &&
		bytes.Equal(a.Body, b.Body)
}

// find returns the account that an id names, nil if there is none.
func (l *ledger) find(s *shard, queue, id string) *account {
	if partition, serial, ok := fsm.ParseID(id); ok {
		a := l.job(s, serial)
		if a == nil || a.book.queue != queue || a.book.partition != partition || a.put.ID != "" {
			return nil
		}
		return a
	}
	if a := l.ids[[2]string{queue, id}]; a != nil && a.book.s == s {
		return a
	}
	return nil
}

// missing holds the answer that there is no such job against the books.
func (l *ledger) missing(n *line, a *account, r *fsm.Result) {
	clock := n.e.clock
	if a == nil {
		return
	}
	if a.certain() && !a.vague && !a.could(fsm.Expired, clock) && (r.State != fsm.Dead || !a.could(fsm.Dead, clock)) {
		n.violated("what is held is found", "job %v was not: %+v", a.serial, a)
	}
	if a.put.ID != "" && a.state == ended && !a.maybe && a.remembered(clock) && r.State != a.how {
		n.violated("how a job ended is told", "job %v is told to have ended as %v: %+v", a.serial, r.State, a)
	}
}

// cancel books a cancel.
func (l *ledger) cancel(n *line, c *fsm.Cancel, r *fsm.Result) bool {
	l.named(n, c.Queue)
	a := l.find(n.s, c.Queue, c.ID)
	switch {
	case r.Code == fsm.JobNotFound:
		l.missing(n, a, r)
	case a == nil || a.state == ended && !a.maybe:
		n.violated("what ended is not cancelled", "%s %q was answered %+v", c.Queue, c.ID, *r)
	case !a.could(r.State, n.e.clock) || !r.State.Held():
		n.violated("a state is told as it is", "job %v is told to be in state %v: %+v", a.serial, r.State, a)
	case r.Code == fsm.OK && r.State == fsm.Reserved && !c.Force:
		n.violated("a reserved job is not cancelled", "job %v was", a.serial)
	case r.Code == fsm.OK:
		a.closeAccount(fsm.Cancelled, n.e.clock)
		a.book.told.Cancelled++
		return true
	case r.Code != fsm.JobReserved || c.Force:
		n.violated("an answer is one of its kind", "cancel was answered %+v", *r)
	}
	return false
}

// reschedule books a reschedule.
func (l *ledger) reschedule(n *line, c *fsm.Reschedule, r *fsm.Result) bool {
	l.named(n, c.Queue)
	a := l.find(n.s, c.Queue, c.ID)
	first, last := dueAfter(n.e.clock, c.Delay)
	if c.Given.Has(fsm.GivenDueAt) {
		first, last = c.DueAt, c.DueAt.Add(time.Millisecond-1)
	}
	switch {
	case r.Code == fsm.JobNotFound:
		l.missing(n, a, r)
	case a == nil || a.state == ended && !a.maybe:
		n.violated("what ended is not rescheduled", "%s %q was answered %+v", c.Queue, c.ID, *r)
	case r.Code == fsm.JobReserved && !a.could(fsm.Reserved, n.e.clock):
		n.violated("a state is told as it is", "job %v is told to be reserved: %+v", a.serial, a)
	case r.Code == fsm.JobReserved:
	case r.Code != fsm.OK:
		n.violated("an answer is one of its kind", "reschedule was answered %+v", *r)
	case !a.could(fsm.Delayed, n.e.clock) && !a.could(fsm.Ready, n.e.clock):
		n.violated("only what waits is rescheduled", "job %v was: %+v", a.serial, a)
	case r.Due < first || r.Due > last || (r.Due <= n.e.clock) != (r.State == fsm.Ready):
		n.violated("a job is due when it was asked for", "job %v is %+v, to be due from %v to %v", a.serial, *r, first, last)
	default:
		a.state, a.due, a.dueLast, a.maybe = waiting, r.Due, r.Due, false
		a.book.told.Rescheduled++
		return true
	}
	return false
}
