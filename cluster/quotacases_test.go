package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

// busyHost is a quotaHost whose shard accepts more while its quotas are set.
type busyHost struct {
	quotaHost
	used uint64
	told int  // how often quotas were set
	over bool // its leadership has ended
}

func (h *busyHost) ShardCount() int { return 3 }

func (h *busyHost) SetShardQuotas(uint32, uint64, map[string]node.ShardQuota) map[string]node.Amounts {
	if h.told++; h.over {
		return nil
	}
	return map[string]node.Amounts{"t": {node.JobsLimit: h.used}}
}

// openWithoutAllocator starts the catalog of a lone node without a quotaAllocator.
func openWithoutAllocator(t *testing.T) *Catalog {
	t.Helper()
	n, _ := openNode(t, t.TempDir())
	return openOver(t, n, n)
}

// TestLoweredQuotaKeepsWhatIsUsed: what a shard accepts between the reading of its use and the
// lowering is not given back. The quota never exceeds what it was.
func TestLoweredQuotaKeepsWhatIsUsed(t *testing.T) {
	c := openWithoutAllocator(t)
	if _, err := c.propose(t.Context(), limitJobs(100)); err != nil {
		t.Fatal(err)
	}
	for _, granted := range []uint64{0, 100} { // a leader takes the quota over, and makes it grow
		step := changeJobsQuota(1, 5, 0, granted)
		c.view(func(m *machine) {
			r := m.state.Namespaces[0]
			step.ShardQuotas.Changes[0].Created = r.Created
			for i := range r.ShardQuotas {
				step.ShardQuotas.Changes[0].Version = r.ShardQuotas[i].Version
			}
		})
		if _, err := c.propose(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	for used, want := range map[uint64]uint64{0: 0, 70: 70, 130: 100} {
		a := &quotaAllocator{host: &busyHost{used: used}, catalog: c, logger: slog.New(slog.DiscardHandler)}
		changes := a.applyQuotas(1, &shardQuotas{term: 5, states: map[string]*shardQuotaState{}}, useOf(10, 0))
		if len(changes) != 1 || want > 0 && changes[0].Granted[node.JobsLimit] != want || changes[0].Granted[node.JobsLimit] > 100 {
			t.Errorf("with %d used: %+v, want a quota of %d", used, changes, want)
		}
	}
}

// TestOldQuotasAreNotApplied: a shard whose leader knows of a later quota change gets nothing from
// a replica of the catalog that was rebuilt from its files and lacks that change. A leader that
// was replaced proposes nothing.
func TestOldQuotasAreNotApplied(t *testing.T) {
	c := openWithoutAllocator(t)
	if _, err := c.propose(t.Context(), limitJobs(100)); err != nil {
		t.Fatal(err)
	}
	var limited uint64
	c.view(func(m *machine) { limited = m.state.Limited })
	for _, tt := range []struct {
		knows       uint64
		over        bool
		told, wants int
	}{
		{knows: 0, told: 1, wants: 1},
		{knows: limited, told: 1, wants: 1},
		{knows: limited + 1},
		{knows: limited, over: true, told: 1},
	} {
		h := &busyHost{over: tt.over}
		a := &quotaAllocator{host: h, catalog: c, logger: slog.New(slog.DiscardHandler)}
		s := &shardQuotas{term: 5, states: map[string]*shardQuotaState{}, limited: tt.knows}
		changes := a.applyQuotas(1, s, useOf(10, 0))
		if h.told != tt.told || len(changes) != tt.wants || tt.told > 0 && s.limited != limited {
			t.Errorf("%+v: it was told %d times, and proposes %+v; it knows of change %d", tt, h.told, changes, s.limited)
		}
	}
}

// TestRecoveredQuotas: a recovery keeps the quotas of namespaces and drops those of shards. Their
// terms belong to groups that no longer exist.
func TestRecoveredQuotas(t *testing.T) {
	m := newMachine()
	apply(t, m, limitJobs(100), changeJobsQuota(1, 57, 0, 0))
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
	if len(r.ShardQuotas) != 0 || r.Quota != m.state.Namespaces[0].Quota || len(m.state.Namespaces[0].ShardQuotas) != 1 {
		t.Errorf("recovered as %+v from %+v", r, m.state.Namespaces[0])
	}
}

// TestUnknownQuotaCrossesNodes: a leader that does not know its quota yet says so, and the caller
// learns it through any node.
func TestUnknownQuotaCrossesNodes(t *testing.T) {
	err := readPeerError(http.StatusConflict, namePeerError(fmt.Errorf("shard-1: %w: namespace %q", node.ErrShareUnknown, "t")))
	if !errors.Is(err, node.ErrShareUnknown) || node.OutcomeOf(err) != node.NotApplied {
		t.Errorf("it arrives as %v", err)
	}
}

// TestTooManyQueuesCrossNodes: the error of a namespace with too many queues reaches the caller
// through any node. A version that does not know the error reads it as one of a quota.
func TestTooManyQueuesCrossNodes(t *testing.T) {
	want := &node.QueuesError{Namespace: "t", Queue: "t/q", Used: 5, Free: 3, Max: 8}
	sent := namePeerError(fmt.Errorf("shard-1: %w", want))
	got, ok := errors.AsType[*node.QueuesError](readPeerError(http.StatusConflict, sent))
	if !ok || *got != *want || node.OutcomeOf(got) != node.NotApplied {
		t.Errorf("it arrives as %+v", got)
	}
	if older := readPeerError(http.StatusConflict, bytes.Replace(sent, []byte(`"queues"`), []byte(`"future"`), 1)); !errors.Is(older, node.ErrQuota) {
		t.Errorf("at an older node it arrives as %v", older)
	}
}

// TestRefusalsLeaveTheLeaderKnown: a refusal that only the leader makes, because of the request,
// does not make a node doubt the leader. A refusal that may mean that it does not lead any more
// does.
func TestRefusalsLeaveTheLeaderKnown(t *testing.T) {
	for err, want := range map[error]bool{
		&node.QuotaError{Namespace: "t", Limit: node.JobsLimit}: false, &node.QuotaError{Namespace: "t", Limit: node.PutRate}: false, &node.QueuesError{Namespace: "t"}: false,
		node.ErrNotLeader: true, node.ErrUnknownOutcome: true, node.ErrOverloaded: true,
	} {
		forgot := false
		s := &leaderRouter{
			self: "a.1", follows: func(uint32) bool { return true },
			findLeader: func(context.Context, uint32) string { return "b.1" }, markFailed: func(uint32, string) { forgot = true },
		}
		got := s.route(t.Context(), 0, newRetryBudget(t.Context(), 0, nil), nil, func(string) error { return fmt.Errorf("b.1: %w", err) })
		if !errors.Is(got, err) || forgot != want {
			t.Errorf("%v: %v; the leader was forgotten: %v, want %v", err, got, forgot, want)
		}
	}
}

// startingHost is a quotaHost that records how many namespaces it was told have a quota, and
// whether it was asked for its shards.
type startingHost struct {
	quotaHost
	mu     sync.Mutex
	spaces int
	looked bool
}

func (h *startingHost) SetNamespacesLimited(spaces int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spaces = spaces
}

func (h *startingHost) OnQuotaShort(func()) {}

func (h *startingHost) ShardCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked = true
	return 0
}

func (h *startingHost) state() (spaces int, looked bool) {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.spaces, h.looked
}

// TestAllocatorAwaitsTheCatalog: a node that has just started treats namespaces as limited, and
// proposes no quotas, until its catalog has once had all that the leader had. The catalog's leader
// may have quotas that this node does not know.
func TestAllocatorAwaitsTheCatalog(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := open(t, dir)
		for _, spaces := range []int{0, 1} {
			h := &startingHost{}
			a := newQuotaAllocator(h, c, slog.New(slog.DiscardHandler))
			var heard atomic.Bool
			a.refresh = func(context.Context) error {
				if heard.Load() {
					return nil
				}
				return node.ErrNoLeader
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { a.run(ctx) })
			pass(time.Minute)
			if spaces, looked := h.state(); spaces != 1 || looked {
				t.Errorf("before the catalog is known %d namespaces are limited, and quotas are updated: %v; want one, and no update", spaces, looked)
			}
			if spaces > 0 {
				if _, err := c.propose(t.Context(), limitJobs(100)); err != nil {
					t.Fatal(err)
				}
			}
			heard.Store(true)
			pass(2 * catchUpInterval)
			if said, _ := h.state(); said != spaces {
				t.Errorf("%d namespaces are limited, want %d", said, spaces)
			}
			cancel()
			running.Wait()
		}
	})
}

