package machine

import "github.com/belfrydb/belfry/fsm"

// Endings returns what the entry applied last has ended. It holds until the next Apply.
func (m *Machine) Endings() []fsm.Ending { return m.endings }

// noteEnding records the ending of a job that still has its lease.
func (m *Machine) noteEnding(j job, state fsm.State) {
	m.endings = append(m.endings, fsm.Ending{
		Queue: j.q.name, State: state, Attempts: m.leaseOf(j).Attempt,
		Took: m.scalars.Clock.Sub(m.payload(j).Created()),
	})
}

// forgetEndings makes room for the endings of an entry. It drops the memory if that held very many.
func (m *Machine) forgetEndings() {
	if m.endings = m.endings[:0]; cap(m.endings) > fsm.StepMax {
		m.endings = nil
	}
}
