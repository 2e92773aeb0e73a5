package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
	shardledger "github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// standing is where a job is by the books.
type standing uint8

const (
	waiting standing = iota // delayed or ready: its due time tells
	leased
	dead
	ended
)

// account is what the books say of one job. Where they cannot know something they know its bounds.
type account struct {
	book     *book
	put      *fsm.Put
	serial   uint64
	firstDue fsm.Time
	state    standing
	how      fsm.State // of one that ended
	endedAt  fsm.Time  // at the earliest

	// due and dueLast bound the time from which a waiting job may be handed out.
	due, dueLast fsm.Time
	// until and latest bound the end of a lease: it is unknown whether an expired lease was settled
	// before a new leader prolonged all.
	until, latest fsm.Time
	granted       fsm.Time // true time of the stamp: the worker began to count before
	length        time.Duration
	fence         uint64
	attempt       uint32
	expires       fsm.Time // 0 for never
	// maybe means that it may have ended by a declared policy; vague that its attempts and due time
	// are not known.
	maybe, vague bool
}

// String tells what the books say, for a reader of a violation.
func (a *account) String() string {
	if a == nil {
		return "unknown"
	}
	id := a.put.ID
	if id == "" {
		id = fsm.FormatID(a.book.partition, a.serial)
	}
	return fmt.Sprintf("{%s of %s is %s, due %v..%v, leased until %v..%v as %d, attempt %d of %d, expires %v, ended as "+
		"%d at %v, maybe %t, vague %t}",
		id, a.book.queue, [...]string{"waiting", "leased", "dead", "ended"}[a.state], since(a.due), since(a.dueLast),
		since(a.until), since(a.latest),
		a.fence, a.attempt, a.most(), since(a.expires), a.how, since(a.endedAt), a.maybe, a.vague)
}

// since is a time as it is told.
func since(t fsm.Time) time.Duration {
	if t == 0 {
		return 0
	}
	return t.Sub(epoch)
}

// book is one partition of a queue.
type book struct {
	queue                 string
	s                     *shard
	partition, partitions uint32
	version               uint64
	settings              fsm.Settings
	held                  []*account
	told                  fsm.Counters // what answers add up to
	rated                 []fsm.Time   // when jobs came in that took a token, within the last second
}

// ledger follows every job by what clients were told, in the order of the log. It knows the
// promises, not the machine: it keeps no orders and carries nothing out.
type ledger struct {
	w      *world
	books  []*book
	ids    map[[2]string]*account // the last job of each chosen id, of the whole cluster
	jobs   [shardsMax][]*account  // by serial
	serial [shardsMax]uint64      // the highest told, of jobs and fences
}

func newLedger(w *world) *ledger { return &ledger{w: w, ids: map[[2]string]*account{}} }

// line is one request of the log with what was answered.
type line struct {
	s       *shard
	e       *entry
	op      *op // nil if the leader logged it by itself
	request *fsm.Request
	results []fsm.Result
	judged  []shardledger.Command // by the reference ledger, nil without one
}

// violated notes a broken rule with the place in the log.
func (n *line) violated(rule, format string, args ...any) {
	n.s.w.violated(rule, "at entry %d of shard %d, time %v: "+format,
		slices.Concat([]any{n.e.index, n.s.number, n.e.clock}, args)...)
}

// enter books a request.
func (l *ledger) enter(n *line) {
	if ahead := n.e.clock.Sub(n.e.at); ahead > l.w.skew {
		n.violated("shard time is not ahead of true time", "by %v, though no clock is by more than %v", ahead, l.w.skew)
	}
	if n.op != nil && l.fromMemory(n) {
		return
	}
	effect := false
	for i, c := range n.request.Commands {
		if l.leftToReference(n.s, c) {
			effect = n.judged[i].Effect || effect
		} else if l.command(n, c, &n.results[i]) {
			effect = true
		}
	}
	if n.op == nil {
		return
	}
	if effect {
		n.op.effect, n.op.effectAt, n.op.first = true, n.e.clock, n.results
	}
}