// TestSoleNodeStartsAtOnce: the only voter of the catalog knows at once that there are no quotas.
func TestSoleNodeStartsAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newMember(t, newPipes(), dir, "a", nil)
		began := time.Now()
		if err := put(a, "t/q"); err != nil || time.Since(began) > 0 {
			t.Errorf("a put after %v: %v", time.Since(began), err)
		}
	})
}

// TestLoweredRate: unlike jobs and leases, puts a second can be taken from a shard that uses them
// all. After a few updates of each shard the sum does not exceed the quota.
func TestLoweredRate(t *testing.T) {
	const quota, shards = 100_000, 3
	r := &namespaceRecord{Name: "t", Quota: node.Amounts{node.PutRate: quota}}
	for shard, granted := range []uint64{1_000_000, 2_000_000, 10} {
		r.ShardQuotas = append(r.ShardQuotas, shardQuota{Shard: uint32(shard), Granted: node.Amounts{node.PutRate: granted}}) //nolint:gosec // three
	}
	for range 8 {
		for i := range r.ShardQuotas {
			e := &r.ShardQuotas[i]
			busy := node.NamespaceUse{Use: e.Granted, Short: node.Amounts{node.PutRate: 1000}}
			*e = wantedQuota(r, e, busy, shards)
		}
	}
	if granted := r.grantedExcept(^uint32(0))[node.PutRate]; granted > quota || granted < quota/2 {
		t.Errorf("%d thousandths of a put a second are granted of %d", granted, quota)
	}
}
