package machine

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/google/btree"
)

func withDefaults(c fsm.Config) fsm.Config {
	if c.TombstonesMax == 0 {
		c.TombstonesMax = 10_000_000
	}
	if c.FinishedMax == 0 {
		c.FinishedMax = 1_000_000
	}
	if c.AnswersBytesMax == 0 {
		c.AnswersBytesMax = 64 << 20
	}
	if c.QueuesMax == 0 {
		c.QueuesMax = 100_000
	}
	return c
}

// Machine is the state of one shard. The package comment says which methods may run beside others.
type Machine struct {
	cfg     fsm.Config
	applied uint64     // of the entry applied last
	format  fsm.Format // the highest of the entries applied, in which snapshots are written
	scalars fsm.Scalars
	sum     uint64 // of the hashes of all records, without the scalars and the queues that the current entry touched

	store  store
	queues queues

	finished finished
	answers  answers
	restored fsm.RestoreMark
	recents  recents
	touched  []*queue     // by the current entry
	endings  []fsm.Ending // of the entry applied last
	leases   int          // how many jobs are reserved
	// restoring is set while Restore reads jobs. Their due times are counted afterwards.
	restoring bool
	scratch   codec.Scratch
}

// New returns the empty machine that every shard starts from.
func New(cfg fsm.Config) *Machine {
	m := &Machine{cfg: withDefaults(cfg), format: fsm.FirstFormat}
	m.store = newStore(m.cfg.Seed)
	m.finished.records = newPages[finishedLease](finishedShift)
	m.finished.byFence = newTable()
	orders := newOrders(&m.store, &m.finished.records)
	m.finished.byExpiry = orders.by(byExpiry)
	m.queues = newQueues(orders)
	m.answers = newAnswers(&m.store.blobs)
	return m
}

// Clock returns the shard's time, as of the last entry.
func (m *Machine) Clock() fsm.Time { return m.scalars.Clock }

// Index returns the index of the entry applied last, 0 if there was none.
func (m *Machine) Index() uint64 { return m.applied }

// Format returns the highest format of the entries applied. Snapshots have it too, so that a
// snapshot is never newer than the log that it stands for.
func (m *Machine) Format() fsm.Format { return m.format }

// Digest returns the sum of the hashes of all logical records. It is equal on all replicas at equal
// index.
func (m *Machine) Digest() uint64 { return m.sum + digest.Scalars(m.scalars) }

// Apply carries out one committed entry and returns the results of its commands, in order. The
// machine keeps no reference to entry. An error means that the entry cannot be read: it is damaged
// or of a later version. The state is then unchanged, and the caller must stop, since replicas
// would diverge if it skipped the entry.
func (m *Machine) Apply(index uint64, entry []byte) ([]fsm.Result, error) {
	e, err := codec.OpenEntry(entry, &m.scratch)
	if err != nil {
		return nil, fmt.Errorf("fsm: entry %d: %w", index, err)
	}
	m.applied, m.format = index, max(m.format, e.Format)
	before := m.scalars.Clock
	m.scalars.Clock = max(before, e.Stamp)
	m.forgetEndings()

	results := make([]fsm.Result, 0, e.Commands)
	for range e.Requests {
		results = m.request(&e, before, results)
	}
	m.sweep()
	m.closeQueues()
	return results, nil
}

// request carries out one request of an entry that codec.OpenEntry has checked, or answers it from
// memory.
func (m *Machine) request(e *codec.Entry, before fsm.Time, results []fsm.Result) []fsm.Result {
	r := e.NextRequest()
	first := len(results)
	results = results[:first+r.Commands]
	own := results[first:]

	var known uint32
	var content [16]byte
	if r.ID != "" {
		content = codec.HashOf(r.Encoded)
		known = m.answers.find(digest.RequestKey(m.cfg.Seed, r.Caller, r.ID), r.Caller, r.ID)
		if m.recall(known, &r, content, own) {
			e.Skip(r.Encoded)
			return results
		}
	}
	changed := false
	for i := range own {
		result, did := m.apply(e.NextCommand(), before)
		own[i], changed = result, changed || did
	}
	if r.ID != "" && changed {
		if known != 0 {
			m.forgetAnswer(known)
		}
		m.remember(&fsm.Answer{Caller: r.Caller, ID: r.ID, Content: content, At: m.scalars.Clock, Results: own})
	}
	return results
}

// apply is the one switch over the commands. before is the clock before this entry. It reports
// whether the command changed the state: then its request must be remembered.
func (m *Machine) apply(c fsm.Command, before fsm.Time) (result fsm.Result, changed bool) {
	if m.restored.Open() && !whileRestoring(c.Kind()) {
		return fsm.Result{Code: fsm.Restoring}, false
	}
	switch c := c.(type) {
	case *fsm.Put:
		return m.put(c)
	case *fsm.Reserve:
		return m.reserve(c)
	case *fsm.Ack:
		return m.ack(c)
	case *fsm.Nack:
		return m.nack(c)
	case *fsm.Release:
		return m.release(c)
	case *fsm.Extend:
		return m.extend(c)
	case *fsm.Cancel:
		return m.cancel(c)
	case *fsm.Reschedule:
		return m.reschedule(c)
	case *fsm.Redrive:
		return m.redrive(c)
	case *fsm.Purge:
		return m.purge(c)
	case *fsm.Configure:
		return m.configure(c)
	case *fsm.Open:
		return m.open(c)
	case *fsm.DeleteQueue:
		return m.deleteQueue(c)
	case *fsm.Expire:
		return m.expire()
	case *fsm.Lead:
		return m.lead(c, before)
	case *fsm.Import:
		return m.imports(c)
	case *fsm.ResetClock:
		return m.resetClock(c)
	}
	panic(fmt.Sprintf("fsm: command %T has no rule", c))
}