// leftToReference reports whether the reference ledger alone judges a command: it is about a queue
// with keys. A Reserve may name others as well. A repeated ack is found by its lease, whichever queue it
// names.
func (l *ledger) leftToReference(s *shard, c fsm.Command) bool {
	if ack, ok := c.(*fsm.Ack); ok && s.reference != nil && s.reference.Owns(ack.Serial) {
		return true
	}
	return !isReserve(c) && l.w.isKeyed(fsm.QueueOf(c))
}

func isReserve(c fsm.Command) bool { return c.Kind() == fsm.KindReserve }

// fromMemory reports whether a request was answered without being carried out, and holds that
// against its first answer.
func (l *ledger) fromMemory(n *line) bool {
	o, r := n.op, n.results[0]
	over := n.e.clock > o.effectAt.Add(fsm.RequestWindow)
	tooOld := o.uuid != 0 && o.uuid.Add(fsm.RequestWindow) < n.e.clock
	switch {
	case r.Code == fsm.RequestExpired:
		if !tooOld {
			n.violated("a request id is good for 5 minutes", "request %q was called expired", o.request.ID)
		}
		return true
	case r.Code == fsm.Invalid:
		if o.again == nil { // which has the same id
			n.violated("a request is what it was", "request %q was called another", o.request.ID)
		}
		return true
	case r.Replayed:
		l.replayed(n)
		return true
	case o.effect && o.request.ID != "" && over && tooOld:
		n.violated("an old request is refused", "request %q was carried out again", o.request.ID)
	case o.effect && o.request.ID != "" && !over && !isReserve(o.request.Commands[0]):
		n.violated("an unknown outcome is applied at most once", "request %q was carried out again, the first time was at %v",
			o.request.ID, o.effectAt)
	}
	return false
}

// replayed holds an answer from memory against the first one. Of a Reserve those grants are left
// that are live.
func (l *ledger) replayed(n *line) {
	l.w.tally[tally.Replayed]++
	if !n.op.effect {
		n.violated("an answer from memory has a first", "request %q was never carried out", n.op.request.ID)
		return
	}
	for i, first := range n.op.first {
		again := n.results[i]
		again.Replayed = false
		if isReserve(n.request.Commands[i]) {
			for _, g := range again.Grants {
				if l.w.isKeyed(g.Queue) {
					continue
				}
				a := l.job(n.s, g.Serial)
				if !slices.Contains(first.Grants, g) || a == nil || a.state != leased || a.fence != g.Fence ||
					n.e.clock >= a.latest {
					n.violated("a repeated reserve has live grants of the first", "%+v of request %q is not: %+v",
						g, n.op.request.ID, a)
				}
			}
			first.Grants, again.Grants = nil, nil
		}
		if !sameResult(first, again) {
			n.violated("an answer from memory is the first", "request %q was answered %+v, first %+v", n.op.request.ID,
				again, first)
		}
	}
}

// command books one command and reports whether it took effect.
func (l *ledger) command(n *line, c fsm.Command, r *fsm.Result) bool {
	switch c := c.(type) {
	case *fsm.Put:
		return l.put(n, c, r)
	case *fsm.Reserve:
		return l.reserve(n, c, r)
	case *fsm.Ack:
		return l.ack(n, c, r)
	case *fsm.Nack:
		return l.nack(n, c, r)
	case *fsm.Release:
		return l.release(n, c, r)
	case *fsm.Extend:
		return l.extend(n, c, r)
	case *fsm.Cancel:
		return l.cancel(n, c, r)
	case *fsm.Reschedule:
		return l.reschedule(n, c, r)
	case *fsm.Redrive:
		return l.redrive(n, c, r)
	case *fsm.Purge:
		return l.purge(n, c, r)
	case *fsm.Configure:
		return l.configure(n, c, r)
	case *fsm.Open:
		return l.open(n, c, r)
	case *fsm.Lead:
		l.lead(n, c)
	default: // Expire settles what the books settle when they come to it
	}
	return false
}

