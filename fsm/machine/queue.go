package machine

import (
	"github.com/google/btree"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/activity"
	"github.com/belfrydb/belfry/fsm/agenda"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/duecounts"
	"github.com/belfrydb/belfry/fsm/keys"
	"github.com/belfrydb/belfry/fsm/orders"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/fsm/store"
	"github.com/belfrydb/belfry/fsm/usage"
)

// treeDegree is where, at ten million keys, inserting is fastest and the collector has the fewest
// nodes to visit.
const treeDegree = 64

// queue is the derived state of one queue: the orders over its jobs, and when it is due in the
// agendas. Its stored state is in its QueueRecord.
type queue struct {
	name      string
	index     uint32 // of its record
	createSeq uint64

	orders.Queue
	ended store.Order // tombstones by time of end
	due   duecounts.Counts

	deadline fsm.Time // when it is due in queues.deadlines, 0 if never
	forget   fsm.Time // when it is due in queues.forgets, 0 if never
	oldest   fsm.Time // when it is due in queues.oldest, 0 if never
	settled  uint64   // index of the entry that settled it last
	touched  uint64   // index of the entry that touched it last

	usage     usage.Queue // its part in its namespace
	activity  activity.Queue
	keys      *keys.Queue // nil while no job had a key and nothing was said of any
	schedules schedules.Queue
}

// queues are all queues of the shard.
type queues struct {
	store     *store.Store
	seed      uint64 // of hash tables
	scheduled *schedules.Shard
	byIndex   []*queue // by index of the record; nil if there is none
	byName    map[string]*queue
	names     *btree.BTreeG[string]
	deadlines agenda.Agenda // by next deadline
	forgets   agenda.Agenda // by the time at which the first tombstone is past its window
	oldest    agenda.Agenda // by the time at which the first tombstone ended
	usage     usage.Namespaces
}

func newQueues(s *store.Store, seed uint64, scheduled *schedules.Shard) queues {
	return queues{
		store: s, seed: seed, scheduled: scheduled, byIndex: make([]*queue, 1), byName: map[string]*queue{},
		names:     btree.NewG(treeDegree, func(a, b string) bool { return a < b }),
		deadlines: agenda.New(), forgets: agenda.New(), oldest: agenda.New(),
		usage: usage.New(),
	}
}

// add creates the derived state of a queue whose record is stored at index.
func (qs *queues) add(index uint32, name string, createSeq uint64) *queue {
	q := &queue{
		name: name, index: index, createSeq: createSeq,
		Queue: orders.New(qs.store), ended: qs.store.Order(store.ByEnd),
		due: duecounts.New(qs.seed), activity: activity.Since(&qs.store.Queue(index).Counters),
		schedules: schedules.New(qs.scheduled, index, name),
	}
	for int(index) >= len(qs.byIndex) {
		qs.byIndex = append(qs.byIndex, nil)
	}
	qs.byIndex[index] = q
	qs.byName[name] = q
	qs.names.ReplaceOrInsert(name)
	q.usage = qs.usage.Add(name)
	return q
}

// item is the queue in agendas.
func (q *queue) item() agenda.Item { return agenda.Item{Seq: q.createSeq, Index: q.index} }

// record returns the record of a queue for reading.
func (m *Machine) record(q *queue) *fsm.QueueRecord { return m.store.Queue(q.index) }

// touch returns the record of a queue for writing. The end of the entry updates the digest.
func (m *Machine) touch(q *queue) *fsm.QueueRecord {
	if q.touched != m.applied {
		q.touched = m.applied
		m.sum -= digest.Queue(m.record(q))
		m.touched = append(m.touched, q)
	}
	return m.store.EditQueue(q.index)
}

// planTouched updates the deadlines of the queues that the current entry has touched so far.
func (m *Machine) planTouched() {
	for _, q := range m.touched {
		m.plan(q)
	}
}

// closeQueues updates digest, agendas and counts for the queues that the entry touched.
func (m *Machine) closeQueues() {
	for _, q := range m.touched {
		m.plan(q)
		if m.queues.byIndex[q.index] == q {
			m.sum += digest.Queue(m.record(q))
			q.usage.Count(&m.record(q).Counts)
			m.countActivity(q)
			q.due.Close()
		}
	}
	clear(m.touched)
	m.touched = m.touched[:0]
}

// countActivity counts what the entry did in a queue, unless it was brought by a restore.
func (m *Machine) countActivity(q *queue) {
	c := &m.record(q).Counters
	if m.restored.Open() {
		q.activity.Skip(c)
	} else {
		m.activity.Count(&q.activity, c, m.scalars.Clock)
	}
}

// createQueue creates a queue, unless there are too many. A new queue has nothing to settle, so it
// counts as settled.
func (m *Machine) createQueue(name string, partition, partitions uint32) (*queue, fsm.Code) {
	if len(m.queues.byName) >= m.cfg.QueuesMax {
		return nil, fsm.Quota
	}
	m.scalars.QueuesCreated++
	index := m.store.AddQueue(&fsm.QueueRecord{
		Name: name, Partition: partition, Partitions: partitions,
		CreateSeq: m.scalars.QueuesCreated, Created: m.scalars.Clock, Format: m.format,
	})
	q := m.queues.add(index, name, m.scalars.QueuesCreated)
	q.touched, q.settled = m.applied, m.applied
	m.touched = append(m.touched, q) // closeQueues adds its hash
	return q, fsm.OK
}

// dropQueue removes a queue without jobs, tombstones, schedules and memories of keys.
func (m *Machine) dropQueue(q *queue) {
	m.touch(q)
	q.Discard()
	q.ended.Discard()
	m.activity.Drop(&q.activity)
	m.queues.usage.Remove(q.name, &q.usage)
	m.queues.byIndex[q.index] = nil
	m.store.RemoveQueue(q.index)
	delete(m.queues.byName, q.name)
	m.queues.names.Delete(q.name)
}

// plan updates when the queue is due among the deadlines, at the end of every entry that touched
// it.
func (m *Machine) plan(q *queue) {
	next := q.Deadline()
	m.queues.deadlines.Move(q.item(), q.deadline, next)
	q.deadline = next
}
