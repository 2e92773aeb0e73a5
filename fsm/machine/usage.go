package machine

import "github.com/belfrydb/belfry/fsm"

// UsageOf returns what the queues of a namespace hold in this shard.
func (m *Machine) UsageOf(namespace string) fsm.Usage { return m.queues.usage.Usage(namespace) }

// Leases returns the number of reserved jobs in the shard. It includes jobs whose lease has lapsed
// and is not settled.
func (m *Machine) Leases() int { return m.leases }

// QueueRoom returns how many queues this shard holds, and how many it may.
func (m *Machine) QueueRoom() (held, most int) { return len(m.queues.byName), m.cfg.QueuesMax }

// QueuesOf returns how many queues of a namespace this shard holds; those without one count
// together, as the namespace "".
func (m *Machine) QueuesOf(namespace string) int { return m.queues.usage.Queues(namespace) }

// HasQueue reports whether this shard holds a queue.
func (m *Machine) HasQueue(name string) bool { return m.queues.byName[name] != nil }

// QueuesToCreate returns the queues that the puts of a request would create if it were applied
// next. A queue is listed once for each put that names it. A request that is nothing but a repeat
// creates none. Nor does a request that is answered without being carried out, because it is too
// old for its repeat to be known, or because a restore is open. now must not be before Clock.
func (m *Machine) QueuesToCreate(req *fsm.Request, now fsm.Time) (names []string) {
	for _, c := range req.Commands {
		if queue := fsm.CreatedBy(c); queue != "" && !m.HasQueue(queue) {
			names = append(names, queue)
		}
	}
	if len(names) > 0 && (m.restored.Open() || m.Knows(req, now) || req.ID != "" && m.tooOld(req.ID, now)) {
		return nil
	}
	return names
}

// Knows reports whether a request is nothing but a repeat: it is remembered, or all its puts are of
// ids that the machine holds or remembers. The machine then creates no job. now must not be before
// Clock.
func (m *Machine) Knows(req *fsm.Request, now fsm.Time) bool {
	if req.ID != "" {
		index := m.store.Answers.Find(req.Caller, req.ID)
		if index != 0 && m.store.Answers.Time(index).Add(fsm.RequestWindow) >= now {
			return !m.reservesAnew(req, index, now)
		}
	}
	for _, c := range req.Commands {
		put, ok := c.(*fsm.Put)
		if !ok || put.ID == "" || put.Again || put.OnExisting >= fsm.ReplaceExisting {
			return false
		}
		q := m.queues.byName[put.Queue]
		if q == nil || m.mayFree(q, now) {
			return false
		}
		held, tombstone := m.store.ByPutID(q.index, put.ID, put.Key)
		if held == 0 && (tombstone == 0 || m.forgottenAt(q, tombstone, now)) {
			return false
		}
	}
	return len(req.Commands) > 0
}

// reservesAnew reports whether a remembered request is a Reserve without a live grant. Such a
// request is carried out again.
func (m *Machine) reservesAnew(req *fsm.Request, index uint32, now fsm.Time) bool {
	if len(req.Commands) != 1 {
		return false
	}
	if !req.Commands[0].Kind().Reserves() {
		return false
	}
	a := m.store.Answers.Answer(index)
	return len(a.Results) != 1 || len(m.liveGrants(a.Results[0].Grants, now)) == 0
}
