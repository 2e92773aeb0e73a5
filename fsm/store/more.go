package store

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// more is what few jobs have.
type more struct {
	next  blobRef // a uvarint length and the encoded successor; 0 if there is none
	place uint64  // see fsm.Job
	uses  fsm.Uses
}

// Next returns the encoded successor of the job of a lease, nil if there is none. It aliases the
// store until the next change.
func (s *Store) Next(l *Lease) []byte {
	if l.more == 0 || s.more.at(l.more).next == 0 {
		return nil
	}
	r := codec.PlainReader(s.blobs.at(s.more.at(l.more).next))
	return r.Bytes()
}

// Place returns the place of the job of a lease, 0 if it has none.
func (s *Store) Place(l *Lease) uint64 {
	if l.more == 0 {
		return 0
	}
	return s.more.at(l.more).place
}

// SetNext replaces the successor of a job that has a lease; nil removes it.
func (s *Store) SetNext(job uint32, next *fsm.Successor) {
	l := s.leases.edit(s.slots.at(job).lease)
	if l.more == 0 && next == nil {
		return
	}
	if next != nil { // it may alias the one before
		s.scratch = codec.SetLength(codec.AppendSuccessor(append(s.scratch[:0], 0), next), 0, 1)
	}
	m := s.editMore(l)
	if m.next != 0 {
		s.blobs.release(m.next)
		m.next = 0
	}
	if next != nil {
		m.next = s.blobs.put(s.scratch)
	}
	s.trimMore(l)
}

// SetPlace sets the place of a job that has a lease; 0 removes it.
func (s *Store) SetPlace(job uint32, place uint64) {
	l := s.leases.edit(s.slots.at(job).lease)
	if l.more == 0 && place == 0 {
		return
	}
	s.editMore(l).place = place
	s.trimMore(l)
}

func (s *Store) editMore(l *Lease) *more {
	if l.more == 0 {
		l.more = s.more.alloc()
	}
	return s.more.edit(l.more)
}

// trimMore drops a record that says nothing.
func (s *Store) trimMore(l *Lease) {
	if *s.more.at(l.more) == (more{}) {
		s.more.release(l.more)
		l.more = 0
	}
}

func (s *Store) dropMore(l *Lease) {
	if l.more == 0 {
		return
	}
	if next := s.more.at(l.more).next; next != 0 {
		s.blobs.release(next)
	}
	s.more.release(l.more)
	l.more = 0
}

// Next returns the successor of the job of a lease, nil if there is none. It aliases the pinned
// state.
func (p *Pinned) Next(l *Lease) *fsm.Successor {
	if l.more == 0 || p.more.at(l.more).next == 0 {
		return nil
	}
	r := codec.PlainReader(p.blob(p.more.at(l.more).next))
	return codec.Successor(r.Bytes())
}

// Place returns the place of the job of a lease, 0 if it has none.
func (p *Pinned) Place(l *Lease) uint64 {
	if l.more == 0 {
		return 0
	}
	return p.more.at(l.more).place
}
