package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// tenant is a namespace of a trio with one limit, whose queues are in all shards.
type tenant struct {
	*trio
	queues []string
}

func newTenant(tr *trio, name string, limit node.Limit, quota uint64) *tenant {
	tr.Helper()
	s := &tenant{trio: tr}
	for i := range 12 {
		s.queues = append(s.queues, fmt.Sprintf("%s/q%d", name, i))
	}
	var set [node.Limits]bool
	var amounts node.Amounts
	set[limit], amounts[limit] = true, quota
	if config, err := tr.all[2].cluster.SetNamespace(tr.Context(), name, set, amounts); err != nil ||
		len(config.Pending) > 0 {
		tr.Fatalf("%+v, %v", config, err)
	}
	return s
}

// held returns what the namespace has in all shards, by their leaders.
func (s *tenant) held(of func(fsm.Counts) uint64) (sum uint64) {
	s.Helper()
	for _, queue := range s.queues {
		shard := node.ShardOf(queue, 0, testShards)
		leader, _ := s.leader(shard)
		r, _, err := leader.node.Query(s.Context(), shard, &fsm.QueueQuery{Queue: queue})
		if err != nil {
			s.Fatal(err)
		}
		for _, q := range r.Queues {
			sum += of(q.Counts)
		}
	}
	return sum
}

// run lets callers call all members with all queues until the time is over. It returns how many
// calls were carried out, and how many were refused.
func (s *tenant) run(callers uint64, length time.Duration,
	call func(m *member, shard uint32, queue string) error) (carried, refused int64) {
	ctx, cancel := context.WithTimeout(s.Context(), length)
	defer cancel()
	var did, over atomic.Int64
	var going sync.WaitGroup
	for seed := range callers {
		going.Go(func() {
			random := rand.New(rand.NewPCG(seed, 3))
			for ctx.Err() == nil {
				queue := s.queues[random.IntN(len(s.queues))]
				switch err := call(s.all[random.IntN(3)], node.ShardOf(queue, 0, testShards), queue); {
				case err == nil:
					did.Add(1)
				case errors.Is(err, node.ErrQuota) || errors.Is(err, node.ErrRateLimited):
					over.Add(1)
				default:
					s.Errorf("%s: %v", queue, err)
				}
				pass(time.Duration(random.IntN(20)) * time.Millisecond)
			}
		})
	}
	going.Wait()
	return did.Load(), over.Load()
}

// TestQuotasOfEachKind: bytes, jobs in flight and puts a second of a namespace add up to its quota
// over all shards, and all of the quota can be used.
func TestQuotasOfEachKind(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrio(t, dir)
		tr.quotaOfBytes()
		tr.quotaOfLeases()
		tr.quotaOfPuts()
	})
}

func (tr *trio) quotaOfBytes() {
	job := func(queue string) *fsm.Put { return &fsm.Put{Queue: queue, Partitions: 1, Body: make([]byte, 100)} }
	size := fsm.PutBytes(job("bytes/q0"))
	quota := 50*size + 1 // one more job than fits, and less than one more a shard
	s := newTenant(tr, "bytes", node.BytesLimit, quota)
	_, refused := s.run(6, 5*time.Second, func(m *member, shard uint32, queue string) error {
		_, err := m.cluster.Router().Do(tr.Context(), shard, &fsm.Request{Commands: []fsm.Command{job(queue)}})
		return err
	})
	if held := s.held(func(c fsm.Counts) uint64 {
		return c.Bytes
	}); held < quota-size || held >= quota+testShards*size || refused == 0 {
		tr.Errorf("%d bytes are held of %d, in jobs of %d; %d puts were refused", held, quota, size, refused)
	}
}

func (tr *trio) quotaOfLeases() {
	const quota, batch = 40, 3
	s := newTenant(tr, "leases", node.LeasesLimit, quota)
	for range 30 {
		for i, queue := range s.queues {
			if err := put(s.all[i%3], queue); err != nil {
				tr.Fatal(err)
			}
		}
	}
	reserve := func(wait node.Wait) func(m *member, shard uint32, queue string) error {
		return func(m *member, shard uint32, queue string) error {
			req := &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{Queues: []string{queue}, Max: batch, TTR: time.Hour}}}
			_, err := m.cluster.Router().Reserve(tr.Context(), shard, req, wait)
			return err
		}
	}
	inFlight := func() uint64 { return s.held(func(c fsm.Counts) uint64 { return c.Reserved }) }
	for what, wait := range map[string]node.Wait{"at once": {}, "polls": {For: time.Second}} {
		s.run(6, 5*time.Second, reserve(wait))
		if held := inFlight(); held < quota || held > quota+(batch-1)*testShards {
			tr.Errorf("%s: %d jobs are in flight, want %d and less than a batch of %d more a shard", what, held, quota, batch)
		}
	}
}

func (tr *trio) quotaOfPuts() {
	const rate, seconds = 60, 20
	s := newTenant(tr, "puts", node.PutRate, rate*1000)
	carried, refused := s.run(12, seconds*time.Second, func(m *member, _ uint32, queue string) error {
		return put(m, queue)
	})
	// A shard may use a second's worth of its rate at once, if it did not use it before.
	if carried > rate*(seconds+testShards+1) || carried < rate*seconds*3/4 || refused == 0 {
		tr.Errorf("%d puts within %d seconds at %d a second; %d were refused", carried, seconds, rate, refused)
	}
}

// TestSoleNodeStartsAtOnce: the only voter of the catalog knows at once that there are no quotas.
func TestSoleNodeStartsAtOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newMember(t, routingtest.NewNetwork(), dir, "a", nil)
		began := time.Now()
		if err := put(a, "t/q"); err != nil || time.Since(began) > 0 {
			t.Errorf("a put after %v: %v", time.Since(began), err)
		}
	})
}
