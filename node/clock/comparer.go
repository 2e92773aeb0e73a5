package clock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// Reading is the time of one node at one moment.
type Reading struct {
	// Stamp is the node's own time. It would be the timestamp of an entry, unless the time of the
	// shard is ahead.
	Stamp fsm.Time
	// Wall is its wall clock.
	Wall fsm.Time
}

// Peers asks other nodes for the time.
type Peers interface {
	// ReadClock returns the result of node.Node.ReadClock on the node with the given server id. It
	// must return soon after ctx has ended.
	ReadClock(ctx context.Context, serverID string) (Reading, error)
}

const (
	// CompareInterval is the time between two comparisons of a leader with its peers. Two clocks that
	// drift by 500 ppm each part by 5 ms meanwhile.
	CompareInterval = 5 * time.Second
	// Fresh is how long a reading of a peer is reused: shards that get their leader at the same time
	// all need one.
	Fresh = time.Second
	// PeerTimeout bounds the question for a peer's clock, connecting included.
	PeerTimeout = 2 * time.Second
	// ComparePause is the time between two comparisons of a leader that may not stamp entries yet.
	ComparePause = 200 * time.Millisecond
	// clockAttempts bounds how often a peer is asked until it answers fast enough.
	clockAttempts = 3
)

// PeerOffset is how far another node's wall clock was ahead of this node's when it was last read.
// The error is at most a quarter of the clock bound.
type PeerOffset struct {
	Server string
	Ahead  time.Duration
}

// Comparer compares this node's clock with those of its peers by the method of F. Cristian
// (Probabilistic clock synchronization, 1989): it assumes that a peer read its clock halfway
// between question and answer. The error is at most half of the time between the two.
type Comparer struct {
	own    *Node
	bound  time.Duration
	self   string
	source Peers // nil if there is no way to ask

	mu    sync.Mutex
	peers map[string]*peerClock
	said  map[string]said
}

// said is how far a peer's wall clock was ahead of this node's when it was last read. It is shown
// to operators.
type said struct {
	ahead time.Duration
	at    time.Duration // monotonic
}

// peerClock is what is known of a peer's clock. unlocked is a mutex: it has a value while no
// goroutine holds it.
type peerClock struct {
	unlocked chan struct{}
	known    bool
	at       time.Duration // monotonic, of the reading
	clock    Reckoned
}

// Reckoned is a reading minus the monotonic time of this node at the reading. Readings of several
// nodes, made one after the other, can be compared in this form.
type Reckoned struct{ Stamp, Wall fsm.Time }

// reckon returns the reckoned form of a reading.
func reckon(r Reading, mono time.Duration) Reckoned {
	return Reckoned{r.Stamp - fsm.Time(mono), r.Wall - fsm.Time(mono)}
}

// errClockSlow says that every answer of a peer took too long to be exact enough.
var errClockSlow = errors.New("the answers take too long to tell the time by")

// ErrNoMajority says that too few voters answered with their time.
var ErrNoMajority = errors.New("a majority of the voters does not tell the time")

// NewComparer returns the comparer of a node with the server id self. source may be nil; then no
// peer can be asked.
func NewComparer(self string, own *Node, bound time.Duration, source Peers) *Comparer {
	return &Comparer{
		own: own, bound: bound, self: self, source: source, peers: map[string]*peerClock{}, said: map[string]said{},
	}
}

// peer returns what is known of a peer's clock.
func (k *Comparer) peer(serverID string) *peerClock {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.peers[serverID]
	if p == nil {
		p = &peerClock{unlocked: make(chan struct{}, 1)}
		p.unlocked <- struct{}{}
		k.peers[serverID] = p
	}
	return p
}

// read returns a peer's clock, read at most Fresh ago.
func (k *Comparer) read(ctx context.Context, serverID string) (Reckoned, error) {
	if k.source == nil {
		return Reckoned{}, errors.New("there is no way to ask other nodes for the time")
	}
	p := k.peer(serverID)
	select {
	case <-p.unlocked:
	case <-ctx.Done():
		return Reckoned{}, context.Cause(ctx)
	}
	defer func() { p.unlocked <- struct{}{} }()
	if p.known && k.own.Monotonic()-p.at < Fresh {
		return p.clock, nil
	}
	p.known = false
	best := k.bound / 2 // an answer that takes longer may be wrong by a quarter of the bound
	for range clockAttempts {
		asked := k.own.Monotonic()
		reading, err := k.source.ReadClock(ctx, serverID)
		if err != nil {
			return Reckoned{}, fmt.Errorf("asking %s for the time: %w", serverID, err)
		}
		answered := k.own.Monotonic()
		if took := answered - asked; took <= best {
			best, p.known, p.at, p.clock = took, true, answered, reckon(reading, asked+took/2)
		}
		if best <= k.bound/8 {
			break
		}
	}
	if !p.known {
		return Reckoned{}, fmt.Errorf("asking %s for the time: %w", serverID, errClockSlow)
	}
	k.note(serverID, p)
	return p.clock, nil
}

// note records how far a peer's clock is ahead. The caller holds p.
func (k *Comparer) note(serverID string, p *peerClock) {
	own := reckon(k.own.Read())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said[serverID] = said{ahead: p.clock.Wall.Sub(own.Wall), at: p.at}
}

