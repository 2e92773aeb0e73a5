package network

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// Service is what a connection or a packet is for.
type Service int

// The services of a node. All stands for each of them.
const (
	All Service = iota
	Client
	Peer
	Gossip
)

func (s Service) String() string {
	switch s {
	case All:
		return "all"
	case Client:
		return "client"
	case Peer:
		return "peer"
	case Gossip:
		return "gossip"
	default:
		return fmt.Sprintf("service %d", int(s))
	}
}

// Port returns the port of a service, the same at every node; 0 for All.
func (s Service) Port() uint16 {
	switch s {
	case Client:
		return 7400
	case Peer:
		return 7401
	case Gossip:
		return 7402
	case All:
		return 0
	default:
		return 0
	}
}

// services returns the services that s stands for.
func (s Service) services() []Service {
	if s == All {
		return []Service{Client, Peer, Gossip}
	}
	return []Service{s}
}

// Rule is the effect of a directed link of a service on its traffic. The zero Rule lets everything
// pass at once.
//
// One side opens a TCP connection, and bytes flow both ways. Reset, HalfOpen and Mute, and
// Duplicate and Reorder of connections, apply to the connections that the link's from opens. All
// other fields apply to the traffic from its from to its to, whichever side opened the connection.
type Rule struct {
	// Drop is silence. In namespaces the kernel drops every packet; else the bytes of streams wait in
	// the proxy, and packets of gossip are lost.
	Drop bool
	// Reset ends connections on both sides by RST, those that are open at once and new ones after they
	// were accepted. Packets of gossip are lost.
	Reset bool
	// HalfOpen ends connections by RST at the side that opened them, while the other side hears
	// nothing until the rule is gone.
	HalfOpen bool
	// Mute accepts new connections and never answers. Connections that are open stay as they are.
	// Packets of gossip are lost.
	Mute bool
	// Delay holds back what passes, and Jitter is added at random, at most that much. A stream stays
	// in order; packets may overtake each other.
	Delay, Jitter time.Duration
	// Loss is the probability of each packet, or piece of a stream of at most 16 KiB, to be lost. A
	// stream loses nothing: it stalls as long as its kernel would need to send again.
	Loss float64
	// Duplicate is the probability of a packet to arrive twice. TCP would never show that inside a
	// stream, so there it is the opening that arrives twice: beside the connection there is a second
	// one, on which nothing is ever sent.
	Duplicate float64
	// Reorder is the probability of a packet to arrive after the next one. TCP would never show that
	// inside a stream, so there it is a new connection that reaches the other side after the next one.
	Reorder float64
	// Corrupt is the probability of a packet, or of a piece of a stream of at most 16 KiB, to have one
	// bit flipped.
	Corrupt float64
	// BytesPerSecond bounds what passes, all connections of the link and service together; 0 for no
	// bound.
	BytesPerSecond int
}

// check returns what is wrong with a rule.
func (r Rule) check() error {
	var problems []error
	ends := 0
	for _, on := range []bool{r.Drop, r.Reset, r.HalfOpen, r.Mute} {
		if on {
			ends++
		}
	}
	if ends > 1 {
		problems = append(problems, errors.New("a link drops, resets, half-opens or is mute: one of them"))
	}
	for _, p := range []float64{r.Loss, r.Duplicate, r.Reorder, r.Corrupt} {
		if math.IsNaN(p) || p < 0 || p > 1 {
			problems = append(problems, fmt.Errorf("the probability %v is not in 0…1", p))
		}
	}
	if r.Delay < 0 || r.Jitter < 0 || r.BytesPerSecond < 0 {
		problems = append(problems, errors.New("a delay, a jitter and a number of bytes are not negative"))
	}
	return errors.Join(problems...)
}

const (
	// resendFirst is how long TCP waits before it sends a lost segment again; each time after that it
	// waits twice as long.
	resendFirst = 200 * time.Millisecond
	// resendsMax bounds the stall of one piece.
	resendsMax = 5
)

// dice makes the random choices of a network.
type dice struct {
	mu     sync.Mutex
	source *rand.Rand
}

func newDice(seed uint64) *dice {
	return &dice{source: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // faults are to be repeatable, not secret
}

// happens reports whether something of probability p does. It uses up randomness only if that is
// open.
func (d *dice) happens(p float64) bool {
	if p <= 0 || p >= 1 {
		return p >= 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.source.Float64() < p
}

// upTo returns a duration of at most limit.
func (d *dice) upTo(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.source.Int64N(int64(limit) + 1))
}

// latency returns how long something that passes now is on its way.
func (d *dice) latency(r Rule) time.Duration { return r.Delay + d.upTo(r.Jitter) }

// stall returns how long TCP would need to get a segment across.
func (d *dice) stall(r Rule) time.Duration {
	var all time.Duration
	wait := resendFirst
	for range resendsMax {
		if !d.happens(r.Loss) {
			break
		}
		all += wait
		wait *= 2
	}
	return all
}

// slowest returns the longest that latency and stall give for a piece of a stream.
func (r Rule) slowest() time.Duration {
	longest := r.Delay + r.Jitter
	if r.Loss > 0 {
		longest += resendFirst * (1<<resendsMax - 1)
	}
	return longest
}

// corrupt flips one bit of b, if the rule says so.
func (d *dice) corrupt(r Rule, b []byte) {
	if len(b) == 0 || !d.happens(r.Corrupt) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	bit := d.source.IntN(8 * len(b))
	b[bit/8] ^= 1 << (bit % 8)
}
