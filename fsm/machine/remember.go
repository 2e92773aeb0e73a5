package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// recall answers a request from memory if it may: it fills in results and reports true. known is
// the index of the remembered request, 0 if there is none.
func (m *Machine) recall(known uint32, r *codec.RequestHead, content [16]byte, results []fsm.Result) bool {
	if known == 0 || m.store.Answers.Time(known).Add(fsm.RequestWindow) < m.scalars.Clock {
		if m.tooOld(r.ID, m.scalars.Clock) {
			fill(results, fsm.Result{Code: fsm.RequestExpired})
			return true
		}
		return false
	}
	a := m.store.Answers.Answer(known)
	if a.Content != content || len(a.Results) != len(results) {
		fill(results, fsm.Result{Code: fsm.Invalid})
		return true
	}
	if len(r.Encoded) > 0 && r.Commands == 1 && fsm.Kind(r.Encoded[0]).Reserves() {
		a.Results[0].Grants = m.liveGrants(a.Results[0].Grants, m.scalars.Clock)
		if len(a.Results[0].Grants) == 0 {
			return false
		}
	}
	for i := range a.Results {
		results[i] = a.Results[i]
		results[i].Replayed = true
	}
	return true
}

func fill(results []fsm.Result, r fsm.Result) {
	for i := range results {
		results[i] = r
	}
}

// liveGrants returns the grants whose leases are live at time now.
func (m *Machine) liveGrants(grants []fsm.Grant, now fsm.Time) []fsm.Grant {
	var live []fsm.Grant
	for _, g := range grants {
		q := m.queues.byName[g.Queue]
		if q == nil {
			continue
		}
		if j := (job{m.store.BySerial(q.index, g.Serial), q}); j.index != 0 && m.slot(j).State() == fsm.Reserved {
			if held := m.leaseOf(j); held.Fence == g.Fence && now < held.Until {
				live = append(live, g)
			}
		}
	}
	return live
}

// NextForget returns the earliest stamp of an entry that forgets something because its time is
// over. There is none if all that is remembered is kept without end.
func (m *Machine) NextForget() (next fsm.Time, ok bool) {
	sooner := func(at fsm.Time) {
		if !ok || at < next {
			next, ok = at, true
		}
	}
	if first, some := m.queues.forgets.First(); some {
		sooner(first.At)
	}
	m.remembered.Next(sooner)
	if k, some := m.store.Keys.Rates.Min(); some {
		sooner(k.At)
	}
	return next, ok
}

// sweep forgets what is past its time, a bounded number of records of each kind.
func (m *Machine) sweep() {
	now := m.scalars.Clock
	for range fsm.SweepMax {
		first, ok := m.queues.forgets.First()
		if !ok || first.At > now {
			break
		}
		q := m.queues.byIndex[first.Index]
		k, _ := q.ended.Min()
		m.forgetTombstone(q, k.Index)
	}
	m.remembered.Sweep()
	m.sweepKeys()
}
