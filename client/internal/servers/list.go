package servers

import (
	"sync"
	"sync/atomic"
)

// NamedMax is how many servers that other servers named a List remembers.
const NamedMax = 64

// A List has the servers of a cluster. Any of them takes any call. Calls stay with one until a call
// fails there. S is a server, with the zero value for none. Any number of goroutines may use a List.
type List[S comparable] struct {
	urls    []string
	all     []S // by the index in urls
	current atomic.Uint32
	make    func(base string) S

	mu    sync.Mutex
	named map[string]S // by the address that a server named
}

// NewList returns the servers at urls, of which there is at least one. It makes each with newServer,
// and later those that other servers name. newServer returns the zero value for an address that must
// not be used; it does so for none of urls.
func NewList[S comparable](urls []string, newServer func(base string) S) *List[S] {
	l := &List[S]{urls: urls, make: newServer}
	for _, u := range urls {
		l.all = append(l.all, newServer(u))
	}
	return l
}

// Pick returns the server in use and its number for MoveOn.
func (l *List[S]) Pick() (server S, n uint32) {
	n = l.current.Load()
	return l.all[int(n)%len(l.all)], n
}

// MoveOn switches to the server after number n, unless another call already did.
func (l *List[S]) MoveOn(n uint32) { l.current.CompareAndSwap(n, n+1) }

// Named returns the server at an address that a server named, the zero value if the address makes no
// sense here or must not be used. It forgets all those servers when there are NamedMax of them.
func (l *List[S]) Named(address string) (server S) {
	base := namedURL(l.urls[0], address)
	if base == "" {
		return server
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var none S
	if server = l.named[address]; server != none {
		return server
	}
	if l.named == nil || len(l.named) >= NamedMax {
		l.named = map[string]S{}
	}
	server = l.make(base)
	l.named[address] = server
	return server
}
