package gossip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
)

// JoinOutcome is what came of calling a join address.
type JoinOutcome int

// The outcomes, from the one that says least to the one that says most. Of the addresses that a name stands for, the highest counts.
const (
	// JoinPending: the first call has not ended yet.
	JoinPending JoinOutcome = iota
	// JoinUnresolved: there is no such host, or the name service does not answer.
	JoinUnresolved
	// JoinNobody: no connection came about.
	JoinNobody
	// JoinStranger: something is there that does not speak gossip.
	JoinStranger
	// JoinWrongKey: a node is there, and one of the two cannot open what the other sends.
	JoinWrongKey
	// JoinReached: a node is there, or it is this one's own address.
	JoinReached
)

// JoinAttempt is the last call of a join address that ended.
type JoinAttempt struct {
	// Addr is the address as the configuration has it.
	Addr    string
	Outcome JoinOutcome
	// Err is why, nil for JoinPending and JoinReached.
	Err error
}

// JoinAttempts returns what came of calling each join address last, in the order of the configuration.
func (g *Gossip) JoinAttempts() []JoinAttempt { return g.seeker.attempts() }

// errUnreached is beneath the error of a stream that did not come about.
var errUnreached = errors.New("no connection")

// outcomeOf says what the error of a call means.
func outcomeOf(err error) JoinOutcome {
	switch {
	case err == nil:
		return JoinReached
	case errors.Is(err, errUnreached):
		return JoinNobody
	case errors.Is(err, errRefused), errors.Is(err, errWrongKey), errors.Is(err, errKeyless):
		return JoinWrongKey
	default:
		return JoinStranger
	}
}

// attempts is Gossip.JoinAttempts.
func (s *seeker) attempts() []JoinAttempt {
	answering := s.answering()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []JoinAttempt
	for _, target := range s.join {
		last := s.tried[target]
		if addr, err := netip.ParseAddrPort(target); err == nil && answering[unmapped(addr)] {
			last = JoinAttempt{Outcome: JoinReached}
		}
		last.Addr = target
		all = append(all, last)
	}
	return all
}

// try calls whoever is at an address, unless it is this node or a live member, and keeps what came of it.
func (s *seeker) try(ctx context.Context, target string) {
	var last JoinAttempt
	addrs, err := resolve(ctx, s.lookup, target)
	if err != nil {
		s.logger.Debug("gossip: resolving a join address", "addr", target, "error", err)
		last = JoinAttempt{Outcome: JoinUnresolved, Err: err}
	}
	for _, addr := range addrs {
		if ctx.Err() != nil {
			return
		}
		var err error
		if !s.answering()[addr] {
			err = s.call(addr)
		}
		if err != nil {
			s.logger.Debug("gossip: calling a node", "addr", addr.String(), "error", err)
		}
		if outcome := outcomeOf(err); outcome > last.Outcome {
			last = JoinAttempt{Outcome: outcome, Err: err}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried == nil {
		s.tried = make(map[string]JoinAttempt)
	}
	s.tried[target] = last
}

// failuresMax bounds the addresses of which it is remembered why a stream failed.
const failuresMax = 1024

// failures remembers why the last stream to each address failed: the library makes a text of the error.
type failures struct {
	mu     sync.Mutex
	byAddr map[netip.AddrPort]error
}

// note takes why a stream failed, nil if a new one is open.
func (f *failures) note(to netip.AddrPort, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.byAddr, to)
		return
	}
	if f.byAddr == nil || len(f.byAddr) >= failuresMax {
		f.byAddr = make(map[netip.AddrPort]error)
	}
	f.byAddr[to] = err
}

// explain returns err, which a call of an address ended with, with what is known of its cause.
func (f *failures) explain(to netip.AddrPort, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cause := f.byAddr[to]; cause != nil && err != nil {
		return fmt.Errorf("calling %v: %w", to, cause)
	}
	return err
}
