package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/node/admit"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/founding"
	"github.com/belfrydb/belfry/node/histogram"
	"github.com/belfrydb/belfry/node/identity"
	"github.com/belfrydb/belfry/node/longpoll"
	"github.com/belfrydb/belfry/node/measure"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/raftgroup"
	"github.com/belfrydb/belfry/node/scheduler"
	"github.com/belfrydb/belfry/node/storage"
)

// shard is one shard on this node: a Raft group around an machine.Machine, and the duties of its
// leader.
type shard struct {
	*raftgroup.Group
	number    uint32
	cfg       Config
	clock     *clock.Shard
	proposer  *propose.Queue
	calls     *longpoll.Calls
	admission *admit.Admission
	queues    *admit.QueueLimit
	pacer     *propose.Pacer
	scheduler *scheduler.Scheduler
	stats     *measure.Counters
	memory    admit.MachineMemory

	// What all shards of a node share: its server id, clock, comparison of clocks and memory, and its
	// settings, which change while it runs.
	serverID   string
	nodeClock  *clock.Node
	clocks     *clock.Comparer
	nodeMemory *admit.Memory
	format     func() fsm.Format
	minVoters  func() int

	// submit gives an entry to Raft, applying is follow; tests replace them.
	submit   func(l *raftgroup.Leadership, entry []byte) (propose.Future, error)
	applying func(m Machine)

	// caughtUp is closed when this node is elected for the first time and has applied every committed
	// entry, led when it then serves. Between the two, the node closes clockChecked once it has
	// compared its clock with the last timestamps of all its shards.
	caughtUp, led         chan struct{}
	caughtUpOnce, ledOnce sync.Once
	clockChecked          <-chan struct{}

	// comparing guards comparedIn, the leadership whose clock comparisons count, and the writes of
	// their results: medianOff, how far this node's clock was ahead of the voters' median at the last
	// comparison, and held, the reason why this leader stamps no entries. gaveAway is when a
	// leadership that was held because of clocks last ended.
	comparing    sync.Mutex
	comparedIn   *raftgroup.Leadership
	gaveAway     time.Time
	medianOff    atomic.Int64
	held         atomic.Pointer[error]
	alarmed      atomic.Bool  // because the shard's time is ahead
	appliedClock atomic.Int64 // the machine's clock
}

// newShard returns a shard that start has to start.
func newShard(n *Node, number uint32) *shard {
	s := &shard{
		number: number, cfg: n.cfg, clock: clock.NewShard(n.clock, n.cfg.ClockBound),
		serverID: n.id.ServerID(), nodeClock: n.clock, clocks: n.clocks, nodeMemory: n.memory, format: n.Format,
		minVoters: n.MinVoters, stats: measure.New(), clockChecked: n.clockChecked, caughtUp: make(chan struct{}),
		led: make(chan struct{}),
	}
	machine := newShardMachine(n.cfg.Machine)
	of := n.groupConfig(founding.ShardGroup(number), identity.ShardDir(n.cfg.Dir, number))
	of.Machine, of.ApplySeconds, of.Lead, of.After = machine, s.stats.Apply, s.lead, func(m Machine) { s.applying(m) }
	of.Renewal = &raftgroup.Renewal{
		Fresh: func() Machine {
			n.memory.Follow(&s.memory, fsm.Memory{})
			return newShardMachine(n.cfg.Machine)
		},
		Restores:  n.memory.Replacing(),
		Restored:  func(m Machine) { n.memory.TakeOver(&s.memory, m.(shardMachine).m.Memory()) },
		Stateless: func(why error) { n.abandon(s, why) },
	}
	if n.cfg.Applied != nil {
		of.Applied = appliedTo(n.cfg.Applied, number, n.openings.Add(1))
	}
	s.Group = raftgroup.New(of)
	s.submit, s.applying = s.submitEntry, s.follow
	s.queues = admit.NewQueueLimit(machine.m, &n.noAutoCreate, s.machineView())
	s.proposer = propose.New(propose.Config{
		Shard: number, QueueRequestsMax: n.cfg.QueueRequestsMax, QueueBytesMax: n.cfg.QueueBytesMax,
		EntryBytesMax: n.cfg.EntryBytesMax, EntriesInFlight: n.cfg.EntriesInFlight, ProposeTimeout: n.cfg.ProposeTimeout,
		Stamp: s.clock.Stamp, Stamped: s.stamped, Limit: s.queues, Applied: s.applied, Failed: s.stats.Failed,
		Fatal: n.fatal, AnsweredLate: func() { s.calls.Recheck() },
	})
	s.admission = n.newAdmission(s)
	s.calls = longpoll.New(longpoll.Config{
		WaitersMax: n.cfg.WaitersMax, ProposeTimeout: n.cfg.ProposeTimeout, Queue: s.proposer, Admission: s.admission,
		Clock: s.clock, View: s.machineView(), Format: n.Format, Leads: s.leads, Refusal: s.refusal,
		NotApplied: func() { s.stats.NotApplied.Add(1) }, Failed: s.stats.Failed, Note: s.Note, Spawn: s.Spawn,
	})
	s.pacer = propose.NewPacer(s.clock.Now, s.nextDuty, s.expire)
	s.scheduler = scheduler.New(scheduler.Config{
		Now: s.clock.Now, Next: s.nextFiring, Due: s.dueSchedules, Calendar: n.cfg.Calendar, Propose: s.proposeFirings,
		Fired: s.stats.Fired, Note: s.Note,
	})
	return s
}

