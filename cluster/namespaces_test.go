package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfrydb/belfry/cluster/catalog"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestAddedLimitCounts: when SetNamespace names nothing as pending, a limit that was added to those
// of a namespace counts in every shard.
func TestAddedLimitCounts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		s := newSpace(tr)
		set := func(l node.Limit, quota uint64) {
			t.Helper()
			var amounts node.Amounts
			var which [node.Limits]bool
			amounts[l], which[l] = quota, true
			config, err := tr.all[1].cluster.SetNamespace(t.Context(), "t", which, amounts)
			if err != nil || len(config.Pending) > 0 {
				t.Fatalf("%+v, %v", config, err)
			}
		}
		set(node.LeasesLimit, 1000)
		for _, queue := range s.queues {
			if err := put(tr.all[0], queue); err != nil {
				t.Fatal(err)
			}
		}
		pass(10 * time.Second)
		set(node.JobsLimit, 1) // less than there is
		for _, queue := range s.queues {
			if err := put(tr.all[0], queue); !errors.Is(err, node.ErrQuota) {
				t.Errorf("%s: %v", queue, err)
			}
		}
	})
}

// TestRestoredQuotasCount: quotas that a restore has brought are those of the backup whatever was
// there before, also if it brings them twice, and count in every shard when it goes on.
func TestRestoredQuotasCount(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		s := newSpace(tr)
		if _, err := tr.all[0].cluster.SetNamespace(t.Context(), "t", [node.Limits]bool{node.LeasesLimit: true},
			node.Amounts{node.LeasesLimit: 3}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range s.queues {
			if err := put(tr.all[0], queue); err != nil {
				t.Fatal(err)
			}
		}
		want := []catalog.NamespaceConfig{
			{
				Name: "another", Quota: node.Amounts{node.BytesLimit: 1000, node.PutRate: 2000},
			}, {Name: "t", Quota: node.Amounts{node.JobsLimit: 1}},
		}
		for i := range 2 {
			if err := tr.all[1+i].cluster.RestoreNamespaces(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			got := tr.all[1+i].cluster.Namespaces()
			for j := range got {
				got[j].Granted = node.Amounts{}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("restored %d times (-want +got):\n%s", i+1, diff)
			}
		}
		for _, queue := range s.queues {
			if err := put(tr.all[0], queue); !errors.Is(err, node.ErrQuota) {
				t.Errorf("%s: %v", queue, err)
			}
		}
	})
}

const (
	spaceQuota = 60
	spaceBatch = 5
)

// space is a namespace of a trio whose queues are in all shards.
type space struct {
	*trio
	queues []string
	going  sync.WaitGroup

	mu    sync.Mutex
	most  uint64
	put   int
	quota int
}

func newSpace(tr *trio) *space {
	s := &space{trio: tr}
	for i := range 12 {
		s.queues = append(s.queues, fmt.Sprintf("t/q%d", i))
	}
	return s
}

// held returns how many jobs the namespace has, by the replica of each shard that has applied most.
func (s *space) held() (sum uint64) {
	s.Helper()
	for shard := range uint32(testShards) {
		var newest, jobs uint64
		for _, m := range s.all {
			var index, n uint64
			for _, queue := range s.queues {
				if node.ShardOf(queue, 0, testShards) != shard {
					continue
				}
				r, w, err := m.node.Peek(shard, &fsm.QueueQuery{Queue: queue})
				if err != nil {
					s.Fatal(err)
				}
				index = w.Index
				for _, q := range r.Queues {
					n += q.Counts.Jobs()
				}
			}
			if index >= newest {
				newest, jobs = index, n
			}
		}
		sum += jobs
	}
	return sum
}

// fill puts batches into queues of all shards, through all members, until ctx ends.
func (s *space) fill(ctx context.Context, seed uint64, batch int) {
	random := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		queue := s.queues[random.IntN(len(s.queues))]
		req := &fsm.Request{}
		for range batch {
			req.Commands = append(req.Commands, &fsm.Put{Queue: queue, Partitions: 1})
		}
		call, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Millisecond)
		_, err := s.all[random.IntN(3)].cluster.Router().Do(call, node.ShardOf(queue, 0, testShards), req)
		cancel()
		s.mu.Lock()
		switch {
		case err == nil:
			s.put += batch
		case errors.Is(err, node.ErrQuota):
			s.quota++
		}
		s.mu.Unlock()
		pass(time.Duration(random.IntN(100)) * time.Millisecond)
	}
}

