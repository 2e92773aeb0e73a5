package checker

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

const (
	// givenBackWithin is how soon what is free of a lowered quota has been given back, with nothing
	// wrong.
	givenBackWithin = 3 * time.Second
	// lateEntry is how much later than its call a change of a quota with an unknown outcome may be
	// logged.
	lateEntry = 15 * time.Second
)

// limit is one of the limits of a namespace that are amounts. How many puts a second are let in is
// no amount: it is judged by each leader anew.
type limit uint8

const (
	jobsLimit limit = iota
	bytesLimit
	leasesLimit
	limits
)

// String returns the limit in words.
func (l limit) String() string { return [...]string{"jobs", "bytes", "jobs in flight"}[l] }

// amounts are one amount for each limit.
type amounts [limits]uint64

// usage is what the queues of a namespace hold in one shard from an entry on.
type usage struct {
	entry *logEntry
	shard uint32
	amounts
}

// meter follows what the namespaces with a quota hold in one shard.
type meter struct {
	// now is what each holds, most the most that one request asked for.
	now, most map[string]amounts
	changes   map[string][]usage
}

// limitedSpaces returns the namespaces for which a caller with the right to do so has set a quota.
func (c *check) limitedSpaces() map[string]bool {
	all := map[string]bool{}
	for _, o := range c.limitations() {
		all[o.Request.(*belfryv1.SetNamespaceRequest).GetName()] = true //nolint:forcetypeassert // that is what they are
	}
	return all
}

// limitations returns the calls that may have set a quota.
func (c *check) limitations() (sets []*history.Op) {
	g := c.gatekeeper()
	for _, o := range c.ops {
		if _, ok := o.Request.(*belfryv1.SetNamespaceRequest); !ok ||
			wire.OutcomeOf(o) == belfryv1.Outcome_OUTCOME_NOT_APPLIED {
			continue
		}
		if !c.run.Secured || g.MayHave(o) {
			sets = append(sets, o)
		}
	}
	return sets
}

// measure notes what an entry has made of the namespaces with a quota.
func (l *shardLog) measure(spaces map[string]bool, m *machine.Machine, e *logEntry) {
	if len(spaces) == 0 {
		return
	}
	if l.meter.now == nil {
		l.meter = meter{map[string]amounts{}, map[string]amounts{}, map[string][]usage{}}
	}
	touched := map[string]amounts{}
	for i := range e.Commands {
		one := &e.Commands[i]
		if i > 0 && one.Request != e.Commands[i-1].Request {
			l.meter.asked(touched)
		}
		for space, a := range asked(one.Command, spaces) {
			sum := touched[space]
			for k := range sum {
				sum[k] += a[k]
			}
			touched[space] = sum
		}
	}
	l.meter.asked(touched)
	for space := range spaces {
		u := m.UsageOf(space)
		if now := (amounts{u.Jobs, u.Bytes, u.InFlight}); now != l.meter.now[space] {
			l.meter.now[space] = now
			l.meter.changes[space] = append(l.meter.changes[space], usage{e, l.shard, now})
		}
	}
}

// asked notes what one request asked for, and forgets it.
func (m *meter) asked(by map[string]amounts) {
	for space, a := range by {
		most := m.most[space]
		for k := range most {
			most[k] = max(most[k], a[k])
		}
		m.most[space] = most
	}
	clear(by)
}

// asked returns what a command asks for of the namespaces with a quota.
func asked(command fsm.Command, spaces map[string]bool) map[string]amounts {
	switch k := command.(type) {
	case *fsm.Put:
		if space := fsm.NamespaceOf(k.Queue); spaces[space] {
			return map[string]amounts{space: {jobsLimit: 1, bytesLimit: fsm.PutBytes(k)}}
		}
	case *fsm.PutSchedule:
		if space := fsm.NamespaceOf(k.Queue); spaces[space] {
			return map[string]amounts{space: {bytesLimit: fsm.ScheduleBytes(k.Name, &k.Job)}}
		}
	case *fsm.Reserve:
		all := map[string]amounts{}
		for _, q := range k.Queues {
			if space := fsm.NamespaceOf(q); spaces[space] {
				all[space] = amounts{leasesLimit: uint64(max(1, k.Max))}
			}
		}
		return all
	}
	return nil
}