// appliedTo passes applied entries of a shard to Config.Applied.
func appliedTo(to func(AppliedEntry), shard, opening uint32) func(*raft.Log, Machine) {
	return func(log *raft.Log, m Machine) {
		to(AppliedEntry{Shard: shard, Opening: opening, Term: log.Term, Index: log.Index, Entry: log.Data,
			Digest: m.Digest()})
	}
}

// follow passes the state of the machine on to the other parts of the shard, after each applied
// entry and each restored snapshot. The machine is locked.
func (s *shard) follow(m Machine) {
	machine := m.(shardMachine).m
	s.nodeMemory.Follow(&s.memory, machine.Memory())
	s.followClock(machine.Clock())
	s.admission.SetLeases(machine.Leases())
	s.pacer.Moved(s.dutyOf(machine))
	s.scheduler.Moved(machine.NextFiring())
	s.queues.SetQueues(machine)
}

// newAdmission returns the admission of a shard, whose proposer exists.
func (n *Node) newAdmission(s *shard) *admit.Admission {
	return admit.New(admit.Config{
		Name: s.Name(), Leads: s.Serves, Idle: s.proposer.Idle, View: s.machineView(), Voters: s.lacksVoters,
		HandsOver: func() bool { return n.relieved() && !s.SoleVoter() },
		Space:     n.space, Memory: n.memory,
		NodeLimited: &n.namespacesLimited, AskForMore: n.askForMoreQuota, NoLeader: func() error {
			return s.refusal(outcome.ErrNoLeader)
		},
	})
}

// refusal wraps err with the name of the shard. For ErrNoLeader it adds the known leader.
func (s *shard) refusal(err error) error {
	if errors.Is(err, outcome.ErrNoLeader) {
		_, named := s.Leadership()
		if held := s.withheld(); held != nil && errors.Is(named, outcome.ErrNoLeader) {
			return fmt.Errorf("%s: %w", s.Name(), held)
		}
		if named != nil {
			return named
		}
	}
	return fmt.Errorf("%s: %w", s.Name(), err)
}

// leads returns nil if this node leads the shard and serves, else the error for callers.
func (s *shard) leads() error {
	_, err := s.Leadership()
	return err
}

