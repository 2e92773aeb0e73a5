package gossip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
)

// JoinOutcome is the result of calling a join address.
type JoinOutcome int

// The outcomes, from the least to the most informative. If a name stands for several addresses, the
// highest outcome counts.
const (
	// JoinPending: the first call has not ended yet.
	JoinPending JoinOutcome = iota
	// JoinUnresolved: there is no such host, or the name service does not answer.
	JoinUnresolved
	// JoinNoConnection: no connection could be made.
	JoinNoConnection
	// JoinNotGossip: the server there does not speak gossip.
	JoinNotGossip
	// JoinWrongKey: a node is there, and one of the two cannot open what the other sends.
	JoinWrongKey
	// JoinReached: a node is there, or it is this one's own address.
	JoinReached
)

// JoinAttempt is the last finished call of a join address.
type JoinAttempt struct {
	// Addr is the address as the configuration has it.
	Addr    string
	Outcome JoinOutcome
	// Err is the cause; nil for JoinPending and JoinReached.
	Err error
}

// JoinAttempts returns the last call of each join address, in the order of the configuration.
func (g *Gossip) JoinAttempts() []JoinAttempt { return g.joiner.attempts() }

// errUnreached wraps the error of a stream that could not be opened.
var errUnreached = errors.New("no connection")

// outcomeOf maps the error of a call to its outcome.
func outcomeOf(err error) JoinOutcome {
	switch {
	case err == nil:
		return JoinReached
	case errors.Is(err, errUnreached):
		return JoinNoConnection
	case errors.Is(err, errRefused), errors.Is(err, errWrongKey), errors.Is(err, errKeyless):
		return JoinWrongKey
	default:
		return JoinNotGossip
	}
}

// attempts implements Gossip.JoinAttempts.
func (j *joiner) attempts() []JoinAttempt {
	live := j.liveAddrs()
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []JoinAttempt
	for _, target := range j.joinAddrs {
		last := j.lastAttempts[target]
		if addr, err := netip.ParseAddrPort(target); err == nil && live[unmapped(addr)] {
			last = JoinAttempt{Outcome: JoinReached}
		}
		last.Addr = target
		all = append(all, last)
	}
	return all
}

// tryJoin calls the node at an address, unless it is this node or a live member, and stores the
// outcome.
func (j *joiner) tryJoin(ctx context.Context, target string) {
	var last JoinAttempt
	addrs, err := resolve(ctx, j.lookup, target)
	if err != nil {
		j.logger.Debug("gossip: resolving a join address", "addr", target, "error", err)
		last = JoinAttempt{Outcome: JoinUnresolved, Err: err}
	}
	for _, addr := range addrs {
		if ctx.Err() != nil {
			return
		}
		var err error
		if !j.liveAddrs()[addr] {
			err = j.call(addr)
		}
		if err != nil {
			j.logger.Debug("gossip: calling a node", "addr", addr.String(), "error", err)
		}
		if outcome := outcomeOf(err); outcome > last.Outcome {
			last = JoinAttempt{Outcome: outcome, Err: err}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lastAttempts == nil {
		j.lastAttempts = make(map[string]JoinAttempt)
	}
	j.lastAttempts[target] = last
}

// failuresMax bounds the addresses in failures.
const failuresMax = 1024

// failures holds the error of the last stream to each address. The library only returns its text.
type failures struct {
	mu     sync.Mutex
	byAddr map[netip.AddrPort]error
}

// record stores why a stream failed; a nil error says that a new one is open.
func (f *failures) record(to netip.AddrPort, err error) {
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

// explain returns the error of a call with its cause, if that is known.
func (f *failures) explain(to netip.AddrPort, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cause := f.byAddr[to]; cause != nil && err != nil {
		return fmt.Errorf("calling %v: %w", to, cause)
	}
	return err
}
