package sim

import (
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// roundsMax is how often a world is drained: what is due late, what is leased and what is dead
// comes in later rounds; so does what follows a job of an ordered key whose answer is lost.
const roundsMax = 48

// triesMax is how often in a row something may be lost on its way.
const triesMax = 50

// secondOpinion holds what the machine made of an entry against what the reference model makes of
// it.
func (s *shard) secondOpinion(e *entry) {
	want := s.model.Apply(e.stamp, e.requests)
	if !slices.EqualFunc(want, e.results, sameResult) {
		s.w.violated("the model agrees", "entry %v of shard %v gives\n%+v, by the model\n%+v", e.index, s.number,
			e.results, want)
	}
	if want := s.model.Digest(); want != e.digest {
		s.w.violated("the model agrees", "after entry %v of shard %v the digest is %016x, the model's %016x", e.index,
			s.number, e.digest, want)
	}
}

// audit holds what the leader's machine tells of its queues against the books.
func (s *shard) audit() {
	if s.leader < 0 || len(s.log) == 0 {
		return
	}
	m := s.machine()
	clock := m.Clock()
	next, planned := s.deadline()
	if s.reference != nil {
		s.reference.Audit(next, s.nextFiring())
	}
	for _, b := range s.w.ledger.books {
		if b.s != s {
			continue
		}
		q, ok := m.Queue(b.queue, clock)
		s.w.wrong.counted(&q)
		if !ok {
			s.w.violated("a queue is there once it was told of", "%s is not in shard %v", b.queue, s.number)
			return
		}
		b.auditCounters(&q)
		for _, a := range b.held {
			if wake := a.wake(clock); wake != 0 && (!planned || next > wake) {
				s.w.violated("somebody wakes up", "job %v of shard %v has something to happen at %v, the machine wakes up at %v "+
					"(%t)", a.serial, s.number, wake, next, planned)
			}
		}
	}
}

// wake is when something is to happen to a job at the latest, 0 if the books cannot tell.
func (a *account) wake(clock fsm.Time) fsm.Time {
	switch {
	case a.maybe || a.vague || a.expires != 0 && a.expires <= clock:
		return 0
	case a.state == leased && a.until > clock:
		return a.latest
	case a.state == waiting && a.due > clock && a.expires == 0:
		return a.dueLast
	case a.state == waiting && a.due > clock:
		return min(a.dueLast, a.expires)
	case a.state == waiting:
		return a.expires
	default:
		return 0
	}
}

// auditCounters holds the counters of a queue against what answers add up to, and checks that
// nothing got lost in between.
func (b *book) auditCounters(q *fsm.Queue) {
	c, w := q.Counters, b.s.w
	if held := q.Counts.Jobs(); c.Put != held+c.Acked+c.Cancelled+c.Expired+c.Purged {
		w.violated("what was put is somewhere", "%s in shard %v: %v put, %v held: %+v", b.queue, b.s.number, c.Put, held, c)
	}
	told := c
	told.Lapsed, told.Expired, told.Died = 0, 0, 0 // no client is told of these
	if told != b.told {
		w.violated("counters count", "%s in shard %v has %+v, answers add up to %+v", b.queue, b.s.number, told, b.told)
	}
	sure := uint64(0)
	for _, a := range b.held {
		sure += one(a.certain() && a.expires == 0)
	}
	if q.Counts.Jobs() < sure || q.Counts.Jobs() > uint64(len(b.held)) {
		w.violated("nothing is lost, nothing comes from nowhere", "%s in shard %v holds %v jobs, the books %v to %v", b.queue,
			b.s.number, q.Counts.Jobs(), sure, len(b.held))
	}
}

// drain heals the world and takes out all jobs, with every node in turn as the leader: what was put
// must come.
func (w *world) drain() {
	if w.told() {
		w.say("the world is healed and drained")
	}
	for _, s := range w.shards {
		s.leadBy(w.r.IntN(nodesMax))
	}
	for _, o := range w.crowd.doubts {
		if o.state == unknown {
			w.crowd.send(o)
		}
	}
	for _, q := range slices.Concat(w.queues, w.keyed) {
		w.resume(q)
	}
	w.endSchedules()
	for round := range roundsMax {
		left := 0
		for _, s := range w.shards {
			s.leadBy((s.leader + 1) % nodesMax)
			left += s.drainRound()
		}
		if left == 0 || w.violation != nil {
			return
		}
		w.mark("round", uint64(round), uint64(left))
	}
}

// resume finishes a queue's creation and lets it hand out all that it has. What is asked may be
// lost on its way.
func (w *world) resume(q *queue) {
	q.settings.Paused, q.settings.MaxInFlight = false, 0
	if q.keyed {
		q.settings.MaxJobs, q.settings.MaxBytes = 0, 0
		q.settings.Keys = fsm.KeySettings{Ordered: q.settings.Keys.Ordered, Concurrency: q.settings.Keys.Concurrency}
	}
	q.version += 2
	for try := 0; w.violation == nil && !w.configured(q); try++ {
		if try == triesMax {
			w.violated("a queue can be configured", "%s cannot, by version %d", q.name, q.version)
		}
		if q.late && q.opened != nil {
			w.create(q)
		} else {
			w.configure(q)
		}
		w.run()
	}
}

// configured reports whether the last settings of a queue are in force wherever it is.
func (w *world) configured(q *queue) bool {
	for p := range q.believed {
		if q.keyed {
			m := w.shardOf(q, p).machine()
			if v, ok := m.Queue(q.name, m.Clock()); !ok || v.Version < q.version {
				return false
			}
			continue
		}
		if b := w.ledger.book(w.shardOf(q, p), q.name); b == nil || b.version < q.version {
			return false
		}
	}
	return true
}

// leadBy gives a shard another leader, after what is on its way.
func (s *shard) leadBy(node int) {
	s.run()
	if s.leader != node {
		s.depose()
		s.elect(node, len(s.inflight))
		s.run()
	}
}

// run finishes what is on its way.
func (s *shard) run() {
	for len(s.pending)+len(s.inflight) > 0 && s.w.violation == nil {
		s.propose() // which elects a leader if there is none
		s.commit()
	}
}

// drainRound waits until everything in a shard is due, takes it out, and brings the dead back for
// the next round. It returns how much is left.
func (s *shard) drainRound() (left int) {
	w := s.w
	for _, b := range w.ledger.books {
		for _, a := range b.held {
			if b.s == s && a.state != dead {
				w.now = max(w.now, max(a.dueLast, a.latest).Add(w.skew+time.Millisecond))
			}
		}
	}
	for _, b := range w.ledger.books {
		if b.s != s || len(b.held) == 0 {
			continue
		}
		s.takeOut(b.queue)
		w.crowd.ask(s, "drain", &fsm.Redrive{Queue: b.queue})
		s.run()
		left += len(b.held)
	}
	if s.reference != nil {
		left += s.drainKeyed()
	}
	return left
}

// takeOut reserves and acks what a queue hands out at once, and reports whether there was anything.
func (s *shard) takeOut(queue string) bool {
	o := s.w.crowd.ask(s, "drain", &fsm.Reserve{Queues: []string{queue}, Max: 1000, TTR: time.Hour})
	s.run()
	if o.state != answered || len(o.results[0].Grants) == 0 {
		return false
	}
	var acks []fsm.Command
	for _, g := range o.results[0].Grants {
		acks = append(acks, &fsm.Ack{Ref: refOf(g)})
	}
	s.w.crowd.ask(s, "drain", acks...)
	return true
}

// close checks what must hold at the end: nothing is left, all replicas agree, also when they are
// restored, and all clients were told the truth.
func (w *world) close() {
	for _, s := range w.shards {
		s.audit()
		for _, b := range w.ledger.books {
			for _, a := range b.held {
				if b.s == s && a.certain() {
					w.violated("nothing is lost", "job %v of %s in shard %v was never handed out: %+v", a.serial, b.queue, s.number, a)
				}
			}
		}
		if s.reference != nil {
			s.reference.Close()
		}
		for _, r := range s.replicas {
			r.apply(len(s.log))
		}
		if r := s.replicas[w.r.IntN(nodesMax)]; w.violation == nil && len(s.log) > 0 {
			r.snapshot()
			r.restore(r.saved[len(r.saved)-1])
		}
	}
	for _, o := range w.crowd.all {
		switch {
		case o.effect && o.again != nil && o.again.effect:
			w.violated("an unknown outcome is applied at most once", "request %q was, and once more where it was sent then",
				o.request.ID)
		case o.state == refused && o.logged > 0:
			w.violated("a refusal is one", "request %q (%T) was refused and is in the log", o.request.ID, o.request.Commands[0])
		case o.state == answered && !o.s.has(o):
			w.violated("what was acknowledged is in the log",
				"request %q (%T), answered with index %v of shard %v, is not there", o.request.ID, o.request.Commands[0], o.index,
				o.s.number)
		}
	}
}

// has reports whether the log has an operation where its client was told.
func (s *shard) has(o *op) bool {
	if o.index > uint64(len(s.log)) {
		return false
	}
	for _, r := range s.log[o.index-1].requests {
		if r.Caller == o.request.Caller && r.ID == o.request.ID && r.Commands[0] == o.request.Commands[0] {
			return true
		}
	}
	return false
}
