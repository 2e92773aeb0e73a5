package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// sharing is a queue of several partitions in which many keys have a job of the same id.
type sharing struct {
	*driver
	keys []string
}

// newSharing returns a shard in which so many keys have a DELAYED job of the id "sync".
func newSharing(b *testing.B, keys int) *sharing {
	b.Helper()
	s := &sharing{newDriver(), make([]string, keys)}
	s.applyIn4(b, &fsm.Open{Queue: "orders", Partition: 1, Partitions: 4})
	puts := make([]fsm.Command, keys)
	for i := range keys {
		s.keys[i] = fmt.Sprintf("customer-%d", i)
		puts[i] = s.put(i)
	}
	for len(puts) > 0 {
		n := min(100, len(puts))
		s.applyIn4(b, puts[:n]...)
		puts = puts[n:]
	}
	return s
}

// put is a put of a key, with the body that the key always has.
func (s *sharing) put(key int) *fsm.Put {
	return &fsm.Put{
		Queue: "orders", Partition: 1, Partitions: 4, ID: "sync", Key: s.keys[key], Again: true,
		Given: fsm.GivenDelay, Delay: time.Hour, Body: []byte("sync"),
	}
}

// BenchmarkSharedID is what one command costs in an entry of its own, or one read, of an id that as
// many keys have as the name says.
func BenchmarkSharedID(b *testing.B) {
	for _, keys := range []int{24, 24_000} {
		s := newSharing(b, keys)
		run := func(name string, f func(n int)) {
			b.Run(fmt.Sprintf("%s/%d", name, keys), func(b *testing.B) {
				for n := range b.N {
					f(n * 7919 % keys)
				}
			})
		}
		run("repeat", func(key int) { s.applyIn4(b, s.put(key)) })
		run("get", func(key int) { s.query(b, &fsm.JobQuery{Queue: "orders", ID: "sync", Key: s.keys[key]}) })
		run("get-no-key", func(int) { s.query(b, &fsm.JobQuery{Queue: "orders", ID: "sync"}) })
		run("cancel+put", func(key int) {
			s.applyIn4(b, &fsm.Cancel{Queue: "orders", ID: "sync", Key: s.keys[key]})
			s.applyIn4(b, s.put(key))
		})
	}
}

func (s *sharing) query(b *testing.B, q *fsm.JobQuery) {
	if r := s.m.Answer(q, s.now); len(r.Jobs) != 1 {
		b.Fatalf("%d jobs", len(r.Jobs))
	}
}

// BenchmarkOwnID is what BenchmarkSharedID is, in processor time, of ids that one job each has,
// without a key, in a queue of as many partitions as the name says.
func BenchmarkOwnID(b *testing.B) {
	for _, partitions := range []uint32{1, 4} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			d := newDriver()
			d.applyIn4(b, &fsm.Open{Queue: "orders", Partitions: partitions})
			commands := make([]fsm.Command, 100)
			for n := range 100_000 {
				commands[n%100] = &fsm.Put{
					Queue: "orders", Partitions: partitions, ID: fmt.Sprint("order-", n), Given: fsm.GivenDelay, Delay: time.Hour,
				}
				if n%100 == 99 {
					d.applyIn4(b, commands...)
				}
			}
			b.ResetTimer()
			before := cpuTime(b)
			for n := 0; n < b.N; n += 50 {
				for i := 0; i < 100; i += 2 {
					id := fmt.Sprint("order-", (n+i)*7919%100_000)
					commands[i] = &fsm.Cancel{Queue: "orders", ID: id}
					commands[i+1] = &fsm.Put{
						Queue: "orders", Partitions: partitions, ID: id, Again: true, Given: fsm.GivenDelay, Delay: time.Hour,
					}
				}
				d.applyIn4(b, commands...)
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cancel+put-cpu-ns")
		})
	}
}
