package node

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node/admit"
)

// NoAutoCreate reports whether this node refuses puts into queues that do not exist: the last
// setting it was given, false before the first.
func (n *Node) NoAutoCreate() bool { return n.noAutoCreate.Load() }

// RefuseNewQueues makes the shards that this node leads refuse puts into queues that do not exist,
// with ErrNoQueue, until MakeNewQueues. Entries in flight are not held up. The setting is written
// to the data directory first, so that it holds at the next start. Both calls may be repeated after
// an error.
func (n *Node) RefuseNewQueues() error { return n.setNoAutoCreate(true) }

// MakeNewQueues undoes RefuseNewQueues.
func (n *Node) MakeNewQueues() error { return n.setNoAutoCreate(false) }

func (n *Node) setNoAutoCreate(refuse bool) error {
	if refuse == n.NoAutoCreate() {
		return nil
	}
	change := n.id.MakeNewQueues
	if refuse {
		change = n.id.RefuseNewQueues
	}
	if err := n.record(change); err != nil {
		return err
	}
	n.cfg.Logger.Info("whether puts into queues that do not exist are refused has changed", "no_auto_create", refuse)
	n.noAutoCreate.Store(refuse)
	return nil
}

// MinVoters returns with how many voters in its committed configuration a shard takes mutations
// here: what the node was told last, 1 before.
func (n *Node) MinVoters() int { return max(1, int(n.minVoters.Load())) }

// RequireVoters has the shards that this node leads refuse mutations with ErrTooFewVoters while
// their committed configurations have fewer voters. What makes room is taken all the same. The data
// directory knows it first, so that the next start does. The call may be repeated after an error.
func (n *Node) RequireVoters(least int) error {
	if least == n.MinVoters() {
		return nil
	}
	if err := n.record(func() error { return n.id.RequireVoters(least) }); err != nil {
		return err
	}
	n.cfg.Logger.Info("the least number of voters with which shards take mutations has changed", "min_voters", least,
		"before", n.MinVoters())
	n.minVoters.Store(int32(least)) //nolint:gosec // at most 7
	return nil
}

// lacksVoters returns the shortage of voters; nil if the shard has enough.
func (s *shard) lacksVoters() *admit.VotersError {
	if least, have := s.minVoters(), s.Replica().VoterCount(); have < least {
		return &admit.VotersError{Have: have, Want: least}
	}
	return nil
}

// Format returns the format in which this node writes log entries: the one that it was told last,
// fsm.FirstFormat before.
//
//nolint:gosec // stored from one
func (n *Node) Format() fsm.Format { return max(fsm.FirstFormat, fsm.Format(n.format.Load())) }

// Speak has the node write log entries in a format, which every node of the cluster must read. The
// data directory knows it first, so that an older program refuses the directory before it takes
// part in anything. A lower format than before changes nothing. Of an error the node goes on in the
// format that it had; the call may be repeated.
func (n *Node) Speak(format fsm.Format) error {
	if format <= n.Format() {
		return nil
	}
	if err := format.Readable(); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	if err := n.record(func() error { return n.id.Speak(format) }); err != nil {
		return err
	}
	n.speaks(format)
	n.cfg.Logger.Info("writing the log in another format from now on", "format", format)
	return nil
}

// speaks takes over a format that the data directory knows of.
func (n *Node) speaks(format fsm.Format) {
	n.format.Store(uint32(format))
	n.mux.SetFormat(format)
}
