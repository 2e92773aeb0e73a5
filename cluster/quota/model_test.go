package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/belfrydb/belfry/node"
)

// model is a namespace whose shards' leaders update their quotas as Allocator does.
// Callers retry without a delay.
type model struct {
	t      *testing.T
	limit  node.Limit
	record *Record
	shards []modelShard
	index  uint64
	now    time.Duration
	random *rand.Rand
}

// modelShard is one shard: what it uses, and what its waiting callers lack.
type modelShard struct {
	used, waiting uint64
	updated, next time.Duration
	pause         time.Duration
	starved       time.Duration // since when no caller was accepted, although one waits and the quota has room
}

const (
	modelStep = 10 * time.Millisecond
	// modelEntry is how long an update takes, with its catalog entry.
	modelEntry = 50 * time.Millisecond
)

func newModel(t *testing.T, shards int, limit node.Limit, quota, seed uint64) *model {
	t.Helper()
	m := &model{t: t, limit: limit, record: &Record{Name: "t"}, shards: make([]modelShard, shards),
		random: rand.New(rand.NewPCG(seed, 1))}
	m.record.Quota[limit] = quota
	for shard := range uint32(shards) { //nolint:gosec // a few
		m.index++
		m.record.ChangeShardQuota(m.index, shard, 1, &Change{})
		m.shards[shard].next = time.Duration(m.random.Int64N(int64(interval)))
	}
	return m
}

func (m *model) granted(shard int) uint64 { return m.record.ShardQuotas[shard].Granted[m.limit] }

// sums returns what all shards use and may use.
func (m *model) sums() (used, granted uint64) {
	for i := range m.shards {
		used, granted = used+m.shards[i].used, granted+m.granted(i)
	}
	return used, granted
}

// step advances the model by modelStep. Waiting callers are accepted as far as there is room, and
// shards whose time has come update their quotas.
func (m *model) step() {
	m.now += modelStep
	for i := range m.shards {
		s := &m.shards[i]
		if in := min(s.waiting, m.granted(i)-min(s.used, m.granted(i))); m.limit != node.PutRate {
			s.used, s.waiting = s.used+in, s.waiting-in
			if in > 0 {
				s.starved = m.now
			}
		}
		if s.waiting > 0 { // it asks for more, less and less often
			s.next = min(s.next, s.updated+s.pause)
		}
		if s.next > m.now {
			continue
		}
		e := &m.record.ShardQuotas[i]
		var use node.NamespaceUse
		use.Use[m.limit], use.Short[m.limit] = s.used, s.waiting
		want := wantedQuota(m.record, e, use, len(m.shards))
		s.updated, s.next, s.pause = m.now, m.now+interval, min(max(2*s.pause, 20*time.Millisecond), interval)
		if want.Granted == e.Granted && want.Wanted == e.Wanted && want.Tight == e.Tight {
			continue
		}
		m.index++
		before := m.granted(i)
		m.record.ChangeShardQuota(m.index, e.Shard, 1, &Change{Version: e.Version, Granted: want.Granted, Wanted: want.Wanted,
			Tight: want.Tight})
		if m.granted(i) != before {
			s.pause = modelEntry
		}
	}
	if _, granted := m.sums(); granted > m.record.Quota[m.limit] {
		m.t.Fatalf("after %v the shards have %d together, the quota is %d", m.now, granted, m.record.Quota[m.limit])
	}
}

