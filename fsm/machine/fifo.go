package machine

import "github.com/belfrydb/belfry/fsm"

// countFIFO counts a job that was stored among the FIFO jobs of its queue, if it is one.
func (m *Machine) countFIFO(j job) {
	if m.slot(j).IsFIFO() {
		j.q.FIFO++
	}
}

// uncountFIFO takes back what countFIFO did.
func (m *Machine) uncountFIFO(j job) {
	if m.slot(j).IsFIFO() {
		j.q.FIFO--
	}
}

// used counts what happens to a lifted job, if it is a FIFO job.
func (m *Machine) used(j job, count func(*fsm.Uses)) {
	if !m.slot(j).IsFIFO() {
		return
	}
	uses := m.store.Uses(m.store.EditLease(j.index))
	count(&uses)
	m.store.SetUses(j.index, uses)
}

// fence gives a lifted FIFO job that dies the next serial as its fence, which orders the dead jobs.
func (m *Machine) fence(j job) {
	if m.slot(j).IsFIFO() {
		m.scalars.Serial++
		m.store.EditLease(j.index).Fence = m.scalars.Serial
	}
}

// reprioritize gives a lifted job another priority, if one is given.
func (m *Machine) reprioritize(j job, given bool, priority int64) {
	rank := fsm.RankOf(priority)
	if !given || rank == fsm.RankOf(m.store.Priority(m.slot(j))) {
		return
	}
	var v fsm.Job
	m.show(j, &v)
	v.Priority = fsm.PriorityOf(rank)
	m.store.ReplacePayload(j.index, &v, m.payload(j).Content())
}
