package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/activity"
)

// queueBytes is what a queue takes beside its record, its orders and its activity: its derived state,
// and its entries in maps, trees and agendas. A test compares it with the heap.
const queueBytes = 1032

// Memory returns what the machine takes, as of the last entry.
func (m *Machine) Memory() fsm.Memory {
	v := m.store.Memory()
	v.Held += uint64(len(m.queues.byName)*queueBytes + m.activity.Len()*activity.QueueBytes)
	return v
}
