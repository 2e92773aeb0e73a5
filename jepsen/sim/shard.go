package sim

import (
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/model"
	shardledger "github.com/belfrydb/belfry/fsm/model/ledger"
	"github.com/belfrydb/belfry/jepsen/sim/reference"
	"github.com/belfrydb/belfry/jepsen/sim/tally"
)

// shard is one abstract log with a replica on every node. What is in the log is committed; Raft,
// which brings it there, is not simulated: what can become of a proposal is drawn.
type shard struct {
	w      *world
	number int
	log    []*entry // the index of an entry is its position plus one

	leader   int // the node that leads, -1 if none does
	pending  []*call
	inflight []*proposal
	pacing   bool // an entry of the pacer is on its way
	firing   bool // firings of schedules are on their way

	replicas [nodesMax]*replica
	model    *model.Model // nil unless this world is held against it
	// reference judges keys and schedules; nil in worlds without them.
	reference *reference.Judge
}

// call is an attempt at an operation that is on its way. No client waits for the answer once it is
// given up.
type call struct {
	op      *op
	givenUp bool
}

// proposal is what a leader has stamped and handed to the log. One without calls is the leader's
// own.
type proposal struct {
	stamp fsm.Time
	at    fsm.Time // true time of the stamp
	calls []*call
	own   []fsm.Command
}

// entry is a committed proposal and what came of it where it was applied first.
type entry struct {
	index    uint64
	stamp    fsm.Time
	stamped  fsm.Time // true time of the stamp
	at       fsm.Time // true time of the commit
	requests []fsm.Request
	data     []byte

	results []fsm.Result
	digest  uint64
	clock   fsm.Time
}

func newShard(w *world, number int) *shard {
	s := &shard{w: w, number: number, leader: -1}
	for node := range s.replicas {
		s.replicas[node] = &replica{s: s, node: node, machine: machine.New(fsm.Config{Seed: w.r.Uint64()})}
	}
	if w.seed%w.cfg.ModelEvery == 0 {
		s.model = model.New(fsm.Config{})
		s.model.Speak(w.format)
		w.tally[tally.Modelled] = 1
	}
	if w.format >= fsm.KeysFormat {
		s.reference = reference.New(reference.Config{
			Shard: uint32(number), Format: w.format, Keyed: w.isKeyed, Machine: s.machine, Tally: &w.tally,
			Violated: func(rule, text string) { w.violated(rule, "%s", text) },
		})
	}
	return s
}

// machine is that of the replica that has applied the whole log.
func (s *shard) machine() *machine.Machine {
	if s.leader >= 0 {
		return s.replicas[s.leader].machine
	}
	best := s.replicas[0]
	for _, r := range s.replicas {
		if r.machine.Index() > best.machine.Index() {
			best = r
		}
	}
	return best.machine
}

// deadline is when the leader's machine has something to do next.
func (s *shard) deadline() (fsm.Time, bool) {
	t, ok := s.machine().NextDeadline()
	return s.w.wrong.planned(t), ok
}

// propose lets the leader stamp what is pending, several requests an entry.
func (s *shard) propose() {
	w := s.w
	if s.leader < 0 {
		if w.chance(50) {
			s.elect(w.r.IntN(nodesMax), w.r.IntN(len(s.inflight)+1))
		}
		return
	}
	if len(s.pending) == 0 {
		return
	}
	n := 1 + w.r.IntN(min(6, len(s.pending)))
	p := s.stamped(slices.Clone(s.pending[:n]))
	s.pending = s.pending[n:]
	s.inflight = append(s.inflight, p)
	w.mark("propose", uint64(s.number), uint64(n), uint64(p.stamp))
	if w.chance(20) {
		s.swap()
	}
}

// stamped makes a proposal of the leader's. It may lie for long before the log takes it: then its
// stamp is an old one.
func (s *shard) stamped(calls []*call, own ...fsm.Command) *proposal {
	return &proposal{stamp: s.w.wrong.stamped(s.w, s.w.clock(s.leader)), at: s.w.now, calls: calls, own: own}
}

// proposeExpire proposes what the leader's pacer would, at most one at a time.
func (s *shard) proposeExpire() {
	if s.leader < 0 || s.pacing {
		return
	}
	if t, ok := s.deadline(); ok && t <= s.w.clock(s.leader) {
		s.pacing = true
		s.inflight = append(s.inflight, s.stamped(nil, &fsm.Expire{}))
	}
}

// swap lets two proposals of one leader reach the log in the other order than they were stamped in.
// A leader's first entry stays the first.
func (s *shard) swap() {
	n := len(s.inflight)
	if s.leader < 0 || n < 2 || s.inflight[n-2].own != nil {
		return
	}
	s.inflight[n-2], s.inflight[n-1] = s.inflight[n-1], s.inflight[n-2]
	s.w.tally[tally.OutOfOrder]++
	s.w.mark("swap", uint64(s.number))
}

