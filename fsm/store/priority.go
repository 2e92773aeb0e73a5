package store

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// A priority of a byte is in the slot. One that takes more is in the payload, as is the time of the put,
// which a FIFO job has in its key: few jobs have them, and the others take no memory for them.

// setOptions notes what the slot has of the options of a job.
func (s *Slot) setOptions(v *fsm.Job) {
	s.flags &^= slotIsFIFO | slotIsWide
	s.priority = int8(codec.Narrow(v.Priority)) //nolint:gosec // the byte is that of an int8
	if v.FIFO {
		s.flags |= slotIsFIFO
	}
	if fsm.IsWide(v.Priority) {
		s.flags |= slotIsWide
	}
}

// place returns the rank of a READY job, and the time by which it has its place among the jobs of
// that rank.
func (s *Store) place(j *Slot) (rank uint32, at fsm.Time) {
	if j.flags&(slotIsFIFO|slotIsWide) == 0 {
		return uint32(int(j.priority) - fsm.PriorityMin), j.Due //nolint:gosec // it is not negative
	}
	b := s.Payload(j)
	rank, at = fsm.RankOf(b.priority(j)), j.Due
	if j.IsFIFO() {
		at = b.Created()
	}
	return rank, at
}

// Priority returns the priority of a job.
func (s *Store) Priority(j *Slot) int64 { return s.Payload(j).priority(j) }

// Priority returns the priority of a job.
func (p *Pinned) Priority(j *Slot) int64 { return p.Payload(j).priority(j) }

// priority returns the priority of the job that the payload belongs to.
func (b Payload) priority(j *Slot) int64 {
	if j.flags&slotIsWide == 0 {
		return int64(j.priority)
	}
	return fsm.PriorityOf(b.rank())
}
