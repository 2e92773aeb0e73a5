package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"strings"
)

// space is a namespace that has queues in the shard. It is derived: each entry adds the changes in
// the queues that it touched.
type space struct {
	usage  fsm.Usage
	queues int
}

// UsageOf returns what the queues of a namespace hold in this shard.
func (m *Machine) UsageOf(namespace string) fsm.Usage {
	if s := m.queues.spaces[namespace]; s != nil {
		return s.usage
	}
	return fsm.Usage{}
}

// Leases returns the number of reserved jobs in the shard. It includes jobs whose lease has lapsed
// and is not settled.
func (m *Machine) Leases() int { return m.leases }

// QueueRoom returns how many queues this shard holds, and how many it may.
func (m *Machine) QueueRoom() (held, most int) { return len(m.queues.byName), m.cfg.QueuesMax }

// QueuesOf returns how many queues of a namespace this shard holds; those without one count
// together, as the namespace "".
func (m *Machine) QueuesOf(namespace string) int {
	if namespace == "" {
		return m.queues.plain
	}
	if s := m.queues.spaces[namespace]; s != nil {
		return s.queues
	}
	return 0
}

// HasQueue reports whether this shard holds a queue.
func (m *Machine) HasQueue(name string) bool { return m.queues.byName[name] != nil }

// QueuesToCreate returns the queues that the puts of a request would create if it were applied
// next. A queue is listed once for each put that names it. A request that is nothing but a repeat
// creates none. Nor does a request that is answered without being carried out, because it is too
// old for its repeat to be known, or because a restore is open. now must not be before Clock.
func (m *Machine) QueuesToCreate(req *fsm.Request, now fsm.Time) (names []string) {
	for _, c := range req.Commands {
		if put, ok := c.(*fsm.Put); ok && put.CreatesQueue() && !m.HasQueue(put.Queue) {
			names = append(names, put.Queue)
		}
	}
	if len(names) > 0 && (m.restored.Open() || m.Knows(req, now) || req.ID != "" && m.tooOld(req.ID, now)) {
		return nil
	}
	return names
}

// addToNamespace counts a queue in its namespace.
func (qs *queues) addToNamespace(q *queue) {
	name := fsm.NamespaceOf(q.name)
	if name == "" {
		qs.plain++
		return
	}
	s := qs.spaces[name]
	if s == nil {
		s = &space{}
		qs.spaces[strings.Clone(name)] = s
	}
	s.queues++
	q.space = s
}

// removeFromNamespace takes a queue and its usage out of its namespace.
func (qs *queues) removeFromNamespace(q *queue) {
	if q.space == nil {
		qs.plain--
		return
	}
	q.space.change(q.counted, fsm.Usage{})
	if q.space.queues--; q.space.queues == 0 {
		delete(qs.spaces, fsm.NamespaceOf(q.name))
	}
	q.space = nil
}

// account adds to the namespace of a queue what has changed in the queue.
func (m *Machine) account(q *queue) {
	if q.space == nil {
		return
	}
	c := &m.record(q).Counts
	now := fsm.Usage{Jobs: c.Jobs(), Bytes: c.Bytes, InFlight: c.Reserved}
	q.space.change(q.counted, now)
	q.counted = now
}

func (s *space) change(before, after fsm.Usage) {
	s.usage.Jobs += after.Jobs - before.Jobs
	s.usage.Bytes += after.Bytes - before.Bytes
	s.usage.InFlight += after.InFlight - before.InFlight
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
		if !ok || put.ID == "" || put.Again {
			return false
		}
		q := m.queues.byName[put.Queue]
		if q == nil || m.mayFree(q, now) {
			return false
		}
		held, tombstone := m.store.ByID(q.index, put.ID)
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
	if _, reserves := req.Commands[0].(*fsm.Reserve); !reserves {
		return false
	}
	a := m.store.Answers.Answer(index)
	return len(a.Results) != 1 || len(m.liveGrants(a.Results[0].Grants, now)) == 0
}