// drain takes and acks jobs until ctx ends.
func (s *space) drain(ctx context.Context, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	for ctx.Err() == nil {
		queue := s.queues[random.IntN(len(s.queues))]
		s.ack(ctx, queue)
		pass(time.Duration(random.IntN(200)) * time.Millisecond)
	}
}

func (s *space) ack(ctx context.Context, queue string) (acked int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	shard, r := node.ShardOf(queue, 0, testShards), s.all[0].cluster.Router()
	reply, err := r.Reserve(ctx, shard, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
		Queues: []string{queue}, Max: 8,
	}}}, node.Wait{})
	if err != nil {
		return 0
	}
	for _, job := range reply.Jobs {
		ack := &fsm.Ack{Ref: fsm.Ref{Queue: queue, Serial: job.Serial, Fence: job.Fence}}
		if _, err := r.Do(ctx, shard, &fsm.Request{Commands: []fsm.Command{ack}}); err == nil {
			acked++
		}
	}
	return acked
}

// watch checks how much there is until ctx ends.
func (s *space) watch(ctx context.Context) {
	for ctx.Err() == nil {
		held := s.held()
		s.mu.Lock()
		s.most = max(s.most, held)
		s.mu.Unlock()
		pass(50 * time.Millisecond)
	}
}

// TestQuotaHolds fills a namespace from everywhere while leaders of shards and of the catalog are
// cut off, come back and hand over: it never has more than its quota and a batch for each shard.
// When all is well again, all of the quota can be used within seconds, wherever.
func TestQuotaHolds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		s := newSpace(tr)
		config, err := tr.all[1].cluster.SetNamespace(t.Context(), "t", [node.Limits]bool{node.JobsLimit: true},
			node.Amounts{node.JobsLimit: spaceQuota})
		if err != nil || len(config.Pending) > 0 {
			t.Fatalf("%+v, %v", config, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for i := range uint64(9) {
			s.going.Go(func() { s.fill(ctx, i, 1+int(i%2)*(spaceBatch-1)) })
		}
		s.going.Go(func() { s.drain(ctx, 1) })
		s.going.Go(func() { s.watch(ctx) })
		random := rand.New(rand.NewPCG(7, 7))
		for range 8 {
			victim := tr.all[random.IntN(3)]
			tr.network.Isolate(victim.name)
			pass(time.Duration(1+random.IntN(5)) * time.Second)
			tr.network.Reconnect(victim.name)
			pass(time.Duration(1+random.IntN(5)) * time.Second)
			shard := uint32(random.IntN(testShards))
			if leader, other := tr.leader(shard); leader != nil {
				if err := leader.node.TransferLeader(ctx, catalog.ShardGroup(shard), other.serverID()); err != nil {
					t.Logf("handing shard %d over: %v", shard, err)
				}
			}
		}
		cancel()
		s.going.Wait()
		t.Logf("%d puts, %d refusals, at most %d jobs at a time", s.put, s.quota, s.most)
		if s.most > spaceQuota+(spaceBatch-1)*testShards || s.most < spaceQuota {
			t.Errorf("the namespace had up to %d jobs, want %d and less than a batch of %d more a shard", s.most, spaceQuota,
				spaceBatch)
		}
		if s.quota == 0 || s.put < 2*spaceQuota {
			t.Errorf("%d puts, %d refusals: the quota was hardly used", s.put, s.quota)
		}
		s.useUp()
	})
}

// useUp empties the namespace and fills it again from one shard after the other: a put below the
// quota is accepted within a moment.
func (s *space) useUp() {
	await(s.T, "an empty namespace", func() bool {
		for _, queue := range s.queues {
			s.ack(s.Context(), queue)
		}
		return s.held() == 0
	})
	for i, queue := range slices.Backward(s.queues) {
		until := time.Now().Add(20 * time.Second) // of which elections may take some
		for n := 0; n < spaceQuota/len(s.queues); {
			if err := put(s.all[i%3], queue); err == nil {
				n++
			} else if pass(10 * time.Millisecond); time.Now().After(until) {
				s.Fatalf("%s has %d jobs of %d, %d are held in all: %v", queue, n, spaceQuota/len(s.queues), s.held(), err)
			}
		}
	}
	var err error
	await(s.T, "a leader", func() bool {
		err = put(s.all[0], s.queues[0])
		return err == nil || errors.Is(err, node.ErrQuota)
	})
	if err == nil || s.held() != spaceQuota {
		s.Errorf("one more than the quota of %d got %v", s.held(), err)
	}
}
