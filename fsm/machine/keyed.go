package machine

import (
	"cmp"
	"slices"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/keys"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// next returns the job to hand out next; its index is 0 if there is none.
func (q *queue) next() job {
	if q.keys != nil {
		return job{q.keys.Next(), q}
	}
	k, _ := q.Ready.Min()
	return job{k.Index, q}
}

// needKeys makes sure that a queue knows its keys if it gets a job with one.
func (m *Machine) needKeys(q *queue, key string) {
	if key != "" && q.keys == nil {
		q.keys = keys.New(&m.keys, q.index, q.name, &q.Ready, &m.record(q).Settings.Keys)
	}
}

// configureKeys gives the keys of a queue its present settings.
func (m *Machine) configureKeys(q *queue) {
	settings := m.record(q).Settings.Keys
	switch {
	case q.keys != nil:
		q.keys.Configure(&settings)
	case settings.Fair: // also without jobs that have a key: those without one take turns with them
		q.keys = keys.New(&m.keys, q.index, q.name, &q.Ready, &settings)
	}
}

// keySet tells the key of a job that the job has its new state.
func (m *Machine) keySet(j job) {
	switch {
	case j.q.keys == nil:
	case m.slot(j).HasKey():
		j.q.keys.Set(j.index)
	default:
		j.q.keys.PlainChanged()
	}
}

// keyDropped tells the key of a job, 0 if it had none, that the job is gone.
func (m *Machine) keyDropped(q *queue, group uint32) {
	switch {
	case q.keys == nil:
	case group != 0:
		q.keys.Dropped(group)
	default:
		q.keys.PlainChanged()
	}
}

// keyRevived appends a lifted job to the jobs of its key, unless it held them back.
func (m *Machine) keyRevived(j job) {
	if m.slot(j).HasKey() && !m.record(j.q).Settings.Keys.HoldOnDead {
		m.scalars.Serial++
		m.store.SetPlace(j.index, m.scalars.Serial)
	}
}

// deadByID finds a DEAD job by its id.
func (m *Machine) deadByID(q *queue, id string) (job, bool) {
	j, _ := m.lookup(q, id, "")
	if j.index != 0 && m.slot(j).State() != fsm.Dead && m.slot(j).HasID() { // one of another key may be
		j.index = m.store.DeadByID(q.index, id)
	}
	return j, j.index != 0 && m.slot(j).State() == fsm.Dead
}

func (m *Machine) pauseKey(c *fsm.PauseKey) (fsm.Result, bool) {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	m.settleQueue(q)
	if c.Key == "" {
		return fsm.Result{}, false
	}
	m.needKeys(q, c.Key)
	changed, ok := q.keys.Pause(c)
	if !ok {
		return fsm.Result{Code: fsm.Quota}, false
	}
	return fsm.Result{}, changed
}

func (m *Machine) purgeKey(c *fsm.PurgeKey) (fsm.Result, bool) {
	q := m.queues.byName[c.Queue]
	if q == nil {
		return fsm.Result{Code: fsm.QueueNotFound}, false
	}
	m.settleQueue(q)
	group, limit := q.keys.Group(c.Key), int(stepLimit(c.Max))
	if group == 0 || c.Key == "" {
		return fsm.Result{}, false
	}
	jobs := q.keys.Jobs(group, c.States, limit+1)
	more := len(jobs) > limit
	jobs = jobs[:min(len(jobs), limit)]
	for _, index := range jobs {
		j := job{index, q}
		m.touch(q).Counters.Purged++
		m.lift(j)
		m.drop(j, fsm.Cancelled)
	}
	return fsm.Result{Count: uint64(len(jobs)), More: more}, len(jobs) > 0
}

// sweepKeys forgets buckets that are full, the oldest first.
func (m *Machine) sweepKeys() {
	rates := &m.store.Keys.Rates
	for range fsm.SweepMax {
		k, ok := rates.Min()
		if !ok || k.At > m.scalars.Clock {
			return
		}
		m.setRateAt(k.Index, 0)
	}
}

// setRateAt changes the time at which the bucket of the key of a memory is full.
func (m *Machine) setRateAt(memory uint32, full fsm.Time) {
	k := m.store.Keys.Memory(memory)
	m.queues.byIndex[k.Queue()].keys.SetRateAt(k.Group(), full)
}

// loadKeys puts the keys that a snapshot brought into their lists.
func (m *Machine) loadKeys() {
	m.keys.Loading = false
	for group := range m.store.Keys.All() {
		m.queues.byIndex[m.store.Keys.At(group).Queue].keys.Load(group)
	}
}

// resetKeys moves the times of buckets as far after the new clock as they were after the old one.
// Then it puts every key where it belongs now, in the order in which the queues were created.
func (m *Machine) resetKeys(r *rule.Reset) {
	m.keys.Loading = false
	var late []uint32
	m.store.Keys.Rates.Ascend(store.Key{At: r.To + 1}, func(k store.Key) bool {
		late = append(late, k.Index)
		return true
	})
	for _, memory := range late {
		m.setRateAt(memory, r.To.Add(r.Left(m.store.Keys.Memory(memory).RateAt)))
	}
	var keyed []*queue
	for _, q := range m.queues.byIndex {
		if q != nil && q.keys != nil {
			keyed = append(keyed, q)
		}
	}
	groups := make([][]uint32, len(m.queues.byIndex)) // of each queue
	for group := range m.store.Keys.All() {
		queue := m.store.Keys.At(group).Queue
		groups[queue] = append(groups[queue], group)
	}
	slices.SortFunc(keyed, func(a, b *queue) int { return cmp.Compare(a.createSeq, b.createSeq) })
	for _, q := range keyed {
		q.keys.Rebuild(&m.record(q).Settings.Keys, groups[q.index])
	}
}
