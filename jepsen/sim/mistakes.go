package sim

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
)

// mistakes are put into the product's place. All of them are nil but in the test that shows that
// the judge notices them.
type mistakes struct {
	// stamp changes what a leader takes for the time.
	stamp func(w *world, t fsm.Time) fsm.Time
	// rewrite changes what all machines execute of an entry. The results of the first extra commands
	// go to no client.
	rewrite func(s *shard, requests []fsm.Request) (changed []fsm.Request, extra int)
	// result changes what is answered to a command.
	result func(s *shard, e *entry, c fsm.Command, r *fsm.Result)
	// reads changes what a replica reads that does not apply an entry first.
	reads func(r *replica, e *entry) []byte
	// restore changes a replica that has been restored.
	restore func(r *replica)
	// after changes a shard when an entry was answered.
	after func(s *shard, e *entry)
	// outcome changes what a client is told became of a call.
	outcome func(w *world, o opState) opState
	// plan changes when a machine is to be woken up.
	plan func(t fsm.Time) fsm.Time
	// count changes what a machine tells of a queue.
	count func(q *fsm.Queue)
	// fire changes a firing that a leader plans, and firing when a machine tells that the next one comes.
	fire   func(c *fsm.Fire)
	firing func(t fsm.Time) fsm.Time
}

func (m *mistakes) stamped(w *world, t fsm.Time) fsm.Time {
	if m.stamp != nil {
		return m.stamp(w, t)
	}
	return t
}

// apply is the first application of an entry; it returns what is answered.
func (m *mistakes) apply(s *shard, first *replica, e *entry) []fsm.Result {
	extra := 0
	if m.rewrite != nil {
		var changed []fsm.Request
		changed, extra = m.rewrite(s, e.requests)
		e.data = encode(s.w.format, e.stamp, changed)
	}
	results := first.lead(e, e.data)
	if m.result == nil || s.w.violation != nil {
		return results[min(extra, len(results)):]
	}
	told := append([]fsm.Result(nil), results[extra:]...)
	i := 0
	for _, r := range e.requests {
		for _, c := range r.Commands {
			told[i].Grants = append([]fsm.Grant(nil), told[i].Grants...)
			m.result(s, e, c, &told[i])
			i++
		}
	}
	return told
}

func (m *mistakes) read(r *replica, e *entry) []byte {
	if m.reads != nil {
		return m.reads(r, e)
	}
	return e.data
}

func (m *mistakes) restored(r *replica) {
	if m.restore != nil {
		m.restore(r)
	}
}

func (m *mistakes) entered(s *shard, e *entry) {
	if m.after != nil {
		m.after(s, e)
	}
}

func (m *mistakes) told(w *world, o opState) opState {
	if m.outcome != nil {
		return m.outcome(w, o)
	}
	return o
}

func (m *mistakes) planned(t fsm.Time) fsm.Time {
	if m.plan != nil {
		return m.plan(t)
	}
	return t
}

func (m *mistakes) counted(q *fsm.Queue) {
	if m.count != nil {
		m.count(q)
	}
}

func (m *mistakes) fired(c *fsm.Fire) {
	if m.fire != nil {
		m.fire(c)
	}
}

func (m *mistakes) fires(t fsm.Time) fsm.Time {
	if m.firing != nil {
		return m.firing(t)
	}
	return t
}

// encode makes the bytes of an entry.
func encode(format fsm.Format, stamp fsm.Time, requests []fsm.Request) []byte {
	var encoded [][]byte
	for i := range requests {
		encoded = append(encoded, codec.AppendRequestIn(nil, format, &requests[i]))
	}
	return codec.AppendEntryIn(nil, format, stamp, encoded)
}
