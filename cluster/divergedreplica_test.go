package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/belfrydb/belfry/cluster/routing/routingtest"
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/node"
)

// TestReplicaThatDiffers has one node apply entries otherwise than the others, as different
// software might: its replicas are set aside, those that lead included, and built anew: once by the
// same process, in vain, and then by one that runs the right software.
func TestReplicaThatDiffers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		network := routingtest.NewNetwork()
		a := newMember(t, network, dir, "a", nil)
		b := newMember(t, network, dir, "b", a)
		log := messages{slog.DiscardHandler, &sync.Mutex{}, map[string]int{}}
		odd := &member{
			t: t, name: "odd", dir: filepath.Join(dir, "odd"), network: network, machine: fsm.Config{QueuesMax: 1},
			logger: slog.New(log),
		}
		odd.start(a)
		t.Cleanup(odd.stop)
		all := []*member{a, b, odd}
		await(t, "an even cluster", func() bool { return settled(a.cluster, 3, all...) })
		// of two queues a shard the third node takes one
		for made, i := map[uint32]int{}, 0; len(made) < testShards || slices.Min(slices.Collect(maps.Values(made))) < 2; i++ {
			queue := fmt.Sprintf("q%d", i)
			await(t, "a queue", func() bool { return openQueue(a, queue) == nil })
			made[node.ShardOf(queue, 0, testShards)]++
		}
		await(t, "the replicas to be set aside", func() bool { return log.count("the replica is set aside") == 2*testShards })
		await(t, "the other replicas to go on alone", func() bool {
			return len(odd.node.Status().Quarantined) == testShards && settled(a.cluster, 2, a, b)
		})
		odd.stop()
		odd.machine = fsm.Config{}
		odd.start(nil)
		await(t, "the replicas to be built anew", func() bool {
			return settled(a.cluster, 3, all...) && len(odd.node.Status().Quarantined) == 0 && alike(all)
		})
	})
}

// openQueue makes a queue as an admin does: a put that its leader's machine would not carry out
// would not be logged.
func openQueue(m *member, queue string) error {
	reply, err := m.cluster.Router().Do(m.t.Context(), node.ShardOf(queue, 0, testShards),
		&fsm.Request{Commands: []fsm.Command{&fsm.Open{
			Queue: queue, Partitions: 1,
		}}})
	if err != nil {
		return err
	}
	if code := reply.Results[0].Code; code != fsm.OK {
		return fmt.Errorf("code %d", code)
	}
	return nil
}

// alike reports whether all nodes have the same state of all shards.
func alike(all []*member) bool {
	for shard := range testShards {
		want := all[0].node.Status().Shards[shard]
		for _, m := range all[1:] {
			here := m.node.Status().Shards
			if got := here[shard]; got.DigestIndex != want.DigestIndex || got.Digest != want.Digest {
				return false
			}
		}
	}
	return true
}

// messages counts the records of a log by their message.
type messages struct {
	slog.Handler
	mu   *sync.Mutex
	seen map[string]int
}

// Handle implements slog.Handler.
func (m messages) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[r.Message]++
	return nil
}

// Enabled implements slog.Handler.
func (m messages) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (m messages) WithAttrs([]slog.Attr) slog.Handler { return m }

func (m messages) count(message string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[message]
}