// clockShown is how long the last reading of a peer's clock is shown.
const clockShown = time.Minute

// Lately returns how far the clocks of the peers were ahead that were read within clockShown.
func (k *Comparer) Lately() (all []PeerOffset) {
	now := k.own.Monotonic()
	k.mu.Lock()
	defer k.mu.Unlock()
	for server, s := range k.said {
		if now-s.at > clockShown {
			delete(k.said, server)
			continue
		}
		all = append(all, PeerOffset{Server: server, Ahead: s.ahead})
	}
	slices.SortFunc(all, func(a, b PeerOffset) int { return strings.Compare(a.Server, b.Server) })
	return all
}

// Compare compares this node's clock with those of the voters of a shard, including this node. If a
// majority agrees with this node's wall clock, it anchors the clock anew. Compare returns as soon
// as a majority agrees with this node, at the latest after PeerTimeout. An error means that no
// majority answered.
func (k *Comparer) Compare(ctx context.Context, voters []string) (Comparison, error) {
	ctx, cancel := context.WithTimeout(ctx, PeerTimeout)
	type answer struct {
		server string
		clock  Reckoned
		err    error
	}
	answers := make(chan answer, len(voters))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	known := map[string]Reckoned{k.self: {}}
	for _, server := range voters {
		if server != k.self {
			asking.Go(func() {
				clock, err := k.read(ctx, server)
				answers <- answer{server, clock, err}
			})
		}
	}
	var last error
	for range len(voters) - 1 {
		a := <-answers
		if a.err != nil {
			last = a.err
			continue
		}
		known[a.server] = a.clock
		if c := k.judge(known, len(voters)); c.agreeing(k.self) > len(voters)/2 {
			k.heed(&c)
			return c, nil
		}
	}
	if len(known) <= len(voters)/2 {
		return Comparison{}, fmt.Errorf("%w: %d of %d: %w", ErrNoMajority, len(known), len(voters), last)
	}
	c := k.judge(known, len(voters))
	k.heed(&c)
	return c, nil
}

// heed anchors this node's clock anew if the comparison says so.
func (k *Comparer) heed(c *Comparison) {
	if c.Follows(k.self) {
		k.own.follow()
	}
}

// judge compares the known clocks with this node's present one.
func (k *Comparer) judge(known map[string]Reckoned, voters int) Comparison {
	known[k.self] = reckon(k.own.Read())
	return Judge(known, voters, k.bound)
}

// Comparison is the result of a comparison of several clocks.
type Comparison struct {
	bound time.Duration
	// Median is the reckoned median of the stamps.
	Median fsm.Time
	// stamps are the reckoned timestamps that each node would give; followers are the nodes that would
	// anchor their clocks at their wall clocks first.
	stamps    map[string]fsm.Time
	followers []string
}

// Judge compares the known clocks of voters. A node whose own clock is more than half the bound
// away from its wall clock stamps by the wall clock if the wall clocks of most voters are near it.
// A majority of the known clocks is not enough, because the timestamps jump. Of an even number of
// clocks, the lower median counts: if two nodes differ and it is unknown which one is right, the
// clock that is behind makes jobs late, and the other would make them early.
func Judge(known map[string]Reckoned, voters int, bound time.Duration) Comparison {
	c := Comparison{bound: bound, stamps: map[string]fsm.Time{}}
	var stamps []fsm.Time
	for server, r := range known {
		stamp := r.Stamp
		if r.Stamp.Sub(r.Wall).Abs() > bound/2 && wallsNear(known, r.Wall, bound/2) > voters/2 {
			stamp = r.Wall
			c.followers = append(c.followers, server)
		}
		c.stamps[server] = stamp
		stamps = append(stamps, stamp)
	}
	c.Median = lowerMedian(stamps)
	return c
}

// wallsNear counts the wall clocks that are at most that far from a time.
func wallsNear(known map[string]Reckoned, t fsm.Time, most time.Duration) (n int) {
	for _, r := range known {
		if r.Wall.Sub(t).Abs() <= most {
			n++
		}
	}
	return n
}

// lowerMedian returns the median of values, the lower one of two. It sorts values.
func lowerMedian(values []fsm.Time) fsm.Time {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// Off returns how far a node's timestamps would be ahead of the median.
func (c *Comparison) Off(server string) time.Duration { return c.stamps[server].Sub(c.Median) }

// Fits reports whether a node's clock is near enough to the median for the node to lead. An unknown
// clock does not fit.
func (c *Comparison) Fits(server string) bool {
	_, known := c.stamps[server]
	return known && c.Off(server).Abs() <= c.bound/2
}

// NearMedian counts the nodes whose clocks are near the median. Of two clocks that differ by far,
// only the one that is behind is near it: a decision by that clock can be undone.
func (c *Comparison) NearMedian() (n int) {
	for server := range c.stamps {
		if c.Fits(server) {
			n++
		}
	}
	return n
}

// agreeing counts the nodes whose clocks are near enough to that of a node, including that node.
func (c *Comparison) agreeing(server string) (n int) {
	for _, stamp := range c.stamps {
		if stamp.Sub(c.stamps[server]).Abs() <= c.bound/2 {
			n++
		}
	}
	return n
}

// Follows reports whether a node anchors its clock at its wall clock.
func (c *Comparison) Follows(server string) bool { return slices.Contains(c.followers, server) }