// TestHotShardGetsTheFreeQuota: a shard that could use all of the quota gets all that is free
// within a second, whether many callers ask at once or few one by one, also if the other shards
// had grown before.
func TestHotShardGetsTheFreeQuota(t *testing.T) {
	const quota = 1_000_000
	for shards := 3; shards <= 6; shards++ {
		for _, callers := range []uint64{1, 9, 1000, 2 * quota} {
			for _, before := range []uint64{0, quota / 10} {
				t.Run(fmt.Sprintf("%d shards, %d callers, %d used by each before", shards, callers, before), func(t *testing.T) {
					m := newModel(t, shards, node.JobsLimit, quota, uint64(shards))
					for i := range m.shards {
						m.shards[i].waiting = before
					}
					for m.now < 5*time.Second {
						m.step()
					}
					for i := range m.shards {
						m.shards[i].used /= 2 // which leaves them more than they use
					}
					began := m.now
					others := uint64(shards-1) * m.shards[1].used
					for m.shards[0].used+others < quota {
						m.shards[0].waiting = callers
						m.shards[0].used = max(m.shards[0].used, m.granted(0)) // each asks again at once
						m.step()
						if m.now-began > time.Second {
							t.Fatalf("after a second it uses %d of the %d that the others leave, and may use %d", m.shards[0].used,
								quota-others, m.granted(0))
						}
					}
				})
			}
		}
	}
}

// TestTwoHotShards: of two shards that could use all of the quota, each gets its part of what
// is free within a second.
func TestTwoHotShards(t *testing.T) {
	const quota = 1_000_000
	m := newModel(t, 6, node.JobsLimit, quota, 3)
	for m.now < 2*time.Second {
		for i := range 2 {
			m.shards[i].waiting = 5
			m.shards[i].used = max(m.shards[i].used, m.granted(i))
		}
		m.step()
		if used, _ := m.sums(); m.now > time.Second && used < quota {
			t.Fatalf("after %v %d of %d are used", m.now, used, quota)
		}
	}
	for i := range 2 {
		if m.shards[i].used < quota/4 {
			t.Errorf("%d of %d are used by one of them", m.shards[i].used, quota)
		}
	}
}

// TestHotRateLeavesSome: a shard that uses all puts that it may, and wants more, leaves another
// shard its part of the rate, within seconds.
func TestHotRateLeavesSome(t *testing.T) {
	const quota = 1_000_000
	m := newModel(t, 3, node.PutRate, quota, 3)
	hot := func(shards int, until time.Duration) {
		for m.now < until {
			for i := range shards {
				m.shards[i].waiting, m.shards[i].used = 50_000, m.granted(i)/100*uint64(95+m.random.IntN(6))
			}
			m.step()
		}
	}
	if hot(1, time.Second); m.granted(0) != quota {
		t.Errorf("alone it has %d of %d", m.granted(0), quota)
	}
	if hot(2, 6*time.Second); m.granted(0) < quota/3 || m.granted(1) < quota/3 {
		t.Errorf("they have %d and %d of %d", m.granted(0), m.granted(1), quota)
	}
	entries := m.index
	if hot(2, 26*time.Second); m.index-entries > 40 {
		t.Errorf("their quotas changed %d times in 20 seconds of the same load", m.index-entries)
	}
}

// TestQuotasUnderAnyLoad: under any load, the shards' quotas never exceed the quota of the
// namespace. While that has room, every shard accepts a caller within a second.
func TestQuotasUnderAnyLoad(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		quota := []uint64{7, 60, 1000, 1_000_000}[random.IntN(4)]
		m := newModel(t, 3+random.IntN(4), node.JobsLimit, quota, seed)
		for m.now < time.Minute {
			if random.IntN(20) == 0 { // callers arrive at one shard, and a part of its use ends
				s := &m.shards[random.IntN(len(m.shards))]
				s.waiting += random.Uint64N(quota/2 + 2)
				s.used -= random.Uint64N(s.used + 1)
			}
			m.step()
			used, _ := m.sums()
			for i := range m.shards {
				if s := &m.shards[i]; s.waiting == 0 || used >= quota {
					s.starved = m.now
				} else if m.now-s.starved > time.Second {
					t.Fatalf("seed %d, %d shards, after %v: shard %d lacks %d, %d of %d are used; %+v", seed, len(m.shards), m.now,
						i, s.waiting, used, quota, m.record.ShardQuotas)
				}
			}
		}
	}
}
