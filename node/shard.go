package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/belfrydb/belfry/fsm"
)

// shard is one shard on this node: a group around an fsm.Machine, and what its leader does.
type shard struct {
	*group
	number   uint32
	cfg      Config
	clock    *shardClock
	proposer *proposer
	waiters  *waiters
	pacer    *pacer
	stats    *shardCounters
	pool     sync.Pool // of *call

	// caughtUp is closed when this node is elected for the first time and every committed entry is applied, led when it then serves.
	// Between the two the node opens gate, once it has compared its clock with the last stamps of all its shards.
	caughtUp, led         chan struct{}
	caughtUpOnce, ledOnce sync.Once
	gate                  <-chan struct{}
}

// newShard returns a shard that start has to start.
func newShard(n *Node, number uint32) *shard {
	s := &shard{
		number: number, cfg: n.cfg, clock: newShardClock(n.cfg.Clock, n.cfg.ClockBound),
		stats: newShardCounters(number), gate: n.clockChecked, caughtUp: make(chan struct{}), led: make(chan struct{}),
	}
	s.group = newGroup(n, shardName(number), shardDir(n.cfg.Dir, number), newShardMachine(n.cfg.Machine))
	s.group.onLead = s.lead
	s.replica.applySeconds = s.stats.apply
	s.proposer = newProposer(n.cfg, s.stats)
	s.proposer.submit, s.proposer.stamp, s.proposer.fatal = s.submit, s.clock.stamp, n.fatal
	s.proposer.applied = s.applied
	s.waiters = newWaiters(s, n.cfg.WaitersMax)
	s.waiters.scarce = n.space.Scarce
	s.proposer.late = s.waiters.touchedAll
	s.pacer = &pacer{now: s.clock.now, deadline: s.nextDeadline, expire: s.expire, wake: make(chan struct{}, 1)}
	s.replica.after = func(m Machine) {
		deadline, _ := m.(shardMachine).m.NextDeadline()
		s.pacer.moved(deadline)
	}
	s.pool.New = func() any {
		c := &call{done: make(chan answer, 1)}
		c.complete = func(reply Reply, err error) { c.done <- answer{reply, err} }
		return c
	}
	return s
}

// call is a proposal that its caller waits for.
type call struct {
	proposal
	done chan answer
}

// answer is how a request ended.
type answer struct {
	reply Reply
	err   error
}

// do proposes a request and waits for its results.
func (s *shard) do(ctx context.Context, req *fsm.Request) (Reply, error) {
	if err := s.admit(req); err != nil {
		s.stats.failed(err, 1)
		return Reply{}, err
	}
	c := s.pool.Get().(*call)
	c.request = req
	c.encoded = fsm.AppendRequest(c.encoded[:0], req)
	if err := s.proposer.enqueue(&c.proposal); err != nil {
		s.recycle(c)
		err = s.refusal(err)
		s.stats.failed(err, 1)
		return Reply{}, err
	}
	select {
	case a := <-c.done:
		s.recycle(c)
		return a.reply, a.err
	case <-ctx.Done():
	}
	if s.proposer.withdraw(&c.proposal) {
		s.recycle(c)
		err := canceled(ctx)
		s.stats.failed(err, 1)
		return Reply{}, err
	}
	select {
	case a := <-c.done: // at the same moment
		s.recycle(c)
		return a.reply, a.err
	default:
	}
	// The call is left to the collector: its proposal is still in use.
	return Reply{}, fmt.Errorf("%w: the call ended while it was being logged: %w", ErrUnknownOutcome, context.Cause(ctx))
}

// recycle keeps a call for the next request.
func (s *shard) recycle(c *call) {
	c.request = nil
	if cap(c.encoded) > bufferBytesKept {
		c.encoded = nil
	}
	s.pool.Put(c)
}

// refusal names the shard and, for a shard without a serving leader here, the leader.
func (s *shard) refusal(err error) error {
	if errors.Is(err, ErrNoLeader) {
		if _, named := s.leader(); named != nil {
			return named
		}
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

// admit refuses what would add to a full disk: puts below the low-water mark, and when space is scarce all that does not free some.
// An entry that cannot be written ends the process, so acks must find room to the last.
func (s *shard) admit(req *fsm.Request) error {
	scarce := s.node.space.Scarce()
	if !scarce && !s.node.space.Low() {
		return nil
	}
	for _, c := range req.Commands {
		if k := c.Kind(); k == fsm.KindPut || k == fsm.KindOpen || scarce && !frees(k) {
			return fmt.Errorf("%s: %w", s.name, ErrDiskFull)
		}
	}
	return nil
}

// frees reports whether a command ends jobs, or must be logged for the shard to be served at all.
func frees(k fsm.Kind) bool {
	switch k {
	case fsm.KindAck, fsm.KindCancel, fsm.KindPurge, fsm.KindDeleteQueue, fsm.KindExpire, fsm.KindLead:
		return true
	default:
		return false
	}
}

// lead is what a new leader does, once every entry of earlier terms is applied. See group.onLead.
func (s *shard) lead(ctx context.Context, l *leadership) {
	s.caughtUpOnce.Do(func() { close(s.caughtUp) })
	select {
	case <-s.gate:
	case <-ctx.Done():
		return
	}
	s.clock.raise(s.machineClock())
	if err := s.logLead(ctx, l); err != nil {
		if ctx.Err() == nil {
			s.note("logging the leader's first entry", err)
		}
		return
	}
	s.proposer.open()
	s.waiters.open()
	if !s.serve(l) {
		s.proposer.close(ErrNoLeader)
		s.waiters.close(ErrNoLeader)
		return
	}
	s.ledOnce.Do(func() { close(s.led) })
	s.logger.Info("leading", "clock_ahead", s.clock.isAhead())

	var duties sync.WaitGroup
	duties.Go(func() { s.proposer.run(ctx, l) })
	duties.Go(func() { s.waiters.run(ctx) })
	duties.Go(func() { s.pacer.run(ctx) })
	<-ctx.Done()
	// Closed in this order: a waiter's reservation that is refused needs the waiters still.
	s.proposer.close(ErrNoLeader)
	s.waiters.close(ErrNoLeader)
	duties.Wait()
}

// logLead logs the first entry of a term.
func (s *shard) logLead(ctx context.Context, l *leadership) error {
	lead := fsm.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Lead{Grace: 2 * s.cfg.ClockBound}}})
	return insist(ctx, func() error {
		future, err := s.submit(l, fsm.AppendEntry(nil, s.clock.stamp(), [][]byte{lead}))
		if err != nil {
			return err
		}
		if err := future.Error(); err != nil {
			return proposalError(err)
		}
		return future.Response().(*appliedEntry).err
	})
}

