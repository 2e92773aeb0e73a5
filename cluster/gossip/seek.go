package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	// seekAfter is the pause after the first attempt at an address that led nowhere. It doubles up to seekPauseMax, and then stays:
	// an address is tried for as long as the node runs, because the library never tries again by itself.
	seekAfter    = time.Second
	seekPauseMax = 30 * time.Second
	// seekParallel bounds the addresses that are tried at once, so that one that swallows packets does not hold up the rest.
	seekParallel = 4
	// lookupTimeout bounds one question to DNS.
	lookupTimeout = 5 * time.Second
)

// lookupFunc returns the addresses of a host, as net.Resolver.LookupNetIP does.
type lookupFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

// seeker looks for nodes that are not members: at the join addresses, and wherever a member was ever seen. All but join runs in one
// goroutine.
type seeker struct {
	members *members
	self    netip.AddrPort
	join    []string // join addresses, host:port
	lookup  lookupFunc
	// call exchanges states with a node; it ends within the time that the transport allows.
	call   func(netip.AddrPort) error
	logger *slog.Logger

	mu     sync.Mutex
	book   *addressBook
	forget []netip.AddrPort          // asked for since the last look
	seen   map[string]netip.AddrPort // where each server id was at the last look
	tried  map[string]JoinAttempt    // by address; those that are only remembered count as well
}

// A pursuit is how far the attempts at one address have come.
type pursuit struct {
	next  time.Time
	pause time.Duration
}

// run looks for nodes until ctx ends.
func (s *seeker) run(ctx context.Context) {
	pursuits := make(map[string]*pursuit)
	timer := time.NewTimer(seekPauseMax)
	defer timer.Stop()
	for {
		// Asked for before the table is read, so that no change in between is missed.
		changed := s.members.change()
		s.note()
		s.members.clashes()
		wait := time.Until(s.round(ctx, pursuits))
		if wait <= 0 && ctx.Err() == nil {
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-timer.C:
		}
	}
}

// round tries every address whose time has come and returns when the next one is due.
func (s *seeker) round(ctx context.Context, pursuits map[string]*pursuit) time.Time {
	now := time.Now()
	targets := s.targets()
	for target := range pursuits {
		if !targets[target] {
			delete(pursuits, target) // it answers again, and starts anew when it falls silent
		}
	}
	s.forgetTried(targets)
	slots := make(chan struct{}, seekParallel)
	var running sync.WaitGroup
	for target := range targets {
		p := pursuits[target]
		if p == nil {
			p = &pursuit{pause: seekAfter}
			pursuits[target] = p
		}
		if now.Before(p.next) {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			s.try(ctx, target)
		})
		// Jitter keeps the nodes of a cluster that start together from calling together for ever.
		p.next = now.Add(p.pause*3/4 + rand.N(p.pause/2))
		p.pause = min(2*p.pause, seekPauseMax)
	}
	running.Wait()
	next := time.Now().Add(seekPauseMax)
	for _, p := range pursuits {
		if p.next.Before(next) {
			next = p.next
		}
	}
	return next
}

// forgetTried forgets what came of calling addresses that are not called any more.
func (s *seeker) forgetTried(targets map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for target := range s.tried {
		if !targets[target] {
			delete(s.tried, target)
		}
	}
}

// targets returns the addresses to try: all but this node's own and those where a member is alive.
func (s *seeker) targets() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	targets := make(map[string]bool)
	for _, target := range s.join {
		targets[target] = true
	}
	for _, addr := range s.book.addrs {
		targets[addr.String()] = true
	}
	for addr := range s.answering() {
		delete(targets, addr.String())
	}
	return targets
}

// answering returns where nobody needs to be called: this node's address and those of live members.
func (s *seeker) answering() map[netip.AddrPort]bool {
	addrs := map[netip.AddrPort]bool{s.self: true}
	for _, member := range s.members.list() {
		if member.Alive {
			addrs[member.GossipAddr] = true
		}
	}
	return addrs
}

// note writes down where members are.
func (s *seeker) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := make(map[string]netip.AddrPort)
	for _, member := range s.members.list() {
		if before, ok := s.seen[member.ServerID]; ok && before != member.GossipAddr {
			s.book.remove(before) // it moved
		}
		seen[member.ServerID] = member.GossipAddr
		if member.Alive {
			s.book.add(member.GossipAddr)
		}
	}
	s.seen = seen
	for _, addr := range s.forget {
		s.book.remove(addr)
	}
	s.forget = nil
	s.save()
}

// keep keeps the addresses in a data directory.
func (s *seeker) keep(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.path, s.book.dirty = filepath.Join(dir, addressFile), true
	s.save()
}

// save writes what is new in the book, if it is to be kept. mu is held.
func (s *seeker) save() {
	if err := s.book.save(); err != nil {
		s.logger.Warn("keeping the addresses of other nodes", "error", err)
	}
}

// dismiss stops looking for a node at an address.
func (s *seeker) dismiss(addr netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget = append(s.forget, addr)
}

// resolve returns the addresses that host:port stands for.
func resolve(ctx context.Context, lookup lookupFunc, hostPort string) ([]netip.AddrPort, error) {
	if addr, err := netip.ParseAddrPort(hostPort); err == nil {
		return []netip.AddrPort{unmapped(addr)}, nil
	}
	host, text, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("reading the address %q: %w", hostPort, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("reading the port of %q: %w", hostPort, err)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := lookup(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("resolving %q: %w", host, err)
	}
	addrs := make([]netip.AddrPort, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return addrs, nil
}