// lead runs the duties of a new leader, once every entry of earlier terms is applied. See
// raftgroup.Config.Lead.
func (s *shard) lead(ctx context.Context, l *raftgroup.Leadership) {
	s.caughtUpOnce.Do(func() { close(s.caughtUp) })
	select {
	case <-s.clockChecked:
	case <-ctx.Done():
		return
	}
	s.beginComparing(l)
	defer s.forgetComparison()
	if s.agree(ctx, l) != nil {
		return
	}
	s.clock.Begin(s.machineClock())
	term, err := s.logLead(ctx, l)
	if err != nil {
		if ctx.Err() == nil {
			s.Note("logging the leader's first entry", err)
		}
		return
	}
	s.stats.Queues.Clear()
	s.admission.Quotas.Reset(term)
	defer s.admission.Quotas.Reset(0)
	s.calls.Begin()
	s.scheduler.Begin()
	defer s.scheduler.End()
	if !s.Serve(l) {
		s.calls.End(outcome.ErrNoLeader)
		return
	}
	s.Logger().Info("leading", "term", term)
	s.watchTime() // before a call that waited can reset it
	s.ledOnce.Do(func() { close(s.led) })

	var duties sync.WaitGroup
	duties.Go(func() {
		s.proposer.Run(ctx, func(entry []byte) (propose.Future, error) { return s.submit(l, entry) })
	})
	duties.Go(func() { s.calls.Run(ctx) })
	duties.Go(func() { s.pacer.Run(ctx) })
	duties.Go(func() { s.scheduler.Run(ctx) })
	<-ctx.Done()
	s.calls.End(outcome.ErrNoLeader)
	duties.Wait()
}

// submitEntry gives an entry to Raft in a leadership. See raftgroup.Group.Submit.
func (s *shard) submitEntry(l *raftgroup.Leadership, entry []byte) (propose.Future, error) {
	future, err := s.Submit(l, entry)
	if err != nil {
		return nil, err
	}
	return shardFuture{future}, nil
}

// shardFuture is the future of an entry of a shard.
type shardFuture struct{ *raftgroup.Future }

// Wait implements propose.Future.
func (f shardFuture) Wait() (*propose.Applied, error) {
	reply, err := f.Future.Wait()
	if err != nil {
		return nil, err
	}
	did := reply.Value.(*propose.Applied)
	did.Term, did.Index = reply.Term, reply.Index
	return did, nil
}

// logLead logs the first entry of a term, and returns the term.
func (s *shard) logLead(ctx context.Context, l *raftgroup.Leadership) (term uint64, err error) {
	lead := &fsm.Request{Commands: []fsm.Command{&fsm.Lead{Grace: 2 * s.cfg.ClockBound}}}
	err = raftgroup.Insist(ctx, func() error {
		format := s.format()
		encoded := [][]byte{codec.AppendRequestIn(nil, format, lead)}
		future, err := s.Submit(l, codec.AppendEntryIn(nil, format, s.clock.Stamp(), encoded))
		if err != nil {
			return err
		}
		reply, err := future.Wait()
		term = reply.Term
		return err
	})
	return term, err
}

// applied passes on the results of an applied entry of this leader.
func (s *shard) applied(batch []*propose.Proposal, did *propose.Applied) {
	results := did.Results
	for _, pr := range batch {
		own := results[:len(pr.Request.Commands)]
		results = results[len(own):]
		for i, c := range pr.Request.Commands {
			switch c.Kind() {
			case fsm.KindReserve, fsm.KindReserveJob:
				s.stats.Granted(pr.Came, &own[i], did.Clock)
			case fsm.KindRunSchedule:
				s.stats.Ran(&own[i])
			default: // it is counted elsewhere, or not
			}
		}
		s.admission.NoteResults(pr.Request.Commands, own)
	}
	s.admission.Quotas.EntryApplied(propose.Requests(batch))
	s.stats.Queues.Ended(did.Endings)
	s.calls.EntryApplied(batch)
}

// expire proposes one Expire. Every entry also forgets old records, so more is true as well while
// memory is full and there are more records to forget.
func (s *shard) expire(ctx context.Context) (more bool, err error) {
	reply, err := s.calls.Do(ctx, &fsm.Request{Commands: []fsm.Command{&fsm.Expire{}}})
	if err != nil {
		return false, err
	}
	return reply.Results[0].More || s.forgetsMore(), nil
}

