package checker

import (
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/access"
	"github.com/belfrydb/belfry/jepsen/checker/availability"
	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/sample"
	"github.com/belfrydb/belfry/jepsen/checker/wire"
	"github.com/belfrydb/belfry/jepsen/history"
)

// given holds what the run itself saw against the promises: elections, removed nodes, flipped bits,
// and what was measured after the last fault.
func (c *check) given(found *finding.Set) {
	type term struct {
		group string
		term  uint64
	}
	leaders := map[term]string{}
	for _, e := range c.run.Elections {
		found.Look(29)
		t := term{e.Group, e.Term}
		if other, ok := leaders[t]; ok && other != e.Node {
			found.Violated(29, 0, "%s and %s both led %s in term %d", other, e.Node, e.Group, e.Term)
		}
		leaders[t] = e.Node
	}
	c.removals(found)
	if f := c.run.Flips; f.Injected > 0 {
		found.LookMany(32, f.Injected)
		if f.Noticed+f.Unread < f.Injected {
			found.Violated(32, 0, "%d bits were flipped, %d were noticed and %d lie where nothing is read", f.Injected,
				f.Noticed, f.Unread)
		}
	}
	for _, p := range c.run.Probes {
		found.Look(35)
		switch {
		case p.Failure != "":
			found.Violated(35, c.run.Healed+p.Took, "%s: %s", p.Name, p.Failure)
		case p.Took > p.Limit:
			found.Violated(35, c.run.Healed+p.Took, "%s took %v, %v is allowed", p.Name, p.Took, p.Limit)
		}
	}
}

// removedWithin is how soon every node has heard that one was removed. Until then the others may
// answer what it passes on to them.
const removedWithin = 3 * time.Second

// removals checks that no node answered a call that was sent to it when the others had heard that
// it was no member.
func (c *check) removals(found *finding.Set) {
	if len(c.run.Removals) == 0 {
		return
	}
	for _, o := range c.ops {
		for _, r := range c.run.Removals {
			if o.Node != r.Node || o.Invoked <= r.From+removedWithin || r.To != 0 && o.Returned >= r.To {
				continue
			}
			found.Look(31)
			if o.OK() {
				found.Violated(31, o.Returned, "%s was answered by %s, which was removed at %v", wire.Describe(o), r.Node,
					r.From.Round(time.Millisecond))
			}
		}
	}
}

// access holds calls against what they carried: none succeeds, or took effect, that was not allowed
// to, and none that was is turned away.
func (c *check) access(found *finding.Set) {
	if !c.run.Secured {
		return
	}
	g := c.gatekeeper()
	sent := make(map[string][]*history.Op, len(c.ops))
	for _, o := range c.ops {
		g.Judge(o, found)
		if id := wire.RequestIDOf(o); id != "" {
			sent[id] = append(sent[id], o)
		}
	}
	for _, shard := range c.order_ {
		l := c.shards[shard]
		for i := range l.commands {
			if one := &l.commands[i]; one.Effect && one.Request.ID != "" {
				g.JudgeEffect(l.shard, one, sent[wire.BaseOf(one.Request.ID)], found)
			}
		}
	}
}

// gatekeeper returns what is known of tokens.
func (c *check) gatekeeper() *access.Gatekeeper {
	return access.New(&access.Run{Ops: c.ops, Roots: c.run.Roots, Since: c.since, QuietAfter: c.quietAfter,
		WrongBy: c.wrongBy})
}

// wrongBy is by how much the clock of a node may have been wrong by a moment.
func (c *check) wrongBy(node string, at time.Duration) (most time.Duration) {
	for _, clock := range c.run.Clocks {
		if clock.Node == node && clock.From <= at {
			most = max(most, clock.Most, -clock.Least)
		}
	}
	return most
}

// quietAfter returns the first moment by which nothing had been wrong for so long, after another
// moment.
func (c *check) quietAfter(at, quiet time.Duration) time.Duration {
	if c.run.Faults == nil {
		return max(at, c.run.Healed) + quiet
	}
	for moved := true; moved; {
		moved = false
		for _, f := range c.run.Faults {
			if f.From < at+quiet && at < f.To {
				at, moved = f.To, true
			}
		}
	}
	return at + quiet
}

// sample asks for the second opinion.
func (c *check) sample(*finding.Set) { sample.Check(c.ops, c.run.Sample, c.parallel) }

// availability holds what was tried all through the run against what each fault spares.
func (c *check) availability(found *finding.Set) {
	c.available = availability.Check(&availability.Run{Ops: c.ops, Statuses: c.run.History.Statuses(),
		Strikes: c.run.Strikes, Stalled: c.stalled}, found)
}

// stalled is for how long the harness did not get the processor in a span of time.
func (c *check) stalled(from, to time.Duration) (sum time.Duration) {
	for _, s := range c.run.Stalls {
		sum += max(0, min(s.To, to)-max(s.From, from))
	}
	return sum
}
