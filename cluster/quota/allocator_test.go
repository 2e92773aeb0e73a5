package quota

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/node"
)

// busyHost is a Host whose shard accepts more while its quotas are set.
type busyHost struct {
	Host
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

// memoryRecords are recorded quotas in memory.
type memoryRecords struct {
	mu      sync.Mutex
	limited uint64
	all     []*Record
	// missing: the catalog's leader has records that this node lacks.
	missing bool
}

func (r *memoryRecords) ViewQuotas(f func(limited uint64, all []*Record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.limited, r.all)
}

func (r *memoryRecords) ChangeShardQuotas(context.Context, ShardChanges) error { return nil }

func (r *memoryRecords) Refresh(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.missing {
		return node.ErrNoLeader
	}
	return nil
}

// limit adds a record, and says whether the leader has others.
func (r *memoryRecords) limit(missing bool, all ...*Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.missing = append(r.all, all...), missing
}

// TestLoweredQuotaKeepsWhatIsUsed: what a shard accepts between the reading of its use and the
// lowering is not given back. The quota never exceeds what it was.
func TestLoweredQuotaKeepsWhatIsUsed(t *testing.T) {
	records := &memoryRecords{all: []*Record{recordOf(100, 100, 0, false, 7)}}
	for used, want := range map[uint64]uint64{0: 0, 70: 70, 130: 100} {
		a := &Allocator{host: &busyHost{used: used}, records: records, logger: slog.New(slog.DiscardHandler)}
		changes := a.applyQuotas(1, &shardQuotas{term: 5, states: map[string]*namespaceState{}}, useOf(10, 0))
		if len(changes) != 1 || want > 0 && changes[0].Granted[node.JobsLimit] != want ||
			changes[0].Granted[node.JobsLimit] > 100 {
			t.Errorf("with %d used: %+v, want a quota of %d", used, changes, want)
		}
	}
}

// TestOldQuotasAreNotApplied: a shard whose leader knows of a later quota change gets nothing from
// a replica of the catalog that was rebuilt from its files and lacks that change. A leader that
// was replaced proposes nothing.
func TestOldQuotasAreNotApplied(t *testing.T) {
	const limited = 9
	records := &memoryRecords{limited: limited, all: []*Record{recordOf(100, 100, 0, false, 7)}}
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
		a := &Allocator{host: h, records: records, logger: slog.New(slog.DiscardHandler)}
		s := &shardQuotas{term: 5, states: map[string]*namespaceState{}, limited: tt.knows}
		changes := a.applyQuotas(1, s, useOf(10, 0))
		if h.told != tt.told || len(changes) != tt.wants || tt.told > 0 && s.limited != limited {
			t.Errorf("%+v: it was told %d times, and proposes %+v; it knows of change %d", tt, h.told, changes, s.limited)
		}
	}
}

// startingHost is a Host that records how many namespaces it was told have a quota, and
// whether it was asked for its shards.
type startingHost struct {
	Host
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
	synctest.Test(t, func(t *testing.T) {
		for _, spaces := range []int{0, 1} {
			h, records := &startingHost{}, &memoryRecords{missing: true}
			a := NewAllocator(h, records, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { a.Run(ctx) })
			<-time.After(time.Minute)
			if spaces, looked := h.state(); spaces != 1 || looked {
				t.Errorf("before the catalog is known %d namespaces are limited, and quotas are updated: %v; want one, and no "+
					"update", spaces, looked)
			}
			records.limit(false, make([]*Record, spaces)...)
			<-time.After(2 * catchUpInterval)
			if said, _ := h.state(); said != spaces {
				t.Errorf("%d namespaces are limited, want %d", said, spaces)
			}
			cancel()
			running.Wait()
		}
	})
}

// TestLoweredRate: unlike jobs and leases, puts a second can be taken from a shard that uses them
// all. After a few updates of each shard the sum does not exceed the quota.
func TestLoweredRate(t *testing.T) {
	const quota, shards = 100_000, 3
	r := &Record{Name: "t", Quota: node.Amounts{node.PutRate: quota}}
	for shard, granted := range []uint64{1_000_000, 2_000_000, 10} {
		//nolint:gosec // three
		r.ShardQuotas = append(r.ShardQuotas, ShardQuota{Shard: uint32(shard), Granted: node.Amounts{node.PutRate: granted}})
	}
	for range 8 {
		for i := range r.ShardQuotas {
			e := &r.ShardQuotas[i]
			busy := node.NamespaceUse{Use: e.Granted, Short: node.Amounts{node.PutRate: 1000}}
			*e = wantedQuota(r, e, busy, shards)
		}
	}
	if granted := r.GrantedExcept(^uint32(0))[node.PutRate]; granted > quota || granted < quota/2 {
		t.Errorf("%d thousandths of a put a second are granted of %d", granted, quota)
	}
}
