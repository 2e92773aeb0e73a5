package node

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

// ClockReading is what a node says about the time at one moment.
type ClockReading struct {
	// Stamp is what the node takes the time to be, and would stamp entries with if it led a shard whose own time is not ahead of it.
	Stamp fsm.Time
	// Wall is its wall clock.
	Wall fsm.Time
}

// Clocks asks other nodes for the time.
type Clocks interface {
	// ReadClock returns what Node.ReadClock returns on the node with the given server id. It must return soon after ctx has ended.
	ReadClock(ctx context.Context, serverID string) (ClockReading, error)
}

const (
	// clockInterval is the time between two comparisons of a leader with its peers. At the fastest that two clocks can part, 500 ppm each,
	// they part by 5 ms meanwhile.
	clockInterval = 5 * time.Second
	// clockFresh is how long a reading of a peer is used again: all shards that begin to be led at once need one.
	clockFresh = time.Second
	// clockWait bounds the question for a peer's clock, connecting included.
	clockWait = 2 * time.Second
	// clockPause is the time between two comparisons of a leader that may not stamp yet.
	clockPause = 200 * time.Millisecond
	// clockAttempts is how often a peer is asked for the sake of a quick answer.
	clockAttempts = 3
)

// clocks compares this node's clock with its peers', by the method of F. Cristian (Probabilistic clock synchronization, 1989): a remote
// clock is taken to have been read in the middle between question and answer, so that the error is at most half of the time between them.
type clocks struct {
	own    *nodeClock
	bound  time.Duration
	self   string
	source Clocks // nil if there is no way to ask

	mu    sync.Mutex
	peers map[string]*peerClock
	said  map[string]said
}

// said is what a peer's wall clock said when it was last read, for people: how far ahead of this node's it was.
type said struct {
	ahead time.Duration
	at    time.Duration // monotonic
}

// peerClock is what is known of a peer's clock. unlocked is a mutex: it has a value while no goroutine holds it.
type peerClock struct {
	unlocked chan struct{}
	known    bool
	at       time.Duration // monotonic, of the reading
	clock    reckoned
}

// reckoned is a reading less the monotonic time of this node at which it held: in this form readings of several nodes, made one after the
// other, can be compared.
type reckoned struct{ stamp, wall fsm.Time }

// reckon returns the reckoned form of a reading.
func reckon(r ClockReading, mono time.Duration) reckoned {
	return reckoned{r.Stamp - fsm.Time(mono), r.Wall - fsm.Time(mono)}
}

// errClockSlow says that every answer of a peer took so long that it says too little.
var errClockSlow = errors.New("the answers take too long to tell the time by")

// errClockMajority says that too few voters tell the time.
var errClockMajority = errors.New("a majority of the voters does not tell the time")

func newClocks(cfg Config, own *nodeClock, self string) *clocks {
	return &clocks{own: own, bound: cfg.ClockBound, self: self, source: cfg.Clocks, peers: map[string]*peerClock{}, said: map[string]said{}}
}

