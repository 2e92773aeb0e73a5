package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/clock"
	"github.com/belfrydb/belfry/node/outcome"
	"github.com/belfrydb/belfry/node/propose"
	"github.com/belfrydb/belfry/node/raftgroup"
)

// agree waits until this leader may stamp entries: a majority of the voters has told the time, and
// its own clock is near their median. A leader with a wrong clock transfers the leadership to a
// voter whose clock is right. An error means that the leadership ended first.
func (s *shard) agree(ctx context.Context, l *raftgroup.Leadership) error {
	began := time.Now()
	for {
		voters := s.Voters()
		others := slices.ContainsFunc(voters, func(id string) bool { return id != s.serverID })
		if !others {
			s.compared(l, func() { s.medianOff.Store(0) })
			return nil
		}
		c, err := s.clocks.Compare(ctx, voters)
		if err == nil && s.heed(ctx, l, &c) {
			return nil
		}
		if ctx.Err() != nil { // the cause of the failure, and no trouble
			return context.Cause(ctx)
		}
		if err != nil && time.Since(began) > clock.PeerTimeout { // nodes that start together cannot ask at first
			s.hold(l, err)
		}
		pause := time.NewTimer(clock.ComparePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}

// heed reports whether a comparison allows this node to lead. If not, it transfers the leadership
// to another voter, if there is one.
//
// The new leader may know fewer clocks, find its own clock wrong compared with those, and transfer
// the leadership back. Readings stay valid for a second, so the leadership would go back and forth
// for that long, or for ever if the two nodes cannot ask the same voters. So a node that gets the
// leadership back within a second keeps it, and goes on comparing.
func (s *shard) heed(ctx context.Context, l *raftgroup.Leadership, c *clock.Comparison) bool {
	self := s.serverID
	off, fits := c.Off(self), c.Fits(self)
	handedBack := false
	current := s.compared(l, func() {
		s.medianOff.Store(int64(off))
		if fits {
			s.held.Store(nil)
		}
		handedBack = !s.Serves() && time.Since(s.gaveAway) < clock.Fresh
	})
	if !current || fits {
		return current
	}
	s.hold(l, fmt.Errorf("%w: this node's clock is %v away from the median of the voters' clocks", outcome.ErrClockAhead,
		off.Round(time.Millisecond)))
	if handedBack {
		return false
	}
	var unfit []string
	for _, voter := range s.Voters() {
		if !c.Fits(voter) {
			unfit = append(unfit, voter)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	s.HandOver(ctx, unfit...)
	return false
}

// hold records why this leader stamps no entries, for callers and for the log.
func (s *shard) hold(l *raftgroup.Leadership, err error) {
	var before *error
	if !s.compared(l, func() { before = s.held.Swap(&err) }) {
		return
	}
	if before == nil || errors.Is(*before, outcome.ErrClockAhead) != errors.Is(err, outcome.ErrClockAhead) {
		s.Note("comparing clocks", err)
	}
}

// withheld returns the error because of which this leader stamps no entries. It is nil if clocks
// are not the reason.
func (s *shard) withheld() error {
	if err := s.held.Load(); err != nil && errors.Is(*err, outcome.ErrClockAhead) {
		return *err
	}
	return nil
}

// beginComparing makes the comparisons of a leadership count.
func (s *shard) beginComparing(l *raftgroup.Leadership) {
	s.comparing.Lock()
	defer s.comparing.Unlock()
	s.comparedIn = l
}

// compared records the result of a comparison, unless the leadership in which the comparison began
// has ended: a question for the time may take seconds. It reports whether that leadership goes on.
func (s *shard) compared(l *raftgroup.Leadership, note func()) bool {
	s.comparing.Lock()
	defer s.comparing.Unlock()
	if s.comparedIn != l {
		return false
	}
	note()
	return true
}

// forgetComparison drops the result of the last comparison. It counts only for a leader.
func (s *shard) forgetComparison() {
	s.comparing.Lock()
	defer s.comparing.Unlock()
	if s.withheld() != nil {
		s.gaveAway = time.Now()
	}
	s.comparedIn = nil
	s.medianOff.Store(0)
	s.held.Store(nil)
}

// reference returns this node's estimate of the time. While this node leads, the comparison with
// the other voters corrects it.
func (s *shard) reference() fsm.Time {
	return s.nodeClock.Wall() - fsm.Time(s.medianOff.Load())
}

// timeAhead returns by how much the shard's time is ahead of the reference; it is zero or negative
// if the time is not ahead. It does not wait for the machine.
func (s *shard) timeAhead() time.Duration {
	return fsm.Time(s.appliedClock.Load()).Sub(s.reference())
}

// watchTime logs when the shard's time gets ahead by more than the bound, and when it no longer is.
func (s *shard) watchTime() {
	ahead := s.timeAhead()
	switch alarm := ahead > s.cfg.ClockBound; {
	case alarm && !s.alarmed.Swap(true):
		s.Logger().Error(
			"CLOCK_AHEAD: the shard's time is ahead of the clocks; 'belfry cluster reset-clock' moves it back",
			"ahead", ahead.Round(time.Millisecond))
	case !alarm && s.alarmed.Swap(false):
		s.Logger().Info("the shard's time is no longer ahead of the clocks")
	}
}

// ClockReset is the result of a reset of a shard's time.
type ClockReset struct {
	// From is the time before, To the time after. They are equal if the time was not ahead by more
	// than the bound; then nothing was logged.
	From, To fsm.Time
}

// ResetClock moves the time of a shard back to the median of the voters' clocks, if it is ahead of
// that by more than the bound. This node must lead the shard. The conditions of fsm.ResetClock
// apply. It may be repeated after any error.
func (n *Node) ResetClock(ctx context.Context, shard uint32) (ClockReset, error) {
	s, done, err := n.beginCall(shard)
	if err != nil {
		return ClockReset{}, err
	}
	defer done()
	return s.resetClock(ctx)
}

func (s *shard) resetClock(ctx context.Context) (ClockReset, error) {
	if _, err := s.Leadership(); err != nil {
		return ClockReset{}, err
	}
	to := s.nodeClock.Wall()
	if !s.SoleVoter() {
		voters := s.Voters()
		c, err := s.clocks.Compare(ctx, voters)
		if err != nil {
			return ClockReset{}, fmt.Errorf("%s: %w: %w", s.Name(), outcome.ErrClockAhead, err)
		}
		if n := c.NearMedian(); n <= len(voters)/2 {
			return ClockReset{}, fmt.Errorf("%s: %w: the clocks of only %d of %d voters agree; put the others right, or wait "+
				"for them", s.Name(), outcome.ErrClockAhead, n, len(voters))
		}
		to = c.Median + fsm.Time(s.nodeClock.Monotonic())
	}
	from := max(s.machineClock(), s.clock.Now())
	if from.Sub(to) <= s.cfg.ClockBound {
		return ClockReset{From: from, To: from}, nil
	}
	s.Logger().Warn("the shard's time is moved back, because an operator asked for it", "from", instant(from),
		"to", instant(to))
	reply, err := s.calls.Do(ctx, &fsm.Request{Commands: []fsm.Command{&fsm.ResetClock{
		To: to, Grace: 2 * s.cfg.ClockBound,
	}}})
	if err != nil {
		s.clock.Raise(s.machineClock()) // the stamp of the entry lowered it
		return ClockReset{}, err
	}
	s.calls.Recheck()
	s.watchTime()
	return ClockReset{From: from, To: reply.Witness.Time}, nil
}

// stamped runs for each batch once its entry has its timestamp. After a reset, the next entry must
// have a timestamp of the new time: with one of the old time, it would undo the reset while both
// are in flight.
func (s *shard) stamped(batch []*propose.Proposal) {
	for _, pr := range batch {
		if len(pr.Request.Commands) == 1 && pr.Request.Commands[0].Kind() == fsm.KindResetClock {
			s.clock.Lower(pr.Request.Commands[0].(*fsm.ResetClock).To)
		}
	}
}

// followClock receives the machine's clock after each entry. If the clock was moved back, this
// replica's timestamps follow.
func (s *shard) followClock(clock fsm.Time) {
	if before := s.appliedClock.Swap(int64(clock)); int64(clock) < before {
		s.clock.Lower(clock)
	}
}

// instant returns a time in a form for people.
func instant(t fsm.Time) time.Time { return time.Unix(0, int64(t)).UTC() }

// ReadClock returns this node's reading of the time, for peers that ask.
func (n *Node) ReadClock() clock.Reading {
	reading, _ := n.clock.Read()
	return reading
}

// runClocks compares clocks until ctx ends: every clock.CompareInterval for the shards that this
// node leads, and also when the node's clock is far from its wall clock.
func (n *Node) runClocks(ctx context.Context) {
	tick := time.NewTicker(clock.CompareInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.compareLed(ctx)
		case <-n.clock.Strayed:
			n.compareOnce(ctx)
		case <-ctx.Done():
			return
		}
		pause := time.NewTimer(clock.Fresh)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// compareLed compares the clock for each shard that this node leads. It transfers the leadership of
// shards that this node should not lead.
func (n *Node) compareLed(ctx context.Context) {
	var comparing sync.WaitGroup
	for _, s := range n.here() {
		l, err := s.Leadership()
		if err != nil {
			continue
		}
		comparing.Go(func() {
			if !s.SoleVoter() {
				voters := s.Voters()
				if c, err := n.clocks.Compare(ctx, voters); err == nil {
					s.heed(ctx, l, &c)
				}
			}
			s.watchTime()
		})
	}
	comparing.Wait()
}

// compareOnce compares the clock with the voters of one shard. If they agree with the wall clock,
// the node's clock is anchored at it anew. Then it checks the shards that this node leads.
func (n *Node) compareOnce(ctx context.Context) {
	for _, s := range n.here() {
		if voters := s.Voters(); slices.Contains(voters, n.id.ServerID()) && len(voters) > 1 {
			if c, err := n.clocks.Compare(ctx, voters); err == nil && c.Follows(n.id.ServerID()) {
				n.cfg.Logger.Warn("the clock was anchored anew at the wall clock, with which the others agree")
			}
			break
		}
	}
	n.compareLed(ctx)
}

// alone reports whether this node is the only voter of each shard that it runs.
func (n *Node) alone() bool {
	for _, s := range n.here() {
		if !s.SoleVoter() { // as before its start
			return false
		}
	}
	return true
}

// Settle carries out everything that is due in the shards that this node leads, grants due jobs to
// parked calls, and returns when nothing is left. It is for tests that move Config.Clock by hand;
// with a running clock it is not needed. It may be repeated after an error.
func (n *Node) Settle(ctx context.Context) error {
	for _, s := range n.here() {
		if !s.Serves() {
			continue
		}
		if err := s.awaitIdle(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *shard) awaitIdle(ctx context.Context) error {
	if err := s.scheduler.Settle(ctx); err != nil {
		return s.refusal(err)
	}
	deadline := s.nextDeadline()
	for more := deadline != 0 && deadline <= s.clock.Now(); more; {
		var err error
		if more, err = s.expire(ctx); err != nil {
			return s.refusal(err)
		}
	}
	return s.calls.Settle(ctx)
}
