// Package throng bounds the connections that a port holds of those who have not shown what they want. It knows nothing of what is said over them.
package throng

import (
	"container/list"
	"net"
	"sync"
)

// Throng is the connections of one port. When it is full, a newcomer takes the place of one that waits: of the host that has most of those, the
// one that has waited longest. So silence costs whoever is silent, and not who comes next; and a host that fills the port closes its own connections.
type Throng struct {
	most int

	mu    sync.Mutex
	taken int
	turn  uint64                // of the last that began to wait
	hosts map[string]*list.List // of the places that wait, by host, in the order of their turns
}

// New returns a throng of so many connections at most.
func New(most int) *Throng { return &Throng{most: most, hosts: map[string]*list.List{}} }

// Place is that of one connection. Its methods may be called from any goroutine, also after it was given to another one.
type Place struct {
	throng *Throng
	conn   net.Conn
	host   string
	turn   uint64
	queue  *list.Element // among those of its host that wait; nil if it does not
	gone   bool
}

// Enter returns a place for a connection that waits. evicted reports whether another was closed for it. Without a place, which is so when none of the others
// waits, it returns nil, and the connection is for the caller to close.
func (c *Throng) Enter(conn net.Conn) (p *Place, evicted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; c.taken >= c.most; evicted = true {
		victim := c.victim()
		if victim == nil {
			return nil, false
		}
		victim.leave()
		_ = victim.conn.Close() // whoever reads from it ends
	}
	p = &Place{throng: c, conn: conn, host: hostOf(conn.RemoteAddr())}
	c.taken++
	p.wait()
	return p, evicted
}

// Taken returns how many connections there are.
func (c *Throng) Taken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken
}

// victim returns whose place a newcomer takes; nil if nobody waits. c.mu is held.
func (c *Throng) victim() (victim *Place) {
	most := 0
	for _, waiting := range c.hosts { // in any order: who comes of it does not depend on that
		first, n := waiting.Front().Value.(*Place), waiting.Len()
		if n > most || n == most && first.turn < victim.turn {
			victim, most = first, n
		}
	}
	return victim
}

// Settle keeps the place: nobody takes it until Wait. It reports false if somebody has, and then the connection is closed.
func (p *Place) Settle() bool {
	p.throng.mu.Lock()
	defer p.throng.mu.Unlock()
	p.unqueue()
	return !p.gone
}

// Wait begins to wait again, behind all others.
func (p *Place) Wait() {
	p.throng.mu.Lock()
	defer p.throng.mu.Unlock()
	if p.unqueue(); !p.gone {
		p.wait()
	}
}

// Leave gives the place up. It may be called more than once.
func (p *Place) Leave() {
	p.throng.mu.Lock()
	defer p.throng.mu.Unlock()
	p.leave()
}

// leave is Leave with mu held.
func (p *Place) leave() {
	p.unqueue()
	if !p.gone {
		p.gone = true
		p.throng.taken--
	}
}

// wait has the place wait. mu is held.
func (p *Place) wait() {
	c := p.throng
	waiting := c.hosts[p.host]
	if waiting == nil {
		waiting = list.New()
		c.hosts[p.host] = waiting
	}
	c.turn++
	p.turn, p.queue = c.turn, waiting.PushBack(p)
}

// unqueue has the place wait no more. mu is held.
func (p *Place) unqueue() {
	if p.queue == nil {
		return
	}
	waiting := p.throng.hosts[p.host]
	waiting.Remove(p.queue)
	p.queue = nil
	if waiting.Len() == 0 {
		delete(p.throng.hosts, p.host)
	}
}

// hostOf returns the host of an address, or all of it if it is of another kind.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
