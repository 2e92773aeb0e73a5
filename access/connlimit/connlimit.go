// Package connlimit bounds the open connections of a port. It does not know the protocol.
package connlimit

import (
	"container/list"
	"net"
	"sync"
)

// A Limiter bounds the connections of one port. Each connection has a slot, and a slot is idle
// until it is pinned. When all slots are in use, a new connection takes the slot of an idle one: of
// the longest idle one of the host that has most idle ones. So an idle connection costs its own
// host, and a host that fills the port closes its own connections.
//
// All methods may be called from any goroutine.
type Limiter struct {
	most int

	mu       sync.Mutex
	inUse    int
	arrivals uint64                // the number given to the last slot that became idle
	hosts    map[string]*list.List // the idle slots by host, longest idle first
}

// New returns a Limiter for at most so many connections.
func New(most int) *Limiter { return &Limiter{most: most, hosts: map[string]*list.List{}} }

// A Slot belongs to one connection. All its methods may be called from any goroutine, also after
// another connection took the slot.
type Slot struct {
	limiter  *Limiter
	conn     net.Conn
	host     string
	since    uint64        // orders idle slots by when they became idle
	queued   *list.Element // in Limiter.hosts; nil while pinned or released
	released bool
}

// Acquire returns an idle slot for conn. evicted reports whether Acquire closed another connection
// for it. If all slots are pinned, Acquire returns nil and does not close conn.
func (l *Limiter) Acquire(conn net.Conn) (s *Slot, evicted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; l.inUse >= l.most; evicted = true {
		victim := l.victim()
		if victim == nil {
			return nil, false
		}
		victim.release()
		_ = victim.conn.Close() // its reader gets the error
	}
	s = &Slot{limiter: l, conn: conn, host: hostOf(conn.RemoteAddr())}
	l.inUse++
	s.enqueue()
	return s, evicted
}

// InUse returns the number of slots in use.
func (l *Limiter) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}

// victim returns the slot that the next connection takes, nil if none is idle. Called with mu held.
func (l *Limiter) victim() (victim *Slot) {
	most := 0
	for _, idle := range l.hosts { // the result does not depend on the order
		first, n := idle.Front().Value.(*Slot), idle.Len()
		if n > most || n == most && first.since < victim.since {
			victim, most = first, n
		}
	}
	return victim
}

// Pin keeps the slot until Unpin or Release. It reports false if another connection took the slot
// before; then the slot's own connection is closed.
func (s *Slot) Pin() bool {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.dequeue()
	return !s.released
}

// Unpin makes the slot idle, from now on. It does nothing after Release.
func (s *Slot) Unpin() {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.dequeue(); !s.released {
		s.enqueue()
	}
}

// Release gives the slot back. A second call does nothing.
func (s *Slot) Release() {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.release()
}

// release is Release. Called with mu held.
func (s *Slot) release() {
	s.dequeue()
	if !s.released {
		s.released = true
		s.limiter.inUse--
	}
}

// enqueue makes the slot the last of its host's idle ones. Called with mu held.
func (s *Slot) enqueue() {
	l := s.limiter
	idle := l.hosts[s.host]
	if idle == nil {
		idle = list.New()
		l.hosts[s.host] = idle
	}
	l.arrivals++
	s.since, s.queued = l.arrivals, idle.PushBack(s)
}

// dequeue removes the slot from its host's idle ones, if it is one of them. Called with mu held.
func (s *Slot) dequeue() {
	if s.queued == nil {
		return
	}
	idle := s.limiter.hosts[s.host]
	idle.Remove(s.queued)
	s.queued = nil
	if idle.Len() == 0 {
		delete(s.limiter.hosts, s.host)
	}
}

// hostOf returns the host of an address, or the whole address if it has no port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
