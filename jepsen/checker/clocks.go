package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/fsm"
)

// stampSlack is what a stamp may be ahead of the true time at which its entry was applied beside
// what the clocks were wrong by: slewing, and reading two clocks one after the other.
const stampSlack = 5 * time.Millisecond

// ahead says by how much shard time may be ahead of true time, at any time of the run. It never
// gets less: what a clock that was ahead has stamped stays, and a leader that was ahead goes back
// by slewing only.
type ahead struct {
	// from is when a step begins, most what is allowed from then on.
	from []time.Duration
	most []time.Duration
}

// newAhead works out what the clocks of a run allow. While a majority of the nodes is within half
// the bound of true time, shard time is ahead by the bound at most, however wrong the others are;
// else by what the clock that is most ahead was ahead by.
func newAhead(run *Run, bound time.Duration) *ahead {
	nodes := map[string]bool{}
	for _, j := range run.Journals {
		nodes[j.Node] = true
	}
	for _, c := range run.Clocks {
		nodes[c.Node] = true
	}
	a := &ahead{from: []time.Duration{0}, most: []time.Duration{stampSlack}}
	changes := slices.Clone(run.Clocks)
	slices.SortFunc(changes, func(x, y Clock) int { return cmp.Compare(x.From, y.From) })
	var most time.Duration
	outside := false
	for _, c := range changes {
		most = max(most, c.Most)
		wrong := map[string]bool{}
		for _, other := range changes {
			if other.From <= c.From && c.From <= other.To && max(other.Most, -other.Least) > bound/2 {
				wrong[other.Node] = true
			}
		}
		outside = outside || 2*(len(nodes)-len(wrong)) <= len(nodes)
		allowed := most
		if !outside {
			allowed = min(most, bound)
		}
		a.from, a.most = append(a.from, c.From), append(a.most, allowed+stampSlack)
	}
	return a
}

// at returns what is allowed at a time since the start of the run.
func (a *ahead) at(t time.Duration) time.Duration {
	i, _ := slices.BinarySearch(a.from, t+1)
	return a.most[max(0, i-1)]
}

// clockBack is how long a node may take to follow its clock when that was set right: it asks the
// others first, and may be cut off from them.
const clockBack = 30 * time.Second

// aheadAlone says by how much what a single node takes the time to be may be ahead of true time.
func (c *check) aheadAlone(at time.Duration) time.Duration {
	most := c.ahead.at(at)
	for _, clock := range c.run.Clocks {
		if clock.From <= at && at <= clock.To+clockBack {
			most = max(most, clock.Most+stampSlack)
		}
	}
	return most
}

// checkTime holds an entry's shard time against the entry before it and against true time.
func (c *check) checkTime(l *shardLog, e *logEntry, before fsm.Time, reset bool) {
	l.found.Look(9)
	if e.Clock < before && !reset {
		l.found.Violated(9, c.since(e.At), "shard %d: time is %d after entry %d, it was %d", l.shard, e.Clock,
			e.Index, before)
	}
	l.found.Look(10)
	if by, most := e.Clock.Sub(e.At), c.ahead.at(c.since(e.At)); by > most {
		l.found.Violated(10, c.since(e.At), "shard %d: time is ahead of true time by %v at entry %d, by %v at most is "+
			"allowed", l.shard, by, e.Index, most)
	}
}
