package machine_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/machine"
)

var (
	pendingJobs = flag.Int("fsm.pending", 1_000_000, "jobs that BenchmarkPending holds")
	pendingSpan = flag.Duration("fsm.span", 0, "over how long their due times are spread; 0 for what each benchmark says")
)

// driver applies entries with growing indexes and times.
type driver struct {
	m     *machine.Machine
	index uint64
	now   fsm.Time
}

func newDriver() *driver {
	return &driver{m: machine.New(fsm.Config{}), now: 1_800_000_000_000_000_000}
}

func (d *driver) apply(tb testing.TB, entry []byte) []fsm.Result {
	d.index++
	results, err := d.m.Apply(d.index, entry)
	if err != nil {
		tb.Fatal(err)
	}
	return results
}

// putEntry encodes n puts of 100 bytes with random delays up to an hour.
func (d *driver) putEntry(rng *rand.Rand, n int) []byte { return d.putEntryWithin(rng, n, time.Hour) }

// putEntryWithin is putEntry with another span of delays.
func (d *driver) putEntryWithin(rng *rand.Rand, n int, span time.Duration) []byte {
	commands := make([]fsm.Command, n)
	for i := range commands {
		body := make([]byte, 100)
		binary.LittleEndian.PutUint64(body, rng.Uint64())
		commands[i] = &fsm.Put{
			Queue: "orders", Partitions: 1, Given: fsm.GivenDelay, Delay: time.Duration(rng.Int64N(int64(span))), Body: body,
		}
	}
	return codec.AppendEntry(nil, d.now, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})})
}

// BenchmarkPut is one put of 100 bytes with a generated id and a random due time, 100 an entry.
func BenchmarkPut(b *testing.B) {
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	entries := make([][]byte, 100)
	for i := range entries {
		entries[i] = d.putEntry(rng, 100)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += 100 {
		d.now += 1000
		d.apply(b, entries[n/100%len(entries)])
	}
}

// BenchmarkLife is the life of a job: put at once, reserved, acked, 100 of each an entry; in format 2,
// and in the latest one by a consumer that has a name.
func BenchmarkLife(b *testing.B) {
	for name, format := range map[string]fsm.Format{"anonymous": 2, "named": fsm.LatestFormat} {
		b.Run(name, func(b *testing.B) { benchmarkLife(b, format) })
	}
}

func benchmarkLife(b *testing.B, format fsm.Format) {
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	puts := d.putEntry(rng, 100)
	entry := func(commands ...fsm.Command) []byte {
		request := codec.AppendRequestIn(nil, format, &fsm.Request{Client: "worker-1@10.0.0.7", Commands: commands})
		return codec.AppendEntryIn(nil, format, d.now, [][]byte{request})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += 100 {
		d.apply(b, puts)
		d.now += fsm.Time(2 * time.Hour)
		grants := d.apply(b, entry(&fsm.Reserve{Queues: []string{"orders"}, Max: 100}))[0].Grants
		acks := make([]fsm.Command, len(grants))
		for i, g := range grants {
			acks[i] = &fsm.Ack{Ref: fsm.Ref{Queue: g.Queue, Serial: g.Serial, Fence: g.Fence}}
		}
		d.apply(b, entry(acks...))
	}
}

// BenchmarkPending fills the machine once and reports what a pending job costs;
// -fsm.pending=10000000 for the figure of record.
func BenchmarkPending(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(25))
	for range b.N {
		d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
		before := heapBytes()
		for filled := 0; filled < *pendingJobs; filled += 1000 {
			d.now += 1_000_000
			d.apply(b, d.putEntryWithin(rng, 1000, cmp.Or(*pendingSpan, time.Hour)))
		}
		runtime.GC()
		cpu := gcSeconds()
		start := time.Now()
		runtime.GC()
		b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "gc-wall-ms")
		b.ReportMetric((gcSeconds()-cpu)*1000, "gc-cpu-ms")
		b.ReportMetric(float64(heapBytes()-before)/float64(*pendingJobs), "B/job")
		runtime.KeepAlive(d)
	}
}