// NextDeadline returns the earliest time at which a lease lapses, a job expires or a delayed job
// falls due. There is none while a restore is open.
func (m *Machine) NextDeadline() (fsm.Time, bool) {
	if m.restored.Open() {
		return 0, false
	}
	t, ok := m.queues.deadlines.first()
	return t.at, ok
}

// queue is the derived state of one queue: the orders over its jobs, and when it is due in the
// agendas. Its stored state is in its QueueRecord.
type queue struct {
	name      string
	index     uint32 // of its record
	createSeq uint64

	delayed order // by due
	ready   order // by priority, due
	leases  order // by until
	working order // RESERVED jobs by due, for listing
	dead    order // by due
	ttls    order // DELAYED and READY jobs by ttl
	ended   order // tombstones by time of end
	due     dueCounts

	deadline fsm.Time // when it is due in queues.deadlines, 0 if never
	forget   fsm.Time // when it is due in queues.forgets, 0 if never
	oldest   fsm.Time // when it is due in queues.oldest, 0 if never
	settled  uint64   // index of the entry that settled it last
	touched  uint64   // index of the entry that touched it last

	space   *space    // its namespace, nil if it has none
	counted fsm.Usage // the usage that space has taken account of

	recent *recent    // its recent activity, nil if there was none
	seen   recentSeen // the counters that recent has taken account of
}

// queues are all queues of the shard.
type queues struct {
	records   pages[fsm.QueueRecord]
	byIndex   []*queue // by index of the record; nil if there is none
	byName    map[string]*queue
	names     *btree.BTreeG[string]
	deadlines agenda // by next deadline
	forgets   agenda // by the time at which the first tombstone is past its window
	oldest    agenda // by the time at which the first tombstone ended
	spaces    map[string]*space
	plain     int // queues without a namespace
	orders    *orders
}

func newQueues(o *orders) queues {
	return queues{
		records: newPages[fsm.QueueRecord](7), byIndex: make([]*queue, 1), byName: map[string]*queue{},
		names:     btree.NewG(treeDegree, func(a, b string) bool { return a < b }),
		deadlines: newAgenda(), forgets: newAgenda(), oldest: newAgenda(),
		spaces: map[string]*space{}, orders: o,
	}
}

// add creates the derived state of a queue whose record is stored at index.
func (qs *queues) add(index uint32, name string, createSeq uint64) *queue {
	q := &queue{
		name: name, index: index, createSeq: createSeq,
		delayed: qs.orders.by(byDue), ready: qs.orders.by(byPriority), leases: qs.orders.by(byUntil),
		working: qs.orders.by(byDue),
		dead:    qs.orders.by(byDue), ttls: qs.orders.by(byTTL), ended: qs.orders.by(byEnd),
		due: dueCounts{seed: qs.orders.store.seed}, seen: seenOf(&qs.records.at(index).Counters),
	}
	for int(index) >= len(qs.byIndex) {
		qs.byIndex = append(qs.byIndex, nil)
	}
	qs.byIndex[index] = q
	qs.byName[name] = q
	qs.names.ReplaceOrInsert(name)
	qs.addToNamespace(q)
	return q
}

// record returns the record of a queue for reading.
func (m *Machine) record(q *queue) *fsm.QueueRecord { return m.queues.records.at(q.index) }

// touch returns the record of a queue for writing. The end of the entry updates the digest.
func (m *Machine) touch(q *queue) *fsm.QueueRecord {
	if q.touched != m.applied {
		q.touched = m.applied
		m.sum -= digest.Queue(m.record(q))
		m.touched = append(m.touched, q)
	}
	return m.queues.records.edit(q.index)
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
			m.account(q)
			m.countRecent(q)
			q.due.close()
		}
	}
	clear(m.touched)
	m.touched = m.touched[:0]
}

// createQueue creates a queue, unless there are too many. A new queue has nothing to settle, so it
// counts as settled.
func (m *Machine) createQueue(name string, partition, partitions uint32) (*queue, fsm.Code) {
	if len(m.queues.byName) >= m.cfg.QueuesMax {
		return nil, fsm.Quota
	}
	m.scalars.QueuesCreated++
	index := m.queues.records.alloc()
	*m.queues.records.edit(index) = fsm.QueueRecord{
		Name: name, Partition: partition, Partitions: partitions,
		CreateSeq: m.scalars.QueuesCreated, Created: m.scalars.Clock, Format: m.format,
	}
	q := m.queues.add(index, name, m.scalars.QueuesCreated)
	q.touched, q.settled = m.applied, m.applied
	m.touched = append(m.touched, q) // closeQueues adds its hash
	return q, fsm.OK
}

// dropQueue removes a queue without jobs and tombstones.
func (m *Machine) dropQueue(q *queue) {
	m.touch(q)
	for _, o := range [...]*order{&q.delayed, &q.ready, &q.leases, &q.working, &q.dead, &q.ttls, &q.ended} {
		o.discard()
	}
	m.dropRecent(q)
	m.queues.removeFromNamespace(q)
	m.queues.byIndex[q.index] = nil
	m.queues.records.release(q.index)
	delete(m.queues.byName, q.name)
	m.queues.names.Delete(q.name)
}

// plan updates when the queue is due among the deadlines, at the end of every entry that touched
// it.
func (m *Machine) plan(q *queue) {
	next := q.delayed.firstAt()
	for _, o := range [...]*order{&q.leases, &q.ttls} {
		if at := o.firstAt(); at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	m.queues.deadlines.move(q, q.deadline, next)
	q.deadline = next
}