// nextFiring returns when the next schedule of the machine fires, 0 if none does.
func (s *shard) nextFiring() (next fsm.Time) {
	s.Replica().View(func(m Machine, _ raftgroup.Position) { next = m.(shardMachine).m.NextFiring() })
	return next
}

// dueSchedules returns schedules of the machine whose firing has come. See machine.DueSchedules.
func (s *shard) dueSchedules(query *schedules.DueQuery) (due schedules.Due) {
	s.Replica().View(func(m Machine, _ raftgroup.Position) { due = m.(shardMachine).m.DueSchedules(query) })
	return due
}

// proposeFirings carries out a request of the scheduler. It calls beforeWait before it waits for quota.
func (s *shard) proposeFirings(ctx context.Context, req *fsm.Request, beforeWait func()) ([]fsm.Result, error) {
	reply, err := s.calls.DoWith(ctx, req, beforeWait)
	return reply.Results, err
}

// machineClock returns the shard's time as of the last entry applied here.
func (s *shard) machineClock() (clock fsm.Time) {
	s.Replica().View(func(m Machine, _ raftgroup.Position) { clock = m.(shardMachine).m.Clock() })
	return clock
}

// nextDeadline returns the machine's next deadline, 0 if there is none.
func (s *shard) nextDeadline() (deadline fsm.Time) {
	s.Replica().View(func(m Machine, _ raftgroup.Position) { deadline, _ = m.(shardMachine).m.NextDeadline() })
	return deadline
}

// view runs f on this node's copy of the machine under a shared lock. f must be quick and must not
// keep memory of the machine. now is the time for reads: the clock of the timestamps on the leader,
// else the node's own clock, because a wrong clock of the timestamps is corrected only when the
// node leads.
func (s *shard) view(f func(m *machine.Machine, now fsm.Time)) propose.Witness {
	return s.viewAt(func(m *machine.Machine, now fsm.Time, _ raftgroup.Position) { f(m, now) })
}

// viewAt is view with the position of the machine in the group's log.
func (s *shard) viewAt(f func(m *machine.Machine, now fsm.Time, at raftgroup.Position)) (w propose.Witness) {
	now := s.nodeClock.Wall()
	if s.Serves() {
		now = s.clock.Now()
	}
	s.Replica().View(func(m Machine, at raftgroup.Position) {
		machine := m.(shardMachine).m
		w = propose.Witness{Shard: s.number, Term: at.Term, Index: machine.Index(), Time: machine.Clock()}
		f(machine, max(now, machine.Clock()), at)
	})
	return w
}

// machineView returns view without the witness.
func (s *shard) machineView() admit.View {
	return func(f func(m *machine.Machine, now fsm.Time)) { s.view(f) }
}

// peek answers a query from this node's copy of the machine. While the replica is catching up to
// what it had applied before, peek returns ErrNotHere.
func (s *shard) peek(q fsm.Query) (r fsm.Reading, w propose.Witness, err error) {
	w = s.viewAt(func(m *machine.Machine, now fsm.Time, at raftgroup.Position) {
		if at.Behind {
			err = fmt.Errorf("%s gets its state again: %w", s.Name(), outcome.ErrNotHere)
			return
		}
		r = m.Answer(q, now)
	})
	return r, w, err
}

// query is a linearizable peek: the answer shows every request that was answered before.
func (s *shard) query(ctx context.Context, q fsm.Query) (fsm.Reading, propose.Witness, error) {
	l, err := s.Leadership()
	if err != nil {
		return fsm.Reading{}, propose.Witness{}, err
	}
	// Confirmed first: this node leads at some moment after the call, so it has applied every request
	// that was answered before the call. Entries applied between the confirmation and the read only
	// make the answer newer.
	if err := s.Confirm(ctx, l); err != nil {
		return fsm.Reading{}, propose.Witness{}, err
	}
	of, ok := q.(*fsm.RecallQuery)
	if !ok {
		r, w, err := s.peek(q)
		for i := range r.Queues {
			r.Queues[i].Parked = new(uint64(s.calls.ParkedFor(r.Queues[i].Name))) //nolint:gosec // a number of calls
		}
		return r, w, err
	}
	r, w := s.calls.Recall(of, func() (r fsm.Reading, w propose.Witness) {
		r, w, err = s.peek(q)
		return r, w
	})
	return r, w, err
}

