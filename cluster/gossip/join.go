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
	// joinPauseMin is the pause after the first failed attempt at an address. It doubles up to
	// joinPauseMax, and then stays. The joiner tries an address for as long as the node runs, because
	// the library never tries again by itself.
	joinPauseMin = time.Second
	joinPauseMax = 30 * time.Second
	// joinParallel bounds the addresses that are tried at once, so that an address that drops
	// packets does not delay the others.
	joinParallel = 4
	// lookupTimeout bounds one question to DNS.
	lookupTimeout = 5 * time.Second
)

// lookupFunc returns the addresses of a host, as net.Resolver.LookupNetIP does.
type lookupFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

// joiner looks for nodes that are not members: at the join addresses, and at every address where
// it saw a member. All methods but attempts, keepAddresses and forgetAddress run in one goroutine.
type joiner struct {
	members   *members
	self      netip.AddrPort
	joinAddrs []string // host:port
	lookup    lookupFunc
	// call exchanges states with a node. It ends within the transport's time limit.
	call   func(netip.AddrPort) error
	logger *slog.Logger

	mu           sync.Mutex
	book         *addressBook
	toForget     []netip.AddrPort          // to be removed from book
	lastSeen     map[string]netip.AddrPort // the last known address of each server id
	lastAttempts map[string]JoinAttempt    // by address, join addresses and those in book
}

// retryState is the state of the attempts at one address.
type retryState struct {
	next  time.Time
	pause time.Duration
}

// run looks for nodes until ctx ends.
func (j *joiner) run(ctx context.Context) {
	retries := make(map[string]*retryState)
	timer := time.NewTimer(joinPauseMax)
	defer timer.Stop()
	for {
		// The channel comes first, so that no change between the two reads is missed.
		changed := j.members.change()
		j.recordMembers()
		j.members.reportClashes()
		wait := time.Until(j.round(ctx, retries))
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

// round tries every address whose time has come, and returns when the next one is due.
func (j *joiner) round(ctx context.Context, retries map[string]*retryState) time.Time {
	now := time.Now()
	targets := j.targets()
	for target := range retries {
		if !targets[target] {
			delete(retries, target) // it answers again; its pauses start anew when it falls silent
		}
	}
	j.forgetAttempts(targets)
	slots := make(chan struct{}, joinParallel)
	var running sync.WaitGroup
	for target := range targets {
		p := retries[target]
		if p == nil {
			p = &retryState{pause: joinPauseMin}
			retries[target] = p
		}
		if now.Before(p.next) {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			j.tryJoin(ctx, target)
		})
		// Without jitter, nodes that start together would call together for ever.
		p.next = now.Add(p.pause*3/4 + rand.N(p.pause/2))
		p.pause = min(2*p.pause, joinPauseMax)
	}
	running.Wait()
	next := time.Now().Add(joinPauseMax)
	for _, p := range retries {
		if p.next.Before(next) {
			next = p.next
		}
	}
	return next
}

// forgetAttempts drops the results of addresses that are not called any more.
func (j *joiner) forgetAttempts(targets map[string]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for target := range j.lastAttempts {
		if !targets[target] {
			delete(j.lastAttempts, target)
		}
	}
}

// targets returns the addresses to try: all but this node's own and those of live members.
func (j *joiner) targets() map[string]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	targets := make(map[string]bool)
	for _, target := range j.joinAddrs {
		targets[target] = true
	}
	for _, addr := range j.book.addrs {
		targets[addr.String()] = true
	}
	for addr := range j.liveAddrs() {
		delete(targets, addr.String())
	}
	return targets
}

// liveAddrs returns the addresses that need no call: this node's own and those of live members.
func (j *joiner) liveAddrs() map[netip.AddrPort]bool {
	addrs := map[netip.AddrPort]bool{j.self: true}
	for _, member := range j.members.list() {
		if member.Alive {
			addrs[member.GossipAddr] = true
		}
	}
	return addrs
}

// recordMembers updates the address book from the members' table.
func (j *joiner) recordMembers() {
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := make(map[string]netip.AddrPort)
	for _, member := range j.members.list() {
		if before, ok := j.lastSeen[member.ServerID]; ok && before != member.GossipAddr {
			j.book.remove(before) // it moved
		}
		seen[member.ServerID] = member.GossipAddr
		if member.Alive {
			j.book.add(member.GossipAddr)
		}
	}
	j.lastSeen = seen
	for _, addr := range j.toForget {
		j.book.remove(addr)
	}
	j.toForget = nil
	j.save()
}

// keepAddresses keeps the addresses in a data directory from now on.
func (j *joiner) keepAddresses(dir string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.book.path, j.book.dirty = filepath.Join(dir, addressFile), true
	j.save()
}

// save writes the book if it has changed and has a file. mu is held.
func (j *joiner) save() {
	if err := j.book.save(); err != nil {
		j.logger.Warn("keeping the addresses of other nodes", "error", err)
	}
}

// forgetAddress stops looking for a node at an address.
func (j *joiner) forgetAddress(addr netip.AddrPort) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.toForget = append(j.toForget, addr)
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