// BenchmarkRestore is what it costs to read a snapshot of as many jobs back, in processor time;
// both flags as for BenchmarkPending.
func BenchmarkRestore(b *testing.B) {
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	for filled := 0; filled < *pendingJobs; filled += 1000 {
		d.apply(b, d.putEntryWithin(rng, 1000, cmp.Or(*pendingSpan, time.Hour)))
	}
	var stream bytes.Buffer
	s := d.m.Snapshot()
	if _, err := s.WriteTo(&stream); err != nil {
		b.Fatal(err)
	}
	d = nil
	runtime.GC()
	before := cpuTime(b)
	b.ResetTimer()
	for range b.N {
		if _, err := machine.Restore(fsm.Config{}, bytes.NewReader(stream.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/float64(*pendingJobs), "cpu-ns/job")
}

func heapBytes() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func gcSeconds() float64 {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}

// BenchmarkReading is what it costs to hand 100 jobs of 100 bytes to another node: to read them, to
// encode them, and to read the encoding there.
func BenchmarkReading(b *testing.B) {
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	d.apply(b, d.putEntry(rng, 100))
	d.now += fsm.Time(2 * time.Hour)
	reserve := codec.AppendRequest(nil, &fsm.Request{Commands: []fsm.Command{&fsm.Reserve{
		Queues: []string{"orders"}, Max: 100,
	}}})
	held := &fsm.HeldQuery{Grants: d.apply(b, codec.AppendEntry(nil, d.now, [][]byte{reserve}))[0].Grants}
	reading := d.m.Answer(held, d.now)
	encoded := codec.AppendReading(nil, &reading)
	if len(reading.Jobs) != 100 {
		b.Fatalf("%d jobs are held", len(reading.Jobs))
	}
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"answer", func() { d.m.Answer(held, d.now) }},
		{"append", func() { encoded = codec.AppendReading(encoded[:0], &reading) }},
		{"parse", func() {
			if _, err := codec.ParseReading(encoded); err != nil {
				b.Fatal(err)
			}
		}},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step.run()
			}
			b.ReportMetric(float64(len(encoded))/100, "bytes/job")
		})
	}
}

// BenchmarkQueues is what it costs to read 1,000 queues for a listing or for metrics, with
// -fsm.pending jobs in them whose due times are spread over 30 days, or -fsm.span.
func BenchmarkQueues(b *testing.B) {
	const queues = 1000
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	for filled := 0; filled < *pendingJobs; filled += queues {
		commands := make([]fsm.Command, queues)
		for i := range commands {
			delay := time.Duration(rng.Int64N(int64(cmp.Or(*pendingSpan, 30*24*time.Hour))))
			commands[i] = &fsm.Put{Queue: fmt.Sprint("orders", i), Partitions: 1, Given: fsm.GivenDelay, Delay: delay}
		}
		d.apply(b, codec.AppendEntry(nil, d.now, [][]byte{codec.AppendRequest(nil, &fsm.Request{Commands: commands})}))
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := d.m.Answer(&fsm.QueuesQuery{Max: queues}, d.now); len(r.Queues) != queues {
			b.Fatalf("%d queues", len(r.Queues))
		}
	}
}

// BenchmarkSearch looks at all of 100,000 jobs of 100 bytes, as the edge does, and finds none.
func BenchmarkSearch(b *testing.B) {
	d, rng := newDriver(), rand.New(rand.NewPCG(1, 2))
	for range 100 {
		d.apply(b, d.putEntry(rng, 1000))
	}
	b.ReportAllocs()
	for b.Loop() {
		query := &fsm.SearchQuery{
			ListQuery: fsm.ListQuery{Queue: "orders", State: fsm.Delayed, Max: 100},
			Match:     fsm.Match{Text: "what no body has"}, Scan: 1024,
		}
		for {
			r := d.m.Answer(query, d.now)
			if query.After = r.Last; !r.More {
				break
			}
		}
	}
}
