package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/belfrydb/belfry/node"
)

// lettingHost is a shareHost of which other goroutines let something in while its shares are set.
type lettingHost struct {
	shareHost
	used uint64
}

func (h *lettingHost) ShardCount() int { return 3 }

func (h *lettingHost) SetShares(uint32, uint64, map[string]node.Share) map[string]node.Amounts {
	return map[string]node.Amounts{"t": {node.JobsLimit: h.used}}
}

// TestLoweredSharesKeepWhatWasLetIn: what came between the look at what is used and the lowering is not given away, and never more than there was.
func TestLoweredSharesKeepWhatWasLetIn(t *testing.T) {
	_, c, _ := open(t, t.TempDir())
	if _, err := c.propose(t.Context(), limitJobs(100)); err != nil {
		t.Fatal(err)
	}
	for _, granted := range []uint64{0, 100} { // a leader takes the share over, and has it grow
		step := take(1, 5, 0, granted)
		c.view(func(m *machine) {
			r := m.state.Namespaces[0]
			step.Shares.Changes[0].Born = r.Born
			for i := range r.Shares {
				step.Shares.Changes[0].Version = r.Shares[i].Version
			}
		})
		if _, err := c.propose(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	for used, want := range map[uint64]uint64{0: 0, 70: 70, 130: 100} {
		k := &shareKeeper{host: &lettingHost{used: used}, catalog: c, logger: slog.New(slog.DiscardHandler)}
		changes := k.hand(1, &shardKeeper{term: 5, states: map[string]*shareState{}}, using(10, 0))
		if len(changes) != 1 || want > 0 && changes[0].Granted[node.JobsLimit] != want || changes[0].Granted[node.JobsLimit] > 100 {
			t.Errorf("with %d used: %+v, want a share of %d", used, changes, want)
		}
	}
}

// TestRecoveredQuotas: a recovery keeps the quotas and forgets the shares, whose terms were those of groups that there are no more.
func TestRecoveredQuotas(t *testing.T) {
	m := newMachine()
	apply(t, m, limitJobs(100), take(1, 57, 0, 0))
	sole := &soleMachine{machine: m, self: node.Identity{Shards: 3}, clusterID: "new"}
	var b bytes.Buffer
	if _, err := sole.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	restored, err := newMachine().Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	r := restored.(*machine).state.Namespaces[0]
	if len(r.Shares) != 0 || r.Quota != m.state.Namespaces[0].Quota || len(m.state.Namespaces[0].Shares) != 1 {
		t.Errorf("recovered as %+v from %+v", r, m.state.Namespaces[0])
	}
}

// TestRefusalsLeaveTheLeaderKnown: what only the leader says for reasons of the caller's does not have a node doubt who leads; what may mean that it leads no
// more does.
func TestRefusalsLeaveTheLeaderKnown(t *testing.T) {
	for err, want := range map[error]bool{
		&node.QuotaError{Namespace: "t", Limit: node.JobsLimit}: false, &node.QuotaError{Namespace: "t", Limit: node.PutRate}: false,
		node.ErrNotLeader: true, node.ErrUnknownOutcome: true, node.ErrOverloaded: true,
	} {
		forgot := false
		s := &seeker{
			self: "a.1", follows: func(uint32) bool { return true },
			find: func(context.Context, uint32) string { return "b.1" }, forget: func(uint32, string) { forgot = true },
		}
		got := s.follow(t.Context(), 0, newPatience(t.Context(), 0, nil), nil, func(string) error { return fmt.Errorf("b.1: %w", err) })
		if !errors.Is(got, err) || forgot != want {
			t.Errorf("%v: %v; the leader was forgotten: %v, want %v", err, got, forgot, want)
		}
	}
}
