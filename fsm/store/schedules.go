package store

import (
	"encoding/binary"
	"iter"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/table"
)

// Schedules are the schedules of all queues. A schedule is known by the index of its record, which is
// never 0.
type Schedules struct {
	store   *Store
	records pages[ScheduleRecord]
	names   table.Table // by queue and name
	// Due are the schedules that fire, by (next, serial).
	Due    Order
	paused int // schedules
}

// ScheduleRecord is what is read of a schedule often; the rest is encoded.
type ScheduleRecord struct {
	Next   fsm.Time
	Serial uint64
	blob   blobRef // a uvarint length and the encoded schedule
	Queue  uint32
	bytes  uint32 // that it adds to those of its queue
	due    bool   // it is in Due
	paused bool   // it counts in Schedules.paused
}

func newSchedules(s *Store) Schedules {
	return Schedules{
		store: s, records: newPages[ScheduleRecord](scheduleShift), names: table.New(), Due: s.orders.by(bySchedule),
	}
}

// Len is the number of schedules.
func (x *Schedules) Len() int { return x.records.count() }

// Record returns the record of a schedule for reading. The pointer is valid until the next change.
func (x *Schedules) Record(index uint32) *ScheduleRecord { return x.records.at(index) }

// Find returns the index of a schedule, 0 if there is none of that name.
func (x *Schedules) Find(queue uint32, name string) uint32 {
	return x.names.Find(x.store.idHash(queue, name), func(index uint32) bool {
		return x.records.at(index).Queue == queue && string(x.Name(index)) == name
	})
}

// Encoded returns a schedule as codec.AppendSchedule encodes it. It aliases the store until the next
// change.
func (x *Schedules) Encoded(index uint32) []byte {
	b := x.store.blobs.at(x.records.at(index).blob)
	n, w := binary.Uvarint(b)
	return b[w : w+int(n)]
}

// Name returns the name of a schedule, which aliases the store until the next change.
func (x *Schedules) Name(index uint32) []byte {
	r := codec.PlainReader(x.Encoded(index))
	return r.Bytes()
}

// Schedule returns a schedule, but for the name of its queue. The body of its job aliases the store
// until the next change.
func (x *Schedules) Schedule(index uint32) fsm.Schedule {
	r := codec.PlainReader(x.Encoded(index))
	return r.Schedule()
}

// Bytes is what a schedule adds to the bytes of its queue; 0 for no schedule.
func (x *Schedules) Bytes(index uint32) uint64 {
	if index == 0 {
		return 0
	}
	return uint64(x.records.at(index).bytes)
}

// countBytes counts a schedule in the bytes of its queue. Whoever changes them closes the digest of the
// queue.
func (x *Schedules) countBytes(index uint32, bytes uint64) {
	if r := x.records.edit(index); bytes != uint64(r.bytes) {
		x.store.queues.edit(r.Queue).Counts.Bytes += bytes - uint64(r.bytes)
		r.bytes = uint32(bytes) //nolint:gosec // as PutBytes, far below 4 GiB
	}
}

// Add stores a schedule of a queue that has none of its name, and returns its index.
func (x *Schedules) Add(queue uint32, v *fsm.Schedule) uint32 {
	index := x.records.alloc()
	*x.records.edit(index) = ScheduleRecord{Serial: v.Serial, Queue: queue}
	x.set(index, v)
	x.names.Insert(x.store.idHash(queue, v.Name), index)
	return index
}

// Replace changes all of a schedule but its name and its serial. v may alias what it was.
func (x *Schedules) Replace(index uint32, v *fsm.Schedule) {
	before := x.records.at(index).blob
	x.set(index, v)
	x.store.blobs.release(before)
}

func (x *Schedules) set(index uint32, v *fsm.Schedule) {
	x.leave(index)
	s := x.store
	s.scratch = codec.SetLength(codec.AppendSchedule(append(s.scratch[:0], 0, 0), v), 0, 2)
	r := x.records.edit(index)
	r.Next, r.blob, r.due = v.Next, s.blobs.put(s.scratch), v.Next != 0 && !v.Paused
	if r.due {
		x.Due.Insert(index)
	}
	if r.paused = v.Paused; v.Paused {
		x.paused++
	}
	x.countBytes(index, fsm.ScheduleBytes(v.Name, &v.Job))
}

// leave takes a schedule that is about to change out of the order and the count that it is in.
func (x *Schedules) leave(index uint32) {
	r := x.records.at(index)
	if r.due {
		x.Due.Remove(index)
	}
	if r.paused {
		x.paused--
	}
}

// Remove removes a schedule.
func (x *Schedules) Remove(index uint32) {
	r := *x.records.at(index)
	x.leave(index)
	x.countBytes(index, 0)
	x.names.Remove(x.store.idHash(r.Queue, string(x.Name(index))), index)
	x.store.blobs.release(r.blob)
	x.records.release(index)
}

// Hash is the part of the digest of a schedule of the named queue.
func (x *Schedules) Hash(index uint32, queue string) uint64 {
	return digest.EncodedSchedule(queue, x.Encoded(index))
}

// Schedules are the encoded schedules, with the index of their queue.
func (p *Pinned) Schedules() iter.Seq2[uint32, []byte] {
	return func(yield func(uint32, []byte) bool) {
		for r := range p.schedules.where(func(r *ScheduleRecord) bool { return r.Serial != 0 }) {
			in := codec.PlainReader(p.blob(r.blob))
			if !yield(r.Queue, in.Bytes()) {
				return
			}
		}
	}
}
