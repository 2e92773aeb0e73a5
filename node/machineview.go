package node

import "github.com/belfrydb/belfry/fsm"

// machineView runs f on a shard's machine as applied on this node, under a shared lock, and returns what f saw as a
// witness. now is the time for reads. See shard.view.
type machineView func(f func(m *fsm.Machine, now fsm.Time)) Witness

// knows reports whether a request is a repeat of one that the machine remembers, and adds nothing.
func (v machineView) knows(req *fsm.Request) (known bool) {
	v(func(m *fsm.Machine, now fsm.Time) { known = m.Knows(req, now) })
	return known
}

// remembers reports whether the machine knows the answer to a Reserve: live grants of an earlier attempt, or the refusal
// of other content under the same id.
func (v machineView) remembers(req *fsm.Request) (remembered bool) {
	v(func(m *fsm.Machine, now fsm.Time) {
		grants, code := m.Recall(req, now)
		remembered = len(grants) > 0 || code != fsm.OK
	})
	return remembered
}

// available returns how many jobs of each queue may be reserved now.
func (v machineView) available(queues []string) []uint64 {
	jobs := make([]uint64, len(queues))
	v(func(m *fsm.Machine, now fsm.Time) {
		for i, name := range queues {
			jobs[i], _ = m.Available(name, now)
		}
	})
	return jobs
}
