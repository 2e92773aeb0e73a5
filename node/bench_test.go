package node

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// benchNode opens a node with the default number of shards and the log on the disk of the temporary directory, synced.
func benchNode(b *testing.B, shards int) *Node {
	b.Helper()
	cfg := testConfig(b, b.TempDir())
	cfg.Shards = shards
	return openNode(b, cfg)
}

// body is the 100 bytes that every benchmark job carries.
func body() []byte { return make([]byte, 100) }

// runCallers has callers issue requests of put commands until b.N commands are through, and reports commands a second.
func runCallers(b *testing.B, n *Node, callers, commands int) {
	b.Helper()
	var left, next atomic.Int64
	left.Store(int64(b.N))
	failed := make(chan error, callers)
	b.ResetTimer()
	start := time.Now()
	for range callers {
		go func() {
			shard := uint32(next.Add(1)) % uint32(n.ShardCount())
			req := &fsm.Request{}
			for range commands {
				req.Commands = append(req.Commands, &fsm.Put{
					Queue: fmt.Sprintf("bench-%d", shard), Partitions: 1, Given: fsm.GivenDelay, Delay: time.Hour, Body: body(),
				})
			}
			var err error
			for err == nil && left.Add(-int64(commands)) > -int64(commands) {
				_, err = n.Do(b.Context(), shard, req)
			}
			failed <- err
		}()
	}
	for range callers {
		if err := <-failed; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "commands/s")
}

// BenchmarkPut has callers put jobs of 100 bytes through one node with synced logs.
func BenchmarkPut(b *testing.B) {
	for _, bc := range []struct{ shards, callers, commands int }{
		{6, 64, 100}, {6, 512, 1}, {1, 64, 100}, {1, 512, 1}, {6, 1, 1},
	} {
		b.Run(fmt.Sprintf("shards=%d/callers=%d/commands=%d", bc.shards, bc.callers, bc.commands), func(b *testing.B) {
			runCallers(b, benchNode(b, bc.shards), bc.callers, bc.commands)
		})
	}
}
