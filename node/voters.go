package node

import (
	"fmt"

	"github.com/belfrydb/belfry/node/outcome"
)

// VotersError says that a shard has fewer voters than the cluster asks for. It wraps ErrTooFewVoters.
type VotersError struct {
	Have int `json:"have"`
	Want int `json:"want"`
}

// Error says how many there are and how many there must be.
func (e *VotersError) Error() string {
	return fmt.Sprintf("the shard has %d of the %d voters that min-voters asks for", e.Have, e.Want)
}

// Unwrap returns ErrTooFewVoters.
func (e *VotersError) Unwrap() error { return outcome.ErrTooFewVoters }

// MinVoters returns with how many voters in its committed configuration a shard takes mutations here: what the node was told last, 1 before.
func (n *Node) MinVoters() int { return max(1, int(n.minVoters.Load())) }

// RequireVoters has the shards that this node leads refuse mutations with ErrTooFewVoters while their committed configurations have fewer voters. What makes
// room is taken all the same. The data directory knows it first, so that the next start does. The call may be repeated after an error.
func (n *Node) RequireVoters(least int) error {
	if least == n.MinVoters() {
		return nil
	}
	if err := n.record(func() error { return n.id.requireVoters(n.cfg.Dir, least) }); err != nil {
		return err
	}
	n.cfg.Logger.Info("the least number of voters with which shards take mutations has changed", "min_voters", least, "before", n.MinVoters())
	n.minVoters.Store(int32(least)) //nolint:gosec // at most 7
	return nil
}

// lacksVoters returns the shortage of voters; nil if the shard has enough.
func (s *shard) lacksVoters() *VotersError {
	if least, have := s.node.MinVoters(), int(s.replica.voters.Load()); have < least {
		return &VotersError{Have: have, Want: least}
	}
	return nil
}
