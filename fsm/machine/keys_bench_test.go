package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// keyedShard returns a shard with so many READY jobs of 100 bytes, spread over keys that may have one
// lease each; without keys if there are none.
func keyedShard(b *testing.B, jobs, keys int) *driver {
	b.Helper()
	d := newDriver()
	d.applyIn4(b, &fsm.Configure{Queue: "orders", Partitions: 1, Version: 1, Settings: fsm.Settings{
		Keys: fsm.KeySettings{Concurrency: uint32(min(keys, 1))},
	}})
	body := make([]byte, 100)
	for n := 0; n < jobs; {
		commands := make([]fsm.Command, 0, costRound)
		for ; len(commands) < costRound && n < jobs; n++ {
			put := &fsm.Put{Queue: "orders", Partitions: 1, Body: body}
			if keys > 0 {
				put.Key = fmt.Sprintf("customer-%d", n%keys)
			}
			commands = append(commands, put)
		}
		d.applyIn4(b, commands...)
	}
	return d
}

func (d *driver) applyIn4(tb testing.TB, commands ...fsm.Command) []fsm.Result {
	request := codec.AppendRequestIn(nil, 4, &fsm.Request{Commands: commands})
	return d.apply(tb, codec.AppendEntryIn(nil, 4, d.now, [][]byte{request}))
}

// BenchmarkKeys is what a reserve and an ack cost a job in processor time, 100 an entry, of a million
// READY jobs: without keys, and with 100,000 keys.
func BenchmarkKeys(b *testing.B) {
	for _, keys := range []int{0, 100_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			d := keyedShard(b, 1_000_000, keys)
			var reserve, ack time.Duration
			b.ResetTimer()
			for n := 0; n < b.N; n += 100 {
				before := cpuTime(b)
				grants := d.applyIn4(b, &fsm.Reserve{Queues: []string{"orders"}, Max: 100})[0].Grants
				between := cpuTime(b)
				acks := make([]fsm.Command, len(grants))
				for i, g := range grants {
					acks[i] = &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}}
				}
				request := codec.AppendRequestIn(nil, 4, &fsm.Request{Commands: acks})
				entry := codec.AppendEntryIn(nil, 4, d.now, [][]byte{request})
				start := cpuTime(b)
				d.apply(b, entry)
				reserve, ack = reserve+between-before, ack+cpuTime(b)-start
			}
			b.ReportMetric(float64(reserve)/float64(b.N), "reserve-cpu-ns")
			b.ReportMetric(float64(ack)/float64(b.N), "ack-cpu-ns")
		})
	}
}

// BenchmarkLargeKey is what a reserve and an ack of one job cost while one key has a million jobs.
func BenchmarkLargeKey(b *testing.B) {
	d := keyedShard(b, 1_000_000, 1)
	b.ResetTimer()
	for range b.N {
		grants := d.applyIn4(b, &fsm.Reserve{Queues: []string{"orders"}, Max: 100})[0].Grants
		if len(grants) != 1 {
			b.Fatalf("%d jobs of a key that may have one lease", len(grants))
		}
		g := grants[0]
		d.applyIn4(b, &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}})
	}
}

// rated configures the queue of a driver.
func (d *driver) rated(b *testing.B, settings fsm.KeySettings) {
	b.Helper()
	d.applyIn4(b, &fsm.Configure{Queue: "orders", Partitions: 1, Version: 1, Settings: fsm.Settings{Keys: settings}})
}

// putKeys puts a job of 100 bytes for each of so many keys.
func (d *driver) putKeys(b *testing.B, from, keys int) {
	b.Helper()
	commands, body := make([]fsm.Command, keys), make([]byte, 100)
	for i := range commands {
		commands[i] = &fsm.Put{Queue: "orders", Partitions: 1, Key: fmt.Sprintf("customer-%d", from+i), Body: body}
	}
	d.applyIn4(b, commands...)
}

// BenchmarkWake is what one Reserve of one job takes in processor time in a shard of which 300,000 keys have
// got a token.
func BenchmarkWake(b *testing.B) {
	const keys = 300_000
	for _, fair := range []bool{false, true} {
		b.Run(fmt.Sprint("fair=", fair), func(b *testing.B) {
			var spent time.Duration
			for range b.N {
				d := newDriver()
				d.rated(b, fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: time.Minute}, Fair: fair})
				for n := 0; n < 2*keys; n += costRound {
					d.putKeys(b, n%keys, costRound)
				}
				d.applyIn4(b, &fsm.Reserve{Queues: []string{"orders"}, Max: keys, TTR: time.Hour})
				d.now = d.now.Add(time.Minute)
				before := cpuTime(b)
				d.applyIn4(b, &fsm.Reserve{Queues: []string{"orders"}, Max: 1, TTR: time.Hour})
				spent += cpuTime(b) - before
			}
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N)/1000, "cpu-ms")
		})
	}
}

// BenchmarkKeyRate is what a job costs in processor time in a queue whose keys have a rate: of 100,000 keys
// each gets two jobs at a time. The first is handed out at once, the second when its token comes.
func BenchmarkKeyRate(b *testing.B) {
	const keys = 100_000
	for _, fair := range []bool{false, true} {
		b.Run(fmt.Sprint("fair=", fair), func(b *testing.B) {
			d := newDriver()
			d.rated(b, fsm.KeySettings{Rate: fsm.KeyRate{Count: 1, Per: time.Minute}, Fair: fair})
			var put, reserve, ack time.Duration
			jobs := 0
			for ; jobs < b.N; jobs += 2 * keys {
				start := cpuTime(b)
				for n := 0; n < 2*keys; n += 100 {
					d.putKeys(b, n%keys, 100)
				}
				put += cpuTime(b) - start
				for range 2 {
					for range keys / 100 {
						before := cpuTime(b)
						grants := d.applyIn4(b, &fsm.Reserve{Queues: []string{"orders"}, Max: 100})[0].Grants
						between := cpuTime(b)
						acks := make([]fsm.Command, len(grants))
						for i, g := range grants {
							acks[i] = &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}}
						}
						if len(acks) != 100 {
							b.Fatalf("%d of 100 jobs were handed out", len(acks))
						}
						d.applyIn4(b, acks...)
						reserve, ack = reserve+between-before, ack+cpuTime(b)-between
					}
					d.now = d.now.Add(time.Minute)
				}
			}
			for name, spent := range map[string]time.Duration{"put-cpu-ns": put, "reserve-cpu-ns": reserve, "ack-cpu-ns": ack} {
				b.ReportMetric(float64(spent)/float64(jobs), name)
			}
		})
	}
}
