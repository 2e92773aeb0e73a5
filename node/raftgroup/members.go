package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/belfrydb/belfry/node/outcome"
)

// Membership is a committed configuration of a group.
type Membership struct {
	// Index is its position in the group's log.
	Index uint64 `json:"index"`
	// Voters are the server ids of the voting members, Nonvoters those of members that only follow the
	// log.
	Voters    []string `json:"voters,omitempty"`
	Nonvoters []string `json:"nonvoters,omitempty"`
}

// Has reports whether a server is a member.
func (m Membership) Has(serverID string) bool {
	return slices.Contains(m.Voters, serverID) || slices.Contains(m.Nonvoters, serverID)
}

func membership(index uint64, c raft.Configuration) Membership {
	m := Membership{Index: index}
	for _, server := range c.Servers {
		if server.Suffrage == raft.Voter {
			m.Voters = append(m.Voters, string(server.ID))
		} else {
			m.Nonvoters = append(m.Nonvoters, string(server.ID))
		}
	}
	return m
}

// SoleVoter reports whether this node is the only voter.
func (g *Group) SoleVoter() bool {
	voters, _ := g.latestMembers()
	return len(voters) == 1 && voters[0] == g.cfg.Self
}

// latestMembers returns the server ids of the voters and of the nonvoters, from the latest
// configuration in the log. That configuration may never be committed.
func (g *Group) latestMembers() (voters, nonvoters []string) {
	i := g.instance()
	if i == nil {
		return nil, nil
	}
	future := i.GetConfiguration()
	if future.Error() != nil { // never: the library answers from memory
		return nil, nil
	}
	m := membership(0, future.Configuration())
	return m.Voters, m.Nonvoters
}

// Voters returns the server ids of the voters, from the latest configuration in the log. That
// configuration may never be committed. There are none before Start.
func (g *Group) Voters() []string {
	voters, _ := g.latestMembers()
	return voters
}

// ReadMembers returns the members of the group, which this node must lead, and still lead when the
// call began: every change that was begun before is in the answer or will never be committed. It
// logs an entry.
func (g *Group) ReadMembers() (Membership, error) {
	i := g.instance()
	// Only a leader commits an entry in its term, and what comes before it is applied then.
	if err := ProposalError(i.outcome(i.Barrier(submitTimeout))); err != nil {
		return Membership{}, err
	}
	return g.replica.CommittedMembers(), nil
}

// AddNonvoter has the group, which this node must lead, send its log to a server that does not vote
// yet. For after see RemoveServer.
func (g *Group) AddNonvoter(serverID string, after uint64) error {
	return g.changeMembers(after, func(_ Membership, r *raft.Raft) (raft.Future, error) {
		return r.AddNonvoter(raft.ServerID(serverID), raft.ServerAddress(serverID), after, submitTimeout), nil
	})
}

// AddVoter makes a non-voter of the group, which this node must lead, a voter. A server that is no
// member is refused with ErrOvertaken. For after see RemoveServer.
func (g *Group) AddVoter(serverID string, after uint64) error {
	return g.changeMembers(after, func(m Membership, r *raft.Raft) (raft.Future, error) {
		if !m.Has(serverID) {
			return nil, fmt.Errorf("%w: %s is no member that could become a voter", outcome.ErrOvertaken, serverID)
		}
		return r.AddVoter(raft.ServerID(serverID), raft.ServerAddress(serverID), after, submitTimeout), nil
	})
}

// DemoteVoter takes a server its vote in the group, which this node must lead; it follows on. The
// server must be another one. For after see RemoveServer.
func (g *Group) DemoteVoter(serverID string, after uint64) error {
	return g.changeMembers(after, func(_ Membership, r *raft.Raft) (raft.Future, error) {
		return r.DemoteVoter(raft.ServerID(serverID), after, submitTimeout), nil
	})
}

// RemoveServer removes a server from the group, which this node must lead. after is the
// Membership.Index of the configuration that the caller judged by: if there is a newer one, nothing
// changes and the error is ErrOvertaken, or, if the newer one is not committed yet,
// ErrUnknownOutcome. 0 stands for any configuration.
func (g *Group) RemoveServer(serverID string, after uint64) error {
	return g.changeMembers(after, func(_ Membership, r *raft.Raft) (raft.Future, error) {
		return r.RemoveServer(raft.ServerID(serverID), after, submitTimeout), nil
	})
}

// changeMembers carries out one change.
func (g *Group) changeMembers(after uint64, change func(Membership, *raft.Raft) (raft.Future, error)) error {
	i, m := g.instance(), g.replica.CommittedMembers()
	if after != 0 && m.Index != after {
		return fmt.Errorf("%w: they were changed at %d, after %d", outcome.ErrOvertaken, m.Index, after)
	}
	future, err := change(m, i.Raft)
	if err != nil {
		return err
	}
	return ProposalError(i.outcome(future))
}
