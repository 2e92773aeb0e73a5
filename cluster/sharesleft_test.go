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

// lettingHost is a shareHost of which other goroutines let something in while its shares are set.
type lettingHost struct {
	shareHost
	used uint64
	told int  // how often shares were set
	over bool // the leadership is
}

func (h *lettingHost) ShardCount() int { return 3 }

func (h *lettingHost) SetShares(uint32, uint64, map[string]node.Share) map[string]node.Amounts {
	if h.told++; h.over {
		return nil
	}
	return map[string]node.Amounts{"t": {node.JobsLimit: h.used}}
}

// openUnkept starts the catalog of a lone node over shards whose shares no keeper takes.
func openUnkept(t *testing.T) *Catalog {
	t.Helper()
	n, _ := openNode(t, t.TempDir())
	return openOver(t, n, n)
}

// TestLoweredSharesKeepWhatWasLetIn: what came between the look at what is used and the lowering is not given away, and never more than there was.
func TestLoweredSharesKeepWhatWasLetIn(t *testing.T) {
	c := openUnkept(t)
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

// TestNothingIsSaidOfOldQuotas: a shard whose leader knows of a later change of a quota is told nothing by a replica of the catalog that was made anew from its
// files and does not have it yet; and nothing is proposed in the name of a leader that is none any more.
func TestNothingIsSaidOfOldQuotas(t *testing.T) {
	c := openUnkept(t)
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
		h := &lettingHost{over: tt.over}
		k := &shareKeeper{host: h, catalog: c, logger: slog.New(slog.DiscardHandler)}
		s := &shardKeeper{term: 5, states: map[string]*shareState{}, limited: tt.knows}
		changes := k.hand(1, s, using(10, 0))
		if h.told != tt.told || len(changes) != tt.wants || tt.told > 0 && s.limited != limited {
			t.Errorf("%+v: it was told %d times, and proposes %+v; it knows of change %d", tt, h.told, changes, s.limited)
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

// TestUnknownShareCrossesNodes: that a leader does not know its share yet is what the caller hears, through whichever node.
func TestUnknownShareCrossesNodes(t *testing.T) {
	err := readPeerError(http.StatusConflict, namePeerError(fmt.Errorf("shard-1: %w: namespace %q", node.ErrShareUnknown, "t")))
	if !errors.Is(err, node.ErrShareUnknown) || node.OutcomeOf(err) != node.NotApplied {
		t.Errorf("it arrives as %v", err)
	}
}

// TestTooManyQueuesCrossNodes: what is said of a namespace with too many queues is what the caller hears, through whichever node, and for one of a version
// that does not know the error it is one of a quota.
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

// TestRefusalsLeaveTheLeaderKnown: what only the leader says for reasons of the caller's does not have a node doubt who leads; what may mean that it leads no
// more does.
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

// startingHost is a shareHost that notes how many namespaces it was told have a quota, and whether it was looked at.
type startingHost struct {
	shareHost
	mu     sync.Mutex
	spaces int
	looked bool
}

func (h *startingHost) LimitSpaces(spaces int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spaces = spaces
}

func (h *startingHost) OnShort(func()) {}

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

// TestNothingIsKnownBeforeTheCatalogCaughtUp: a node that has just started takes namespaces for limited, and says nothing of shares, until its catalog has had all
// that the leader had, once. The catalog's leader may have quotas of which nothing is here.
func TestNothingIsKnownBeforeTheCatalogCaughtUp(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, c, _ := open(t, dir)
		for _, spaces := range []int{0, 1} {
			h := &startingHost{}
			k := newShareKeeper(h, c, slog.New(slog.DiscardHandler))
			var heard atomic.Bool
			k.refresh = func(context.Context) error {
				if heard.Load() {
					return nil
				}
				return node.ErrNoLeader
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { k.run(ctx) })
			pass(time.Minute)
			if said, looked := h.state(); said != 1 || looked {
				t.Errorf("before the catalog is known %d namespaces are limited, and shares are looked at: %v; want one, and nothing to be known", said, looked)
			}
			if spaces > 0 {
				if _, err := c.propose(t.Context(), limitJobs(100)); err != nil {
					t.Fatal(err)
				}
			}
			heard.Store(true)
			pass(2 * shareCatchUp)
			if said, _ := h.state(); said != spaces {
				t.Errorf("%d namespaces are limited, want %d", said, spaces)
			}
			cancel()
			running.Wait()
		}
	})
}

// TestSoleNodeStartsAtOnce: who is the only voter of the catalog knows at once that there are no quotas.
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

// TestLoweredRate: unlike jobs and leases, puts a second can be had back from who uses them all: after a few looks of each shard there is no more than the quota.
func TestLoweredRate(t *testing.T) {
	const quota, shards = 100_000, 3
	r := &namespaceRecord{Name: "t", Quota: node.Amounts{node.PutRate: quota}}
	for shard, granted := range []uint64{1_000_000, 2_000_000, 10} {
		r.Shares = append(r.Shares, shareRecord{Shard: uint32(shard), Granted: node.Amounts{node.PutRate: granted}}) //nolint:gosec // three
	}
	for range 8 {
		for i := range r.Shares {
			e := &r.Shares[i]
			busy := node.SpaceUse{Use: e.Granted, Short: node.Amounts{node.PutRate: 1000}}
			*e = wanted(r, e, busy, shards)
		}
	}
	if granted := r.granted(^uint32(0))[node.PutRate]; granted > quota || granted < quota/2 {
		t.Errorf("%d thousandths of a put a second are granted of %d", granted, quota)
	}
}
