package admit

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// View runs f on a shard's machine as applied on this node, under a shared lock. now is the time
// for reads. f must be quick and must not keep memory of the machine.
type View func(f func(m *machine.Machine, now fsm.Time))

// knows reports whether a request is a repeat of one that the machine remembers, and adds nothing.
func (v View) knows(req *fsm.Request) (known bool) {
	v(func(m *machine.Machine, now fsm.Time) { known = m.Knows(req, now) })
	return known
}

// Remembers reports whether the machine knows the answer to a Reserve: live grants of an earlier
// attempt, or the refusal of other content under the same id.
func (v View) Remembers(req *fsm.Request) (remembered bool) {
	v(func(m *machine.Machine, now fsm.Time) {
		grants, code := m.Recall(req, now)
		remembered = len(grants) > 0 || code != fsm.OK
	})
	return remembered
}

// Available returns how many jobs of each queue may be reserved now.
func (v View) Available(queues []string) []uint64 {
	jobs := make([]uint64, len(queues))
	v(func(m *machine.Machine, now fsm.Time) {
		for i, name := range queues {
			jobs[i], _ = m.Available(name, now)
		}
	})
	return jobs
}
