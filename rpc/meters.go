package rpc

import (
	"math/bits"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A meter looks back over meterSlots slots of slotLength each.
const (
	slotLength = 10 * time.Second
	meterSlots = 6
	// metersMax bounds the queues that are metered at one time, at about 1 KiB each.
	metersMax = 10_000
	// lateBuckets is the number of lateness buckets: bucket i has what is below 2^i ms, the last has the rest.
	lateBuckets = 32
)

// meters counts what went through this node, by queue, over the last minute. It is soft state: for people who look at a
// queue, and gone with the process.
type meters struct {
	now func() time.Time

	mu     sync.Mutex
	queues map[string]*meter
}

// meter has the slots of one queue, by number of the slot modulo their count.
type meter struct{ slots [meterSlots]slot }

// slot counts what happened in one stretch of time.
type slot struct {
	number               int64
	puts, reserves, acks uint32
	late                 [lateBuckets]uint32
	lateMax              time.Duration
}

// newMeters returns empty meters on a clock.
func newMeters(now func() time.Time) *meters {
	return &meters{now: now, queues: map[string]*meter{}}
}

// put counts jobs put.
func (ms *meters) put(queue string, jobs uint32) { ms.count(queue, func(s *slot) { s.puts += jobs }) }

// ack counts jobs acked.
func (ms *meters) ack(queue string, jobs uint32) { ms.count(queue, func(s *slot) { s.acks += jobs }) }

// grants counts jobs handed out at a shard's time.
func (ms *meters) grants(grants []fsm.Grant, at fsm.Time) {
	for len(grants) > 0 {
		queue, n := grants[0].Queue, 1
		for n < len(grants) && grants[n].Queue == queue {
			n++
		}
		ms.count(queue, func(s *slot) {
			for i := range grants[:n] {
				s.grant(&grants[i], at)
			}
		})
		grants = grants[n:]
	}
}

// grant counts a job handed out. Only first attempts say how late jobs are.
func (s *slot) grant(g *fsm.Grant, at fsm.Time) {
	s.reserves++
	if g.Attempt != 1 {
		return
	}
	late := max(0, at.Sub(g.Due))
	s.late[min(lateBuckets-1, bits.Len64(uint64(late/time.Millisecond)))]++
	s.lateMax = max(s.lateMax, late)
}

// slotNumber returns the number of the present slot.
func (ms *meters) slotNumber() int64 { return ms.now().UnixNano() / int64(slotLength) }

// count changes the present slot of a queue. When there are too many queues, those that were idle for a minute are
// forgotten, and if none was, a new one is not metered.
func (ms *meters) count(queue string, change func(*slot)) {
	number := ms.slotNumber()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.queues[queue]
	if m == nil {
		if len(ms.queues) >= metersMax && !ms.forget(number) {
			return
		}
		m = &meter{}
		ms.queues[queue] = m
	}
	s := &m.slots[number%meterSlots]
	if s.number != number {
		*s = slot{number: number}
	}
	change(s)
}

// forget drops the idle queues and reports whether there were any. ms.mu is held.
func (ms *meters) forget(number int64) bool {
	before := len(ms.queues)
	for queue, m := range ms.queues {
		if m.sum(number) == (slot{}) {
			delete(ms.queues, queue)
		}
	}
	return len(ms.queues) < before
}

// sum adds the slots of the last minute up; its number is not set.
func (m *meter) sum(number int64) slot {
	var sum slot
	for i := range m.slots {
		s := &m.slots[i]
		if s.number <= number-meterSlots || s.number > number {
			continue
		}
		sum.puts += s.puts
		sum.reserves += s.reserves
		sum.acks += s.acks
		sum.lateMax = max(sum.lateMax, s.lateMax)
		for k := range s.late {
			sum.late[k] += s.late[k]
		}
	}
	return sum
}

// minute returns what a queue did in the last minute.
func (ms *meters) minute(queue string) slot {
	number := ms.slotNumber()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m := ms.queues[queue]; m != nil {
		return m.sum(number)
	}
	return slot{}
}

// rates returns a queue's events per second, nil if there were none.
func (ms *meters) rates(queue string) *belfryv1.QueueRates {
	sum := ms.minute(queue)
	if sum == (slot{}) {
		return nil
	}
	seconds := (meterSlots * slotLength).Seconds()
	return &belfryv1.QueueRates{
		PutsPerSecond:     float64(sum.puts) / seconds,
		ReservesPerSecond: float64(sum.reserves) / seconds,
		AcksPerSecond:     float64(sum.acks) / seconds,
	}
}

// lateness returns how late a queue's jobs were handed out, nil if none were.
func (ms *meters) lateness(queue string) *belfryv1.Lateness {
	sum := ms.minute(queue)
	var jobs uint32
	for _, n := range sum.late {
		jobs += n
	}
	if jobs == 0 {
		return nil
	}
	return &belfryv1.Lateness{
		P50: durationpb.New(sum.quantile(jobs, 50)), P99: durationpb.New(sum.quantile(jobs, 99)),
		Max: durationpb.New(sum.lateMax), Jobs: jobs,
	}
}

// quantile returns a bound that percent of the jobs did not exceed: the end of their bucket.
func (s *slot) quantile(jobs uint32, percent uint64) time.Duration {
	rank := (uint64(jobs)*percent + 99) / 100
	var seen uint64
	for i, n := range s.late {
		if seen += uint64(n); seen >= rank {
			return min(s.lateMax, time.Duration(1<<i)*time.Millisecond)
		}
	}
	return s.lateMax
}
