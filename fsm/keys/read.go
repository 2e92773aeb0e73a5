package keys

import (
	"bytes"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// Read answers a query for keys as of a time that is not before the clock. It fills in Keys,
// Scanned and Next, which share no memory with the shard.
func (q *Queue) Read(query *fsm.KeysQuery, now fsm.Time) (r fsm.Reading) {
	prefix := []byte(query.Prefix)
	r.Next = query.From
	for left := min(query.Scan, fsm.KeysScanMax); left > 0; {
		group, next, passed := q.keys.Next(q.index, r.Next, left)
		left, r.Next, r.Scanned = left-passed, next, r.Scanned+uint64(passed)
		if group != 0 {
			g, name := q.keys.At(group), q.keys.Name(group)
			// Its name is empty if it stands for the jobs without a key.
			if len(name) > 0 && bytes.HasPrefix(name, prefix) && q.has(g, query.State) {
				r.Keys = append(r.Keys, q.show(g, string(name), now))
			}
		}
		if next == 0 {
			break
		}
	}
	return r
}

// has reports whether a key has jobs in a state; with StateNone, whether it has jobs or is paused.
func (q *Queue) has(g *store.KeyGroup, state fsm.State) bool {
	switch state {
	case fsm.StateNone:
		return g.Delayed+g.Ready+g.Reserved+g.Dead > 0 || g.Memory != 0 && q.keys.Memory(g.Memory).Paused
	case fsm.Delayed:
		return g.Delayed > 0
	case fsm.Ready:
		return g.Ready > 0
	case fsm.Reserved:
		return g.Reserved > 0
	case fsm.Dead:
		return g.Dead > 0
	default:
		return false
	}
}

// show returns what a reader sees of a key.
func (q *Queue) show(g *store.KeyGroup, name string, now fsm.Time) fsm.Key {
	k := fsm.Key{Name: name, Delayed: g.Delayed, Ready: g.Ready, Reserved: g.Reserved, Dead: g.Dead}
	if g.Memory != 0 {
		m := q.keys.Memory(g.Memory)
		k.Paused = m.Paused
		if at := q.tokenOf(m); at > now {
			k.NextToken = at
		}
	}
	ordered := false // whether the head is a DELAYED job
	if g.Head != 0 {
		s := q.shard.Store.Slot(g.Head)
		ordered = s.State() == fsm.Delayed && q.order == store.ByPlace
		if ordered || s.State() == fsm.Ready {
			k.HeadDue = s.Due
		}
	}
	limit := q.settings.Limit()
	switch {
	case g.Ready == 0:
	case k.Paused:
		k.Blocked = fsm.BlockedByPause
	case q.settings.HoldOnDead && g.Dead > 0:
		k.Blocked = fsm.BlockedByDead
	case limit > 0 && g.Reserved >= limit:
		k.Blocked = fsm.BlockedByLimit
	case ordered:
		k.Blocked = fsm.BlockedByOrder
	case k.NextToken != 0:
		k.Blocked = fsm.BlockedByRate
	}
	return k
}
