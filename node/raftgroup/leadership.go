package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
)

// Leadership is one unbroken time as leader. Its address stands for its term. Raft reports each
// loss and each gain in order, so no two terms share a leadership.
type Leadership struct {
	end  context.CancelFunc
	over chan struct{} // closed when its duties have ended
}

// gain begins a leadership. Its duties wait until those of the previous one have ended.
func (g *Group) gain(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	l := &Leadership{end: cancel, over: make(chan struct{})}
	g.submitting.Lock()
	before := g.latest
	g.current, g.latest = l, l
	g.submitting.Unlock()
	g.leaderChanges.Add(1)
	g.running.Go(func() {
		defer close(l.over)
		if before != nil {
			<-before.over
		}
		if err := g.catchUp(ctx); err != nil {
			if ctx.Err() == nil {
				g.Note("waiting for the entries of earlier terms", err)
			}
			return
		}
		g.cfg.Lead(ctx, l)
	})
}

// catchUp waits until the entries of earlier terms are applied.
//
// A leader can be deposed during a transfer of its leadership to a follower that does not answer.
// It may then believe for ever that the transfer is in progress, and refuse everything when it is
// elected again (hashicorp/raft issue 696). Only a new instance of Raft helps.
func (g *Group) catchUp(ctx context.Context) error {
	begun := time.Now()
	return Insist(ctx, func() error {
		r := g.instance()
		err := r.outcome(r.Barrier(submitTimeout))
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Since(begun) > transferMax {
			g.wedged.Send()
		}
		return ProposalError(err)
	})
}

// Insist repeats an attempt to log an entry while it is refused unlogged, until ctx ends. While a
// long log is replayed, Raft's main loop waits for the machine and takes no entries, for longer
// than any timeout that could be set here. A leader that gave up would stay leader and never serve.
// Any other failure ends the leadership by itself.
func Insist(ctx context.Context, attempt func() error) error {
	for {
		err := attempt()
		if outcome.Of(err) != outcome.NotApplied {
			return err
		}
		pause := time.NewTimer(insistPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// EndLeadership ends the leadership, if there is one. Raft may lead on, but this node serves no
// more until its next election. EndLeadership does not wait for the duties to end: they may be
// waiting for Raft, and Raft waits for watch.
func (g *Group) EndLeadership() {
	g.submitting.Lock()
	l := g.current
	g.current = nil
	g.serving.Store(nil)
	g.submitting.Unlock()
	if l != nil {
		l.end()
		g.leaderChanges.Add(1)
	}
}

// Submit gives an entry to Raft in the given leadership. It returns ErrNoLeader if that leadership
// is over.
//
// Raft blocks in its report of a loss, and again in its report of the next gain, until watch reads
// it. watch reads a gain only after EndLeadership has run. So an entry that passes the check here
// is taken in the term of l or refused. It never gets into a later term, where it would come before
// that term's Lead.
//
// The entry must not be changed afterwards, as long as Raft may send or apply it.
func (g *Group) Submit(l *Leadership, entry []byte) (*Future, error) {
	g.submitting.Lock()
	defer g.submitting.Unlock()
	if g.current != l {
		return nil, outcome.ErrNoLeader
	}
	r := g.instance()
	return &Future{r.Apply(entry, submitTimeout), r}, nil
}

// Serve admits callers. It reports false if the leadership is over.
func (g *Group) Serve(l *Leadership) bool {
	g.submitting.Lock()
	defer g.submitting.Unlock()
	if g.current != l {
		return false
	}
	g.serving.Store(l)
	return true
}

// Serves reports whether this node leads the group and serves.
func (g *Group) Serves() bool { return g.serving.Load() != nil }

// Leadership returns the serving leadership. If there is none, it returns the error for callers.
func (g *Group) Leadership() (*Leadership, error) {
	if l := g.serving.Load(); l != nil {
		return l, nil
	}
	if _, id := g.instance().LeaderWithID(); id != "" && string(id) != g.cfg.Self {
		return nil, fmt.Errorf("%s: %w: server %q does", g.cfg.Name, outcome.ErrNotLeader, id)
	}
	return nil, fmt.Errorf("%s: %w", g.cfg.Name, outcome.ErrNoLeader)
}

// Confirm returns nil if l was still the leadership at some moment after the call began.
//
// A sole voter need not ask. Another leader would need this node's vote, or a second voter. Only
// this node could have added one, in l or after it.
func (g *Group) Confirm(ctx context.Context, l *Leadership) error {
	if !g.SoleVoter() {
		verified := make(chan error, 1)
		go func() { verified <- g.instance().VerifyLeader().Error() }()
		select {
		case err := <-verified:
			if err != nil {
				return fmt.Errorf("%s: %w: %w", g.cfg.Name, outcome.ErrNoLeader, err)
			}
		case <-ctx.Done():
			return outcome.Canceled(ctx)
		}
	}
	if g.serving.Load() != l {
		return fmt.Errorf("%s: %w", g.cfg.Name, outcome.ErrNoLeader)
	}
	return nil
}

// IfServing runs f if this node serves. The leadership does not end before f has returned, so f
// must be quick.
func (g *Group) IfServing(f func()) {
	g.submitting.Lock()
	defer g.submitting.Unlock()
	if g.Serves() {
		f()
	}
}

// LeaderChanges returns how often this node began or ceased to lead since the group was made.
func (g *Group) LeaderChanges() uint64 { return g.leaderChanges.Load() }
