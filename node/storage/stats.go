package storage

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// LatencyBuckets is the number of buckets of a Latency.
const LatencyBuckets = 20

// Latency is a histogram of durations. Bucket i counts those below 32 µs << i, the last one all
// others.
type Latency struct {
	Count   uint64
	Sum     time.Duration
	Max     time.Duration
	Buckets [LatencyBuckets]uint64
}

// LatencyBound returns the upper bound of bucket i, excluded.
func LatencyBound(i int) time.Duration { return 32 * time.Microsecond << i }

// LogStats are a log's counters since Open.
type LogStats struct {
	FirstIndex, LastIndex uint64
	EntriesAppended       uint64
	BytesAppended         uint64 // data and extensions
	Append                Latency
}

// SnapshotStats describes the newest snapshot, which Open may have found, and has the counters of
// the snapshot store since Open.
type SnapshotStats struct {
	NewestIndex uint64
	NewestBytes int64
	NewestAt    time.Time // when it was durable, or its file last written, if Open found it; zero if unknown
	Written     uint64
	Failed      uint64
	LastWrite   time.Duration // from Create to a durable Close
}

// Stats has the counters of a group since Open.
type Stats struct {
	Log      LogStats
	Snapshot SnapshotStats
}

type latency struct {
	count, sum, max atomic.Uint64
	buckets         [LatencyBuckets]atomic.Uint64
}

// record is called by one writer at a time; load may run beside it.
func (l *latency) record(d time.Duration) {
	l.count.Add(1)
	l.sum.Add(uint64(d))
	if uint64(d) > l.max.Load() {
		l.max.Store(uint64(d))
	}
	l.buckets[min(bits.Len64(uint64(d/(32*time.Microsecond))), LatencyBuckets-1)].Add(1)
}

func (l *latency) load() Latency {
	out := Latency{Count: l.count.Load(), Sum: time.Duration(l.sum.Load()), Max: time.Duration(l.max.Load())}
	for i := range l.buckets {
		out.Buckets[i] = l.buckets[i].Load()
	}
	return out
}
