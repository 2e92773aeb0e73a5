package activity

import (
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// minutes are the last minutes of a queue, by their numbers modulo their count.
type minutes struct {
	since fsm.Time // when counting began
	kept  [fsm.MinutesKept]minute
	last  fsm.Time // the number of the last minute
	// late counts how late first attempts of the last minute were, as fsm.Recent does.
	late [fsm.LateBuckets]uint32
}

// minute has the counts of a minute; of the last one p50 and p99 are not set yet.
type minute struct {
	number                       uint32
	puts, grants, acks, failures uint32
	p50, p99                     uint8 // buckets of lateness, one more than their numbers; 0 if no job was late or in time
}

// at returns the minute of a time, which is the last one from now on.
func (m *minutes) at(now fsm.Time) *minute {
	number := now / fsm.Minute
	if number != m.last {
		last := &m.kept[m.last%fsm.MinutesKept]
		last.p50, last.p99 = m.quantile(50), m.quantile(99)
		m.last, m.late = number, [fsm.LateBuckets]uint32{}
	}
	v := &m.kept[number%fsm.MinutesKept]
	if fsm.Time(v.number) != number {
		*v = minute{number: uint32(number)}
	}
	return v
}

func (v *minute) count(before, after *seen) {
	v.puts += uint32(after.put - before.put)
	v.grants += uint32(after.granted - before.granted)
	v.acks += uint32(after.acked - before.acked)
	v.failures += uint32(after.failed - before.failed)
}

// quantile returns the bucket that percent of the first attempts of the last minute did not exceed,
// plus 1; 0 if there was none.
func (m *minutes) quantile(percent uint64) uint8 {
	var sum, seen uint64
	for _, n := range m.late {
		sum += uint64(n)
	}
	if sum == 0 {
		return 0
	}
	for i, n := range m.late {
		if seen += uint64(n); seen >= (sum*percent+99)/100 {
			return uint8(i + 1)
		}
	}
	return fsm.LateBuckets
}

// lateBound is the end of a bucket that quantile returned.
func lateBound(bucket uint8) fsm.Duration {
	if bucket == 0 {
		return 0
	}
	return time.Millisecond << (bucket - 1)
}

// Minutes returns the minutes of the last hour up to now in which a queue was active, in their
// order, and the time from which on they are known. q is nil for a queue that is not there.
func (s *Shard) Minutes(q *Queue, now fsm.Time) (list []fsm.QueueMinute, since fsm.Time) {
	first := max(0, now/fsm.Minute-fsm.MinutesKept+1)
	if q == nil || q.counts == nil {
		if s.swept != 0 {
			return nil, now // it may have had counts, or was not counted
		}
		return nil, max(s.since, first*fsm.Minute)
	}
	from := &q.counts.minutes
	for number := first; number <= now/fsm.Minute; number++ {
		v := from.kept[number%fsm.MinutesKept]
		if fsm.Time(v.number) != number {
			continue
		}
		if number == from.last {
			v.p50, v.p99 = from.quantile(50), from.quantile(99)
		}
		list = append(list, fsm.QueueMinute{
			Start: number * fsm.Minute, Puts: v.puts, Grants: v.grants, Acks: v.acks, Failures: v.failures,
			LateP50: lateBound(v.p50), LateP99: lateBound(v.p99),
		})
	}
	return list, max(from.since, first*fsm.Minute)
}
