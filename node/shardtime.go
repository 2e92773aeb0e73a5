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
	"github.com/hashicorp/raft"
)

// agree waits until this leader may stamp: until a majority of the voters has told the time, and its own clock is near their median. A leader
// whose clock is not hands over to a voter whose clock is. An error means that the leadership ended before.
func (s *shard) agree(ctx context.Context, l *leadership) error {
	began := time.Now()
	for {
		voters, _ := s.members()
		others := slices.ContainsFunc(voters, func(id string) bool { return id != s.node.id.serverID() })
		if !others {
			s.compared(l, func() { s.medianOff.Store(0) })
			return nil
		}
		c, err := s.node.clocks.Compare(ctx, voters)
		if err == nil && s.heed(ctx, l, &c) {
			return nil
		}
		if ctx.Err() != nil { // which is why it failed, and no trouble
			return context.Cause(ctx)
		}
		if err != nil && time.Since(began) > clock.PeerTimeout { // of nodes that start together most cannot ask, or be asked, for a moment
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

// heed reports whether this node may lead by a comparison; if not, it hands over, if there is a voter to hand over to.
//
// Whom it hands over to may know fewer clocks, find its own wrong by those, and hand back: by readings that serve for a second both would go on for as long,
// and without end where the two cannot ask the same voters. So a leader that gave the leadership away within that second keeps it, and goes on comparing.
func (s *shard) heed(ctx context.Context, l *leadership, c *clock.Comparison) bool {
	self := s.node.id.serverID()
	off, fits := c.Off(self), c.Fits(self)
	handedBack := false
	current := s.compared(l, func() {
		s.medianOff.Store(int64(off))
		if fits {
			s.held.Store(nil)
		}
		handedBack = !s.serves() && time.Since(s.gaveAway) < clock.Fresh
	})
	if !current || fits {
		return current
	}
	s.hold(l, fmt.Errorf("%w: this node's clock is %v away from the median of the voters' clocks", ErrClockAhead, off.Round(time.Millisecond)))
	if handedBack {
		return false
	}
	unfit := map[raft.ServerID]bool{}
	voters, _ := s.members()
	for _, voter := range voters {
		if !c.Fits(voter) {
			unfit[raft.ServerID(voter)] = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	s.handOverExcept(ctx, unfit)
	return false
}

// hold notes why this leader stamps nothing, for callers and for people.
func (s *shard) hold(l *leadership, err error) {
	var before *error
	if !s.compared(l, func() { before = s.held.Swap(&err) }) {
		return
	}
	if before == nil || errors.Is(*before, ErrClockAhead) != errors.Is(err, ErrClockAhead) {
		s.note("comparing clocks", err)
	}
}

// withheld returns why this leader stamps nothing, nil if that is not because of clocks.
func (s *shard) withheld() error {
	if err := s.held.Load(); err != nil && errors.Is(*err, ErrClockAhead) {
		return *err
	}
	return nil
}

// beginComparing has the comparisons made in a leadership count.
func (s *shard) beginComparing(l *leadership) {
	s.comparing.Lock()
	defer s.comparing.Unlock()
	s.comparedIn = l
}

// compared notes what a comparison says, unless the leadership in which it was begun has ended meanwhile: a question for the time may be under
// way for seconds. It reports whether that goes on.
func (s *shard) compared(l *leadership, note func()) bool {
	s.comparing.Lock()
	defer s.comparing.Unlock()
	if s.comparedIn != l {
		return false
	}
	note()
	return true
}

// forgetComparison ends what a comparison says: it counts only for a leader.
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

// reference returns what this node, and the comparison with others while it leads, take the time to be.
func (s *shard) reference() fsm.Time {
	return s.node.clock.Wall() - fsm.Time(s.medianOff.Load())
}

// timeAhead returns by how much the shard's time is ahead of what it should be; not above zero if it is not. It does not wait for the machine.
func (s *shard) timeAhead() time.Duration {
	return fsm.Time(s.appliedClock.Load()).Sub(s.reference())
}

// watchTime tells people when the shard's time gets ahead by more than the bound, and when it no longer is.
func (s *shard) watchTime() {
	ahead := s.timeAhead()
	switch alarm := ahead > s.cfg.ClockBound; {
	case alarm && !s.alarmed.Swap(true):
		s.logger.Error("CLOCK_AHEAD: the shard's time is ahead of the clocks; 'belfry cluster reset-clock' moves it back", "ahead", ahead.Round(time.Millisecond))
	case !alarm && s.alarmed.Swap(false):
		s.logger.Info("the shard's time is no longer ahead of the clocks")
	}
}

// ClockReset is what became of a shard's time.
type ClockReset struct {
	// From is what it was, To what it is. They are equal if it was not ahead by more than the bound: then nothing was logged.
	From, To fsm.Time
}

// ResetClock moves the time of a shard, which this node must lead, back to the median of the voters' clocks, if it is ahead of that by
// more than the bound. The wishes of fsm.ResetClock hold. It may be repeated after any error.
func (n *Node) ResetClock(ctx context.Context, shard uint32) (ClockReset, error) {
	s, done, err := n.begin(shard)
	if err != nil {
		return ClockReset{}, err
	}
	defer done()
	return s.resetClock(ctx)
}

func (s *shard) resetClock(ctx context.Context) (ClockReset, error) {
	if _, err := s.leader(); err != nil {
		return ClockReset{}, err
	}
	to := s.node.clock.Wall()
	if !s.soleVoter() {
		voters, _ := s.members()
		c, err := s.node.clocks.Compare(ctx, voters)
		if err != nil {
			return ClockReset{}, fmt.Errorf("%s: %w: %w", s.name, ErrClockAhead, err)
		}
		if n := c.NearMedian(); n <= len(voters)/2 {
			return ClockReset{}, fmt.Errorf("%s: %w: the clocks of only %d of %d voters agree; put the others right, or wait for them", s.name, ErrClockAhead, n, len(voters))
		}
		to = c.Median + fsm.Time(s.node.clock.Monotonic())
	}
	from := max(s.machineClock(), s.clock.Now())
	if from.Sub(to) <= s.cfg.ClockBound {
		return ClockReset{From: from, To: from}, nil
	}
	s.logger.Warn("the shard's time is moved back, because an operator asked for it", "from", instant(from), "to", instant(to))
	reply, err := s.do(ctx, &fsm.Request{Commands: []fsm.Command{&fsm.ResetClock{To: to, Grace: 2 * s.cfg.ClockBound}}})
	if err != nil {
		s.clock.Raise(s.machineClock()) // it was lowered when the entry was stamped
		return ClockReset{}, err
	}
	s.waiters.recheckAll()
	s.watchTime()
	return ClockReset{From: from, To: reply.Witness.Time}, nil
}

// stamped is told of each batch once its entry has its stamp: after a reset the next entry has a stamp of the new time. One of the old
// time, which is in flight as well, would undo it.
func (s *shard) stamped(batch []*proposal) {
	for _, pr := range batch {
		if len(pr.request.Commands) == 1 && pr.request.Commands[0].Kind() == fsm.KindResetClock {
			s.clock.Lower(pr.request.Commands[0].(*fsm.ResetClock).To)
		}
	}
}

// follow is told the machine's clock after each entry: where it was moved back, this replica's stamps follow.
func (s *shard) follow(clock fsm.Time) {
	if before := s.appliedClock.Swap(int64(clock)); int64(clock) < before {
		s.clock.Lower(clock)
	}
}

// instant returns a time in the form that people read.
func instant(t fsm.Time) time.Time { return time.Unix(0, int64(t)).UTC() }

// ReadClock returns what this node takes the time to be, for peers that ask.
func (n *Node) ReadClock() clock.Reading {
	reading, _ := n.clock.Read()
	return reading
}

// runClocks compares clocks until ctx ends: every clock.CompareInterval for the shards that this node leads, and when its own clock is far from its
// wall clock.
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

// compareLed compares the clock for each shard that this node leads, and hands over those that it should not lead.
func (n *Node) compareLed(ctx context.Context) {
	var comparing sync.WaitGroup
	for _, s := range n.here() {
		l := s.serving.Load()
		if l == nil {
			continue
		}
		comparing.Go(func() {
			if !s.soleVoter() {
				voters, _ := s.members()
				if c, err := n.clocks.Compare(ctx, voters); err == nil {
					s.heed(ctx, l, &c)
				}
			}
			s.watchTime()
		})
	}
	comparing.Wait()
}

// compareOnce compares the clock with the voters of one shard, which anchors it anew if they agree with the wall clock, and then looks at what
// this node leads.
func (n *Node) compareOnce(ctx context.Context) {
	for _, s := range n.here() {
		if voters, _ := s.members(); slices.Contains(voters, n.id.serverID()) && len(voters) > 1 {
			if c, err := n.clocks.Compare(ctx, voters); err == nil && c.Follows(n.id.serverID()) {
				n.cfg.Logger.Warn("the clock was anchored anew at the wall clock, with which the others agree")
			}
			break
		}
	}
	n.compareLed(ctx)
}

// alone reports whether this node is the only voter of every shard that it runs.
func (n *Node) alone() bool {
	for _, s := range n.here() {
		if s.instance() == nil || !s.soleVoter() {
			return false
		}
	}
	return true
}