// applied passes on what an entry of this leader did.
func (s *shard) applied(batch []*proposal, results []fsm.Result, clock fsm.Time) {
	at := 0
	for _, pr := range batch {
		for _, c := range pr.request.Commands {
			if c.Kind() == fsm.KindReserve {
				s.observeLateness(results[at].Grants, clock)
			}
			at++
		}
	}
	s.waiters.touched(batch)
}

// observeLateness counts how late first attempts were granted.
func (s *shard) observeLateness(grants []fsm.Grant, clock fsm.Time) {
	for _, g := range grants {
		if g.Attempt == 1 {
			s.stats.lateness.observe(clock.Sub(g.Due))
		}
	}
}

// expire proposes one Expire.
func (s *shard) expire(ctx context.Context) (more bool, err error) {
	reply, err := s.do(ctx, &fsm.Request{Commands: []fsm.Command{&fsm.Expire{}}})
	if err != nil {
		return false, err
	}
	return reply.Results[0].More, nil
}

// machineClock returns the shard's time as of the last entry applied here.
func (s *shard) machineClock() (clock fsm.Time) {
	s.replica.view(func(m Machine, _, _ uint64) { clock = m.(shardMachine).m.Clock() })
	return clock
}

// nextDeadline returns the machine's next deadline, 0 if there is none.
func (s *shard) nextDeadline() (deadline fsm.Time) {
	s.replica.view(func(m Machine, _, _ uint64) { deadline, _ = m.(shardMachine).m.NextDeadline() })
	return deadline
}

// view runs f on the machine as it is on this node.
func (s *shard) view(f func(m *fsm.Machine, now fsm.Time)) (w Witness) {
	now := s.clock.now()
	s.replica.view(func(m Machine, term, _ uint64) {
		machine := m.(shardMachine).m
		w = Witness{Shard: s.number, Term: term, Index: machine.Index(), Time: machine.Clock()}
		f(machine, max(now, machine.Clock()))
	})
	return w
}

// read is view such that f has seen every request that was answered before.
func (s *shard) read(ctx context.Context, f func(m *fsm.Machine, now fsm.Time)) (Witness, error) {
	l, err := s.leader()
	if err != nil {
		return Witness{}, err
	}
	// f must not run twice, so what it sees is confirmed first: this node leads at some moment after the call, hence has
	// applied all that was answered before it. What it applies between the confirmation and f only makes f see more.
	if err := s.confirm(ctx, l); err != nil {
		return Witness{}, err
	}
	return s.view(f), nil
}

// status returns the state of the shard's group.
func (s *shard) status() GroupStatus {
	st := s.group.status()
	st.Shard, st.Clock = s.number, s.machineClock()
	st.ClockAhead = st.Clock.Sub(s.cfg.Clock.Wall()) > s.cfg.ClockBound
	return st
}

// statistics returns the shard's measurements.
func (s *shard) statistics() ShardStats {
	c := s.stats
	st := ShardStats{
		Shard: s.number, Applied: c.applied.Load(), NotApplied: c.notApplied.Load(), Unknown: c.unknown.Load(),
		Overloaded: c.overloaded.Load(), DiskFull: c.diskFull.Load(), NoLeader: c.noLeader.Load(),
		Entries: c.entries.Load(), Commands: c.commands.Load(),
		EntryCommands: c.entryCommands.value(), EntryBytes: c.entryBytes.value(),
		ProposeSeconds: c.propose.value(), CommitSeconds: c.commit.value(), ApplySeconds: c.apply.value(),
		LatenessSeconds: c.lateness.value(), InFlight: len(s.proposer.slots), Waiters: s.waiters.size(),
		LeaderChanges: s.leaderChanges.Load(), Snapshot: s.group.snapshotStats(), Storage: s.group.storageStats(),
	}
	st.QueuedRequests, st.QueuedBytes = s.proposer.waiting()
	w := s.view(func(m *fsm.Machine, _ fsm.Time) { st.Machine = m.Stats() })
	st.AppliedIndex = w.Index
	return st
}
