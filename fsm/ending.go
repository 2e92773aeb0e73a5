package fsm

import "time"

// An Ending tells that a job was acked or died, for whoever measures how long jobs take. It is no part of the state: an entry that is repeated from a
// remembered answer ends nothing.
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

// ends notes the ending of a job that still has its grant.
func (m *Machine) ends(j job, state State) {
	m.endings = append(m.endings, Ending{
		Queue: j.q.name, State: state, Attempts: m.grantOf(j).attempt, Took: m.scalars.Clock.Sub(m.born(j).created()),
	})
}

// forgetEndings makes room for those of an entry. Memory for very many is given up.
func (m *Machine) forgetEndings() {
	if m.endings = m.endings[:0]; cap(m.endings) > StepMax {
		m.endings = nil
	}
}