// book returns a queue's partition in a shard, nil if no client was told of one.
func (l *ledger) book(s *shard, queue string) *book {
	for _, b := range l.books {
		if b.s == s && b.queue == queue {
			return b
		}
	}
	return nil
}

// named is book for a command that names the queue: what has fallen due is settled by it, at the
// latest.
func (l *ledger) named(n *line, queue string) *book {
	b := l.book(n.s, queue)
	if b != nil {
		b.settleAccounts(n.e.clock)
	}
	return b
}

// add opens a book.
func (l *ledger) add(s *shard, queue string, partition, partitions uint32) *book {
	b := &book{queue: queue, s: s, partition: partition, partitions: partitions}
	l.books = append(l.books, b)
	return b
}

// job returns the account of a serial, nil if there is none.
func (l *ledger) job(s *shard, serial uint64) *account {
	list := l.jobs[s.number]
	if serial >= uint64(len(list)) {
		return nil
	}
	return list[serial]
}

// settleAccounts draws the conclusions that are certain at a time.
func (b *book) settleAccounts(clock fsm.Time) {
	for i := len(b.held) - 1; i >= 0; i-- {
		a := b.held[i]
		if a.state == leased && a.latest <= clock {
			a.lapse()
		}
		if a.state == waiting && a.expires != 0 && a.expires <= clock {
			a.expire(clock)
		}
	}
}

// lapse ends a lease that is over.
func (a *account) lapse() {
	a.state, a.due, a.dueLast = waiting, a.until, a.latest
	if a.exhausted() {
		a.state = dead
	}
}

// exhausted reports whether no attempt is left.
func (a *account) exhausted() bool {
	most := a.most()
	return most > 0 && a.attempt >= most
}

func (a *account) most() uint32 {
	switch {
	case a.put.Given.Has(fsm.GivenMaxAttempts):
		return a.put.MaxAttempts
	case a.book.settings.MaxAttemptsSet:
		return a.book.settings.MaxAttempts
	default:
		return fsm.DefaultMaxAttempts
	}
}

// expire ends the life of a waiting job by its ttl.
func (a *account) expire(clock fsm.Time) {
	if a.book.settings.ExpireToDead {
		a.state, a.expires = dead, 0
		return
	}
	a.closeAccount(fsm.Expired, min(a.expires, clock))
}

// closeAccount closes an account.
func (a *account) closeAccount(how fsm.State, at fsm.Time) {
	a.state, a.how, a.endedAt = ended, how, at
	b := a.book
	if i := slices.Index(b.held, a); i >= 0 {
		b.held = slices.Delete(b.held, i, i+1)
	}
}

// certain reports whether a job is certainly held.
func (a *account) certain() bool { return a.state != ended && !a.maybe }

// could reports whether a job may be in a state at a time. The queue has been settled.
func (a *account) could(state fsm.State, clock fsm.Time) bool {
	if a.vague {
		return true
	}
	open := a.state == leased && a.until <= clock // over, or not
	switch state {
	case fsm.Delayed:
		return a.state == waiting && clock < a.dueLast
	case fsm.Ready:
		return a.state == waiting && a.due <= clock || open && !a.exhausted()
	case fsm.Reserved:
		return a.state == leased
	case fsm.Dead:
		return a.state == dead || open && (a.exhausted() || a.expires != 0 && a.expires <= clock)
	default:
		return a.state == ended && (a.how == state) || a.maybe || open && a.expires != 0 && a.expires <= clock &&
			state == fsm.Expired
	}
}

// must reports whether a job is certainly in one of the states.
func (a *account) must(states fsm.StateSet, clock fsm.Time) bool {
	if !a.certain() || a.vague {
		return false
	}
	for _, state := range []fsm.State{fsm.Delayed, fsm.Ready, fsm.Reserved, fsm.Dead, fsm.Expired} {
		if !states.Has(state) && a.could(state, clock) {
			return false
		}
	}
	return true
}
