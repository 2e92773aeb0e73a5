package store

import (
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
)

// client is the name of a consumer that holds jobs. A consumer often holds many, so its name is
// stored once.
type client struct {
	name   blobRef // a uvarint length and the name
	sum    uint64  // digest.Client of the name
	hash   uint32  // its key in the table
	leases uint32  // that refer to it
}

// SetClient notes who holds the job of a lease. known is what the call before returned, if that was for
// the same name and nothing has changed since but by this method; else 0. The empty name is nobody's.
func (s *Store) SetClient(l *Lease, name string, known uint32) uint32 {
	s.DropClient(l)
	if name == "" {
		return 0
	}
	if known == 0 {
		known = s.clientOf(name)
	}
	s.clients.edit(known).leases++
	l.client = known
	return known
}

// clientOf returns the index of a name, which it stores if it is new.
func (s *Store) clientOf(name string) uint32 {
	hash := digest.IDKey(s.seed, 0, name)
	index := s.clientNames.Find(hash, func(index uint32) bool { return string(s.clientName(index)) == name })
	if index == 0 {
		index = s.clients.alloc()
		*s.clients.edit(index) = client{
			name: s.blobs.put(codec.AppendText(nil, name)), sum: digest.Client(name), hash: hash,
		}
		s.clientNames.Insert(hash, index)
	}
	return index
}

// DropClient notes that nobody holds the job of a lease.
func (s *Store) DropClient(l *Lease) {
	if l.client == 0 {
		return
	}
	c := s.clients.edit(l.client)
	if c.leases--; c.leases == 0 {
		s.clientNames.Remove(c.hash, l.client)
		s.blobs.release(c.name)
		s.clients.release(l.client)
	}
	l.client = 0
}

func (s *Store) clientName(index uint32) []byte {
	r := codec.PlainReader(s.blobs.at(s.clients.at(index).name))
	return r.Bytes()
}

// Client returns the name of who holds the job of a lease, which aliases the store until the next
// change; empty if nobody has said it.
func (s *Store) Client(l *Lease) []byte {
	if l.client == 0 {
		return nil
	}
	return s.clientName(l.client)
}

// ClientSum returns the digest.Client of who holds the job of a lease.
func (s *Store) ClientSum(l *Lease) uint64 {
	if l.client == 0 {
		return 0
	}
	return s.clients.at(l.client).sum
}

// Client returns the name of who holds the job of a lease. It aliases the pinned state.
func (p *Pinned) Client(l *Lease) []byte {
	if l.client == 0 {
		return nil
	}
	r := codec.PlainReader(p.blob(p.clients.at(l.client).name))
	return r.Bytes()
}
