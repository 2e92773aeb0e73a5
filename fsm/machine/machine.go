package machine

import (
	"fmt"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/activity"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/digest"
	"github.com/belfrydb/belfry/fsm/keys"
	"github.com/belfrydb/belfry/fsm/remembered"
	"github.com/belfrydb/belfry/fsm/schedules"
	"github.com/belfrydb/belfry/fsm/snapshot"
	"github.com/belfrydb/belfry/fsm/store"
)

// Machine is the state of one shard. The package comment says which methods may run beside others.
type Machine struct {
	cfg     fsm.Config
	applied uint64     // of the entry applied last
	format  fsm.Format // the highest of the entries applied, in which snapshots are written
	scalars fsm.Scalars
	sum     uint64 // of the hashes of all records, without the scalars and the queues that the current entry touched

	store     *store.Store
	keys      keys.Shard
	schedules schedules.Shard
	// remembered are requests and acked leases.
	remembered remembered.Shard
	queues     queues
	restored   fsm.RestoreMark
	activity   activity.Shard
	touched    []*queue     // by the current entry
	endings    []fsm.Ending // of the entry applied last
	leases     int          // how many jobs are reserved
	// restoring is set while Restore reads jobs. Their due times are counted afterwards.
	restoring bool
	scratch   codec.Scratch
}

// New returns the empty machine that every shard starts from.
func New(cfg fsm.Config) *Machine {
	m := &Machine{cfg: cfg.WithDefaults(), format: fsm.FirstFormat}
	m.store = store.New(m.cfg.Seed)
	m.keys = keys.Shard{Store: m.store, Scalars: &m.scalars, Sum: &m.sum, WakeMax: m.cfg.WakeMax}
	m.schedules = schedules.Shard{Store: m.store, Scalars: &m.scalars, Sum: &m.sum, Max: m.cfg.SchedulesMax}
	m.remembered = remembered.Shard{Store: m.store, Scalars: &m.scalars, Sum: &m.sum, Config: &m.cfg}
	m.queues = newQueues(m.store, m.cfg.Seed, &m.schedules)
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
		content = codec.EncodedHash(r.Encoded)
		known = m.store.Answers.Find(r.Caller, r.ID)
		if m.recall(known, &r, content, own) {
			e.Skip(r.Encoded)
			return results
		}
	}
	changed := false
	for i := range own {
		result, did := m.apply(e.NextCommand(), r.Client, before)
		own[i], changed = result, changed || did
	}
	if r.ID != "" && changed {
		if known != 0 {
			m.remembered.ForgetAnswer(known)
		}
		m.remembered.Remember(&fsm.Answer{Caller: r.Caller, ID: r.ID, Content: content, At: m.scalars.Clock, Results: own})
	}
	return results
}

// apply is the one switch over the commands. client is that of the request, before is the clock
// before this entry. It reports whether the command changed the state: then its request must be
// remembered.
func (m *Machine) apply(c fsm.Command, client string, before fsm.Time) (result fsm.Result, changed bool) {
	if m.restored.Open() && !whileRestoring(c.Kind()) {
		return fsm.Result{Code: fsm.Restoring}, false
	}
	switch c := c.(type) {
	case *fsm.Put:
		return m.put(c)
	case *fsm.Reserve:
		return m.reserve(c, client)
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
	case *fsm.PauseKey:
		return m.pauseKey(c)
	case *fsm.PurgeKey:
		return m.purgeKey(c)
	case *fsm.Kick:
		return m.kick(c)
	case *fsm.ReserveJob:
		return m.reserveJob(c, client)
	case *fsm.PutSchedule, *fsm.DeleteSchedule, *fsm.PauseSchedules, *fsm.Fire, *fsm.RunSchedule:
		return m.applySchedule(c)
	}
	panic(fmt.Sprintf("fsm: command %T has no rule", c))
}

// NextDeadline returns the earliest time at which a lease lapses, a job expires or a delayed job
// falls due. There is none while a restore is open.
func (m *Machine) NextDeadline() (fsm.Time, bool) {
	if m.restored.Open() {
		return 0, false
	}
	t, ok := m.queues.deadlines.First()
	return t.At, ok
}

// Snapshot returns the present state, in time proportional to the number of pages. The caller must
// call Release when it has read it.
func (m *Machine) Snapshot() *snapshot.Snapshot {
	return snapshot.New(&snapshot.Head{
		Format: m.format, Index: m.applied, Scalars: m.scalars, Digest: m.Digest(), Restored: m.restored,
	}, m.store.Pin())
}

// Release ends the use of a snapshot, which must not be read afterwards. Like Apply, it must not
// run beside any other method.
func (m *Machine) Release(*snapshot.Snapshot) { m.store.Unpin() }