// quotaSpan is a quota while it may be in force.
type quotaSpan struct {
	from, to time.Duration
	amounts
}

// quotas holds what namespaces had over all shards, at any moment, against their quotas.
func (c *check) quotas(found *finding.Set) {
	for space := range c.limited {
		var all []usage
		slack := amounts{}
		for _, shard := range c.order_ {
			m := &c.shards[shard].meter
			all = append(all, m.changes[space]...)
			for k, most := range m.most[space] {
				slack[k] += max(most, 1) - 1
			}
		}
		slices.SortStableFunc(all, func(a, b usage) int { return cmp.Compare(a.entry.At, b.entry.At) })
		spans := c.quotaSpans(space)
		for l := range limits {
			c.judgeQuota(space, l, all, spans, slack[l], found)
		}
	}
}

// quotaSpans returns when which quota of a namespace may have been in force.
func (c *check) quotaSpans(space string) (spans []quotaSpan) {
	sets := slices.DeleteFunc(c.limitations(), func(o *history.Op) bool {
		return o.Request.(*belfryv1.SetNamespaceRequest).GetName() != space //nolint:forcetypeassert // that is what they are
	})
	none := amounts{math.MaxUint64, math.MaxUint64, math.MaxUint64}
	spans = append(spans, quotaSpan{0, c.superseded(sets, 0), none})
	for i, o := range sets {
		r := o.Request.(*belfryv1.SetNamespaceRequest) //nolint:forcetypeassert // looked at above
		s := quotaSpan{o.Invoked, c.superseded(sets[i+1:], o.Returned), none}
		if !o.OK() {
			s.to = max(s.to, o.Returned+lateEntry)
		}
		for k, v := range []uint64{r.GetMaxJobs(), r.GetMaxBytes(), r.GetMaxInFlight()} {
			if v > 0 {
				s.amounts[k] = v
			}
		}
		spans = append(spans, s)
	}
	return spans
}

// superseded returns when a quota is no longer in force because a later call set another one, and
// what was free of it has been given back.
func (c *check) superseded(later []*history.Op, from time.Duration) time.Duration {
	for _, o := range later {
		if resp, ok := o.Response.(*belfryv1.SetNamespaceResponse); ok && len(resp.GetNamespace().GetPendingShards()) == 0 {
			return c.quietAfter(max(from, o.Returned), givenBackWithin)
		}
	}
	return math.MaxInt64
}

// judgeQuota looks at one limit of a namespace. What it had when a quota was lowered may stay;
// nothing more may come.
func (c *check) judgeQuota(space string, l limit, all []usage, spans []quotaSpan, slack uint64, found *finding.Set) {
	ends := slices.Clone(spans)
	slices.SortFunc(ends, func(a, b quotaSpan) int { return cmp.Compare(a.from, b.from) })
	parts := map[uint32]uint64{}
	var total, had, force uint64
	begun := 0
	var active []quotaSpan
	for i := range all {
		u := &all[i]
		at := c.since(u.entry.At)
		for begun < len(ends) && ends[begun].from <= at {
			active = append(active, ends[begun])
			begun++
		}
		active = slices.DeleteFunc(active, func(s quotaSpan) bool { return s.to <= at })
		var most uint64
		for _, s := range active {
			most = max(most, s.amounts[l])
		}
		if most < force {
			had = total // from before it was lowered
		}
		force = most
		before := total
		total = total - parts[u.shard] + u.amounts[l]
		parts[u.shard] = u.amounts[l]
		if most == math.MaxUint64 || len(active) == 0 {
			continue
		}
		found.Look(37)
		if total <= most { // till then shards have more between them than the quota, since none takes from what is used
			had = 0
		}
		if total > before && total > max(had, most)+slack {
			found.Violated(37, at, "shard %d, entry %d: namespace %s then had %d %s over all shards; its quota is %d, and %d "+
				"more is what requests under way may bring",
				u.shard, u.entry.Index, space, total, l, most, slack)
		}
	}
}