// commit brings the oldest proposal into the log, where the leader applies it and answers.
func (s *shard) commit() {
	if s.leader < 0 || len(s.inflight) == 0 {
		return
	}
	p := s.inflight[0]
	s.inflight = s.inflight[1:]
	s.enter(p, s.replicas[s.leader])
}

// enter commits a proposal, applies it at a replica that has applied all before it, and books what
// came of it.
func (s *shard) enter(p *proposal, first *replica) {
	w := s.w
	e := &entry{index: uint64(len(s.log)) + 1, stamp: p.stamp, stamped: p.at, at: w.now}
	var encoded [][]byte
	for _, c := range p.calls {
		e.requests = append(e.requests, c.op.request)
		encoded = append(encoded, c.op.encoded)
		c.op.logged++
	}
	if p.own != nil {
		e.requests = []fsm.Request{{Commands: p.own}}
		encoded = [][]byte{codec.AppendRequestIn(nil, s.w.format, &e.requests[0])}
		kind := p.own[0].Kind()
		s.pacing, s.firing = s.pacing && kind != fsm.KindExpire, s.firing && kind != fsm.KindFire
		w.tally[tally.Expires] += one(kind == fsm.KindExpire)
	}
	e.data = codec.AppendEntryIn(nil, s.w.format, e.stamp, encoded)
	w.tally[tally.Entries]++
	s.log = append(s.log, e)
	if w.told() {
		w.say("shard %d entry %d at %v, stamped %v, of node %d:", s.number, e.index, e.at.Sub(epoch),
			e.stamp.Sub(epoch), first.node)
	}
	before := first.machine.Clock()
	told := w.wrong.apply(s, first, e)
	if w.violation != nil {
		return
	}
	if e.clock != max(before, e.stamp) {
		w.violated("shard time is the highest stamp", "entry %v of shard %v, stamped %v after %v, has time %v", e.index,
			s.number, e.stamp, before, e.clock)
	}
	w.mark("entry", uint64(s.number), e.index, e.digest, uint64(e.clock))
	if s.model != nil {
		s.secondOpinion(e)
	}
	s.book(p, e, told)
	w.wrong.entered(s, e)
}

// book hands each request with its part of the results to the ledger, then to the waiting client.
func (s *shard) book(p *proposal, e *entry, results []fsm.Result) {
	var judged []shardledger.Command
	if s.reference != nil {
		judged = s.reference.Enter(shardledger.Entry{Index: e.index, At: e.at, Clock: e.clock}, e.requests, results)
		defer s.reference.Report() // after the ledger of this package, which tells more of the jobs that it follows
	}
	for i := range e.requests {
		n := len(e.requests[i].Commands)
		own := results[:n]
		results = results[n:]
		l := &line{s: s, e: e, request: &e.requests[i], results: own}
		if judged != nil {
			l.judged, judged = judged[:n], judged[n:]
		}
		s.w.tally[tally.Commands] += uint64(n)
		if p.own == nil {
			l.op = p.calls[i].op
		}
		if s.w.told() {
			s.traceRequest(l.op, &e.requests[i], own)
		}
		s.w.ledger.enter(l)
		if l.op != nil {
			s.w.crowd.answer(p.calls[i], e, own)
		}
	}
}

// traceRequest writes a request with its results into the trace.
func (s *shard) traceRequest(o *op, r *fsm.Request, results []fsm.Result) {
	for i, c := range r.Commands {
		who := "leader"
		if o != nil {
			who = r.Caller + " " + r.ID
		}
		s.w.say("   %s: %T%+v\n      -> %+v", who, c, c, results[i])
	}
}

// depose ends a leader's term. Its clients do not hear what became of what it had proposed; what it
// had not is refused.
func (s *shard) depose() {
	if s.leader < 0 {
		return
	}
	s.w.mark("depose", uint64(s.number), uint64(s.leader))
	if s.w.told() {
		s.w.say("shard %d loses its leader, node %d, with %d proposals on their way", s.number, s.leader, len(s.inflight))
	}
	s.leader, s.pacing, s.firing = -1, false, false
	for _, c := range s.pending {
		s.w.crowd.refuse(c)
	}
	s.pending = nil
	for _, p := range s.inflight {
		for _, c := range p.calls {
			s.w.crowd.giveUp(c)
		}
	}
}

// elect makes a node the leader. The new one has the first of the proposals of the former one in
// its log and commits them; the rest is lost.
func (s *shard) elect(node, survivors int) {
	w := s.w
	r := s.replicas[node]
	r.apply(len(s.log))
	left := s.inflight
	s.inflight = nil
	for i, p := range left {
		if i < survivors {
			w.tally[tally.Survived]++
			s.enter(p, r)
		} else {
			w.tally[tally.Lost]++
		}
	}
	s.leader, s.pacing, s.firing = node, false, false
	w.tally[tally.Leads]++
	w.mark("elect", uint64(s.number), uint64(node), uint64(survivors))
	if w.told() {
		w.say("node %d leads shard %d; %d of %d proposals survive", node, s.number, survivors, len(left))
	}
	s.inflight = append(s.inflight, s.stamped(nil, &fsm.Lead{Grace: grace}))
}

func one(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}
