package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/belfrydb/belfry/jepsen/checker/finding"
	"github.com/belfrydb/belfry/jepsen/checker/wire"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// moment is one answer's place in a shard's log, with the span in which it was asked for and given.
type moment struct {
	index             uint64
	entry             uint32
	reads             bool // it shows the whole entry, and nothing after it
	invoked, returned time.Duration
	time              fsm.Time
	op                *history.Op
}

// order holds the order of the log against the order that callers saw: what was answered before
// something else was asked comes before it.
func (c *check) order(*finding.Set) {
	byShard := make(map[uint32][]moment, len(c.order_))
	for _, shard := range c.order_ {
		byShard[shard] = make([]moment, 0, len(c.shards[shard].commands))
	}
	for _, o := range c.ops {
		c.moments(o, byShard)
	}
	c.parallel(len(c.order_), func(i int, found *finding.Set) {
		c.orderShard(c.order_[i], byShard[c.order_[i]], found)
	})
}

// moments notes the places of a call's answers.
func (c *check) moments(o *history.Op, byShard map[uint32][]moment) {
	reads := false
	var last *belfryv1.Witness
	add := func(w *belfryv1.Witness) {
		if w == nil || w == last {
			return
		}
		if last != nil && last.GetShard() == w.GetShard() && last.GetIndex() == w.GetIndex() &&
			last.GetEntry() == w.GetEntry() {
			return
		}
		last = w
		m := moment{index: w.GetIndex(), entry: w.GetEntry(), reads: reads || c.recalled(o, w), invoked: o.Invoked,
			returned: o.Returned, time: wire.TimeOf(w.GetTime()), op: o}
		byShard[w.GetShard()] = append(byShard[w.GetShard()], m)
	}
	if !o.OK() {
		add(o.Witness)
		return
	}
	switch resp := o.Response.(type) {
	case *belfryv1.GetResponse, *belfryv1.ListResponse, *belfryv1.GetQueueResponse, *belfryv1.ListKeysResponse,
		*belfryv1.GetScheduleResponse, *belfryv1.ListSchedulesResponse:
		if wire.Stale(resp) {
			return
		}
		reads = true
	}
	wire.EachWitness(o.Response, add)
}

// recalled reports whether a witness of a Reserve is that of a reading: a repeat may be told what
// its first attempt was granted without an entry.
func (c *check) recalled(o *history.Op, w *belfryv1.Witness) bool {
	req, ok := o.Request.(*belfryv1.ReserveRequest)
	if !ok || !o.OK() || req.GetRequestId() == "" || w.GetEntry() != 0 {
		return false
	}
	l := c.shards[w.GetShard()]
	if l == nil {
		return false
	}
	one := l.at(w.GetIndex(), 0)
	return one != nil && (one.Command.Kind() != fsm.KindReserve || !wire.IsPartOf(one.Request.ID, req.GetRequestId()))
}

// wentBack reports whether a shard's clock was set back after one entry and up to another.
func (c *check) wentBack(shard uint32, after, upTo uint64) bool {
	l := c.shards[shard]
	if l == nil {
		return false
	}
	for i := range l.commands {
		one := &l.commands[i]
		if one.Command.Kind() == fsm.KindResetClock && one.Entry.Index > after && one.Entry.Index <= upTo {
			return true
		}
	}
	return false
}

// orderShard checks one shard by the running maximum of the times at which calls were sent.
func (c *check) orderShard(shard uint32, all []moment, found *finding.Set) {
	slices.SortFunc(all, func(a, b moment) int {
		switch {
		case a.index != b.index:
			return cmp.Compare(a.index, b.index)
		case a.reads != b.reads:
			if a.reads {
				return 1
			}
			return -1
		default:
			return cmp.Compare(a.entry, b.entry)
		}
	})
	var latest, before *moment
	for i := range all {
		m := &all[i]
		found.Look(9)
		if before != nil && m.time < before.time && !c.wentBack(shard, before.index, m.index) {
			found.Violated(9, m.returned, "shard %d: %s was answered from entry %d.%d at shard time %d, and %s from entry "+
				"%d.%d at %d", shard,
				wire.Describe(before.op), before.index, before.entry, before.time, wire.Describe(m.op), m.index, m.entry, m.time)
		}
		before = m
		which := finding.Invariant(36)
		if m.reads || latest != nil && latest.reads {
			which = 34
		}
		found.Look(which)
		if latest != nil && m.returned < latest.invoked && (!m.reads || !latest.reads || m.index != latest.index) {
			found.Violated(which, latest.returned, "shard %d: %s was answered at %.6fs from entry %d.%d, before %s was sent, "+
				"which was answered from entry %d.%d", shard,
				wire.Describe(m.op), m.returned.Seconds(), m.index, m.entry, wire.Describe(latest.op), latest.index, latest.entry)
		}
		if latest == nil || m.invoked > latest.invoked {
			latest = m
		}
	}
}
