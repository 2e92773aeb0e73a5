package machine

import "github.com/belfrydb/belfry/fsm"

// What queues take beside their records and orders. A test compares it with the heap.
const (
	// queueBytes is the derived state of a queue, and its entries in maps, trees and agendas.
	queueBytes = 1032
	// recentBytes is what the recent counts of a queue take.
	recentBytes = 2704
)

// Memory returns what the machine takes, as of the last entry.
func (m *Machine) Memory() fsm.Memory {
	v := m.store.Memory()
	v.Held += uint64(len(m.queues.byName)*queueBytes + len(m.recents.queues)*recentBytes)
	return v
}
