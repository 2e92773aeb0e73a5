package store

import (
	"encoding/binary"

	"github.com/belfrydb/belfry/fsm/codec"
)

// Note is what a job remembers of its work in words. It is a blob: each part with its length.
type Note struct {
	LastError []byte
	// Attempts are encoded, see codec.AppendAttempts.
	Attempts []byte
}

// Note returns what a lease notes. It aliases the store until the next change.
func (s *Store) Note(l *Lease) Note {
	if l.note == 0 {
		return Note{}
	}
	return readNote(s.blobs.at(l.note))
}

// Note returns what a lease notes. It aliases the pinned state.
func (p *Pinned) Note(l *Lease) Note {
	if l.note == 0 {
		return Note{}
	}
	return readNote(p.blob(l.note))
}

func readNote(b []byte) Note {
	r := codec.PlainReader(b)
	return Note{LastError: r.Bytes(), Attempts: r.Bytes()}
}

// SetNote replaces the note of a job that has a lease. The new one may alias the one before.
func (s *Store) SetNote(job uint32, n *Note) {
	s.scratch = s.scratch[:0]
	for _, part := range [...][]byte{n.LastError, n.Attempts} {
		s.scratch = append(binary.AppendUvarint(s.scratch, uint64(len(part))), part...)
	}
	l := s.leases.edit(s.slots.at(job).lease)
	s.dropNote(l)
	if len(n.LastError)+len(n.Attempts) > 0 {
		l.note = s.blobs.put(s.scratch)
	}
}

func (s *Store) dropNote(l *Lease) {
	if l.note != 0 {
		s.blobs.release(l.note)
		l.note = 0
	}
}
