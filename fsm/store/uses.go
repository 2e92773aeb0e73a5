package store

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/digest"
)

// Uses returns what happened to the FIFO job of a lease.
func (s *Store) Uses(l *Lease) (u fsm.Uses) {
	if l.more != 0 {
		u = s.more.at(l.more).uses
	}
	return u
}

// SetUses sets what happened to a job that has a lease.
func (s *Store) SetUses(job uint32, u fsm.Uses) {
	l := s.leases.edit(s.slots.at(job).lease)
	if l.more == 0 && u == (fsm.Uses{}) {
		return
	}
	s.editMore(l).uses = u
	s.trimMore(l)
}

// Uses returns what happened to the FIFO job of a lease.
func (p *Pinned) Uses(l *Lease) (u fsm.Uses) {
	if l.more != 0 {
		u = p.more.at(l.more).uses
	}
	return u
}

// WithSerial returns the held jobs with a serial, whatever their queues.
func (s *Store) WithSerial(serial uint64) (jobs []uint32) {
	s.serials.Find(digest.SerialKey(serial), func(index uint32) bool {
		if s.slots.at(index).Serial == serial {
			jobs = append(jobs, index)
		}
		return false
	})
	return jobs
}