// granted returns the jobs of the grants in the results of a Reserve.
func (s *shard) granted(results []fsm.Result) ([]fsm.Job, error) {
	if len(results) == 0 || len(results[0].Grants) == 0 {
		return nil, nil
	}
	r, _, err := s.peek(&fsm.HeldQuery{Grants: results[0].Grants})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", outcome.ErrUnknownOutcome, err) // a repeat with the same request id collects them
	}
	return r.Jobs, nil
}

// status returns the state of the shard's group.
func (s *shard) status() GroupStatus {
	st := GroupStatus{RaftStatus: s.Group.Status(), Shard: s.number}
	s.view(func(m *machine.Machine, _ fsm.Time) {
		mark := m.Restored()
		st.Clock, st.Jobs, st.Restoring = m.Clock(), m.Stats().Jobs, mark.Open()
	})
	st.ClockAheadBy = max(0, st.Clock.Sub(s.reference()))
	st.ClockAhead = st.ClockAheadBy > s.cfg.ClockBound
	return st
}

// statistics returns the shard's measurements.
func (s *shard) statistics() ShardStats {
	c, p := s.stats, s.proposer.Stats()
	st := ShardStats{
		Shard: s.number, Applied: p.Requests, NotApplied: c.NotApplied.Load(), Unknown: c.Unknown.Load(),
		Overloaded: c.Overloaded.Load(), DiskFull: c.DiskFull.Load(), MemoryFull: c.MemoryFull.Load(),
		TooFewVoters: c.TooFewVoters.Load(), NoLeader: c.NoLeader.Load(),
		Entries: p.Entries, Commands: p.Commands, EntryCommands: p.EntryCommands, EntryBytes: p.EntryBytes,
		ProposeSeconds: p.ProposeSeconds, CommitSeconds: p.CommitSeconds, ApplySeconds: c.Apply.Value(),
		ServerLateSeconds: c.ServerLate.Value(), WorkerLateSeconds: c.WorkerLate.Value(), Redelivered: c.Redelivered.Load(),
		Fired: c.Fires.Fired.Load(), Missed: c.Fires.Missed.Load(), Skipped: c.Fires.Skipped.Load(),
		Backfilled: c.Fires.Backfilled.Load(), FiredLateSeconds: c.FiredLate.Value(),
		InFlight: p.InFlight, QueuedRequests: p.QueuedRequests, QueuedBytes: p.QueuedBytes, Waiters: s.calls.Parked(),
		LeaderChanges: s.LeaderChanges(), Snapshot: s.Group.SnapshotStats(), Storage: s.Group.StorageStats(),
	}
	st.LogSyncSeconds = histogramOf(&st.Storage.Log.Append)
	st.QuotaRefusals = c.QuotaRefusals.Value()
	if st.Leading = s.Serves(); st.Leading {
		st.Queues, st.Followers, st.Spaces = c.Queues.Value(), s.Followers(), s.admission.Quotas.Usage()
		s.calls.ParkedByQueue(func(queue string, calls int) { measure.AddWaiting(st.Queues, queue, calls) })
	}
	w := s.view(func(m *machine.Machine, _ fsm.Time) { st.Machine, st.NextFiring = m.Stats(), m.NextFiring() })
	st.AppliedIndex = w.Index
	return st
}

// histogramOf returns the latencies of a store in seconds.
func histogramOf(l *storage.Latency) histogram.Values {
	h := histogram.Values{Counts: l.Buckets[:], Sum: l.Sum.Seconds()}
	for i := range storage.LatencyBuckets - 1 {
		h.Bounds = append(h.Bounds, storage.LatencyBound(i).Seconds())
	}
	for _, n := range h.Counts { // not l.Count, which may have been read a moment before
		h.Count += n
	}
	return h
}