// peer returns what is known of a peer's clock.
func (k *clocks) peer(serverID string) *peerClock {
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

// read returns a peer's clock, as it was at most clockFresh ago.
func (k *clocks) read(ctx context.Context, serverID string) (reckoned, error) {
	if k.source == nil {
		return reckoned{}, errors.New("there is no way to ask other nodes for the time")
	}
	p := k.peer(serverID)
	select {
	case <-p.unlocked:
	case <-ctx.Done():
		return reckoned{}, context.Cause(ctx)
	}
	defer func() { p.unlocked <- struct{}{} }()
	if p.known && k.own.Monotonic()-p.at < clockFresh {
		return p.clock, nil
	}
	p.known = false
	best := k.bound / 2 // an answer that takes longer may be wrong by a quarter of the bound
	for range clockAttempts {
		asked := k.own.Monotonic()
		reading, err := k.source.ReadClock(ctx, serverID)
		if err != nil {
			return reckoned{}, fmt.Errorf("asking %s for the time: %w", serverID, err)
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
		return reckoned{}, fmt.Errorf("asking %s for the time: %w", serverID, errClockSlow)
	}
	k.note(serverID, p)
	return p.clock, nil
}

// note keeps what a peer's clock said. p is the caller's.
func (k *clocks) note(serverID string, p *peerClock) {
	own := reckon(k.own.read())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said[serverID] = said{ahead: p.clock.wall.Sub(own.wall), at: p.at}
}

// clockShown is for how long what a peer's clock said is shown.
const clockShown = time.Minute

// lately returns by how much the clocks of those peers were ahead that were asked within clockShown.
func (k *clocks) lately() (all []PeerClock) {
	now := k.own.Monotonic()
	k.mu.Lock()
	defer k.mu.Unlock()
	for server, s := range k.said {
		if now-s.at > clockShown {
			delete(k.said, server)
			continue
		}
		all = append(all, PeerClock{Server: server, Ahead: s.ahead})
	}
	slices.SortFunc(all, func(a, b PeerClock) int { return strings.Compare(a.Server, b.Server) })
	return all
}

// compare compares this node's clock with those of the voters of a shard, of which it is one, and anchors it anew if the majority agrees with its wall
// clock. It returns as soon as a majority agrees with it, or when all have answered that do within clockWait; an error means that those are no
// majority.
func (k *clocks) compare(ctx context.Context, voters []string) (comparison, error) {
	ctx, cancel := context.WithTimeout(ctx, clockWait)
	type answer struct {
		server string
		clock  reckoned
		err    error
	}
	answers := make(chan answer, len(voters))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	known := map[string]reckoned{k.self: {}}
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
		return comparison{}, fmt.Errorf("%w: %d of %d: %w", errClockMajority, len(known), len(voters), last)
	}
	c := k.judge(known, len(voters))
	k.heed(&c)
	return c, nil
}

// heed anchors this node's clock anew if a comparison says that it does.
func (k *clocks) heed(c *comparison) {
	if c.follows(k.self) {
		k.own.follow()
	}
}

// judge compares the clocks that are known with this node's as it is now.
func (k *clocks) judge(known map[string]reckoned, voters int) comparison {
	known[k.self] = reckon(k.own.read())
	return judge(known, voters, k.bound)
}

// comparison is what becomes of the clocks of several nodes that are held against one another.
type comparison struct {
	bound time.Duration
	// median is that of the stamps, reckoned.
	median fsm.Time
	// stamps are what each node would stamp, reckoned; followers those that would anchor their clocks at their wall clocks first.
	stamps    map[string]fsm.Time
	followers []string
}

// judge compares the clocks of those voters that are known. A node whose wall clock has left it behind, or fallen behind, by more than half
// the bound stamps by the wall clock if those of most voters are near it; that most of the known ones are would not do, since stamps jump with it.
// Of an even number of clocks the lower median counts: of two nodes that differ, and of which nobody can tell which is right, the one
// that is behind makes jobs late, the other would make them early.
func judge(known map[string]reckoned, voters int, bound time.Duration) comparison {
	c := comparison{bound: bound, stamps: map[string]fsm.Time{}}
	var stamps []fsm.Time
	for server, r := range known {
		stamp := r.stamp
		if r.stamp.Sub(r.wall).Abs() > bound/2 && wallsNear(known, r.wall, bound/2) > voters/2 {
			stamp = r.wall
			c.followers = append(c.followers, server)
		}
		c.stamps[server] = stamp
		stamps = append(stamps, stamp)
	}
	c.median = lowerMedian(stamps)
	return c
}

// wallsNear counts the wall clocks that are no further from a time than that.
func wallsNear(known map[string]reckoned, t fsm.Time, most time.Duration) (n int) {
	for _, r := range known {
		if r.wall.Sub(t).Abs() <= most {
			n++
		}
	}
	return n
}

// lowerMedian returns the median of values, the lower of two. It sorts them.
func lowerMedian(values []fsm.Time) fsm.Time {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// off returns how far ahead of the median a node's stamps would be.
func (c *comparison) off(server string) time.Duration { return c.stamps[server].Sub(c.median) }

// fits reports whether a node's clock is near enough to the median for the node to lead. One that is not known does not fit.
func (c *comparison) fits(server string) bool {
	_, known := c.stamps[server]
	return known && c.off(server).Abs() <= c.bound/2
}

// nearMedian counts the nodes whose clocks are near the median. Of two that differ by far, only the one that is behind is: nothing that cannot be taken
// back follows from that.
func (c *comparison) nearMedian() (n int) {
	for server := range c.stamps {
		if c.fits(server) {
			n++
		}
	}
	return n
}

// agreeing counts the nodes, it included, whose clocks are near enough to that of a node.
func (c *comparison) agreeing(server string) (n int) {
	for _, stamp := range c.stamps {
		if stamp.Sub(c.stamps[server]).Abs() <= c.bound/2 {
			n++
		}
	}
	return n
}

// follows reports whether a node anchors its clock at its wall clock.
func (c *comparison) follows(server string) bool { return slices.Contains(c.followers, server) }
