package fsm

import "time"

// An Ending reports that a job was acked or died. It serves measurements of how long jobs take, and
// is no part of the state: an entry that is answered from memory ends nothing.
type Ending struct {
	Queue string
	// State is Acked or Dead.
	State State
	// Attempts are those that the job had taken, the last among them; 0 if it died without any.
	Attempts uint32
	// Took runs from the put to the end, in shard time.
	Took time.Duration
}

// Endings returns what the entry applied last has ended. It holds until the next Apply.
func (m *Machine) Endings() []Ending { return m.endings }

// noteEnding records the ending of a job that still has its lease.
func (m *Machine) noteEnding(j job, state State) {
	m.endings = append(m.endings, Ending{
		Queue: j.q.name, State: state, Attempts: m.leaseOf(j).attempt,
		Took: m.scalars.Clock.Sub(m.payload(j).created()),
	})
}

// forgetEndings makes room for the endings of an entry. It drops the memory if that held very many.
func (m *Machine) forgetEndings() {
	if m.endings = m.endings[:0]; cap(m.endings) > StepMax {
		m.endings = nil
	}
}
