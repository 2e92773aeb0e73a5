package schedules

import (
	"bytes"
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/store"
)

// Shard is what the schedules of a shard have in common.
type Shard struct {
	Store   *store.Store
	Scalars *fsm.Scalars
	// Sum is the digest of the records of the shard, which the schedules are part of.
	Sum *uint64
	// Max bounds the schedules of the shard.
	Max int
}

// Queue has the schedules of a queue by name. A schedule is known by its index, which is never 0.
type Queue struct {
	shard *Shard
	index uint32 // of the record of the queue
	name  string
	names *btree.BTreeG[named] // nil while there was none
}

type named struct {
	name  string
	index uint32
}

// namesDegree is where inserting is fastest for many names.
const namesDegree = 64

// New returns the schedules of a queue that has none.
func New(shard *Shard, index uint32, name string) Queue {
	return Queue{shard: shard, index: index, name: name}
}

// Len is the number of schedules.
func (q *Queue) Len() int {
	if q.names == nil {
		return 0
	}
	return q.names.Len()
}

// Find returns the index of a schedule, 0 if there is none of that name.
func (q *Queue) Find(name string) uint32 { return q.shard.Store.Schedules.Find(q.index, name) }

// Get returns a schedule. The body of its job aliases the store until the next change.
func (q *Queue) Get(index uint32) fsm.Schedule {
	s := q.shard.Store.Schedules.Schedule(index)
	s.Queue = q.name
	return s
}

// Add stores a schedule of a new name.
func (q *Queue) Add(s *fsm.Schedule) {
	if q.names == nil {
		q.names = btree.NewG(namesDegree, func(a, b named) bool { return a.name < b.name })
	}
	all := &q.shard.Store.Schedules
	index := all.Add(q.index, s)
	q.names.ReplaceOrInsert(named{strings.Clone(s.Name), index})
	*q.shard.Sum += all.Hash(index, q.name)
}

// Set replaces a schedule.
func (q *Queue) Set(index uint32, s *fsm.Schedule) {
	all := &q.shard.Store.Schedules
	*q.shard.Sum -= all.Hash(index, q.name)
	all.Replace(index, s)
	*q.shard.Sum += all.Hash(index, q.name)
}

// Remove removes a schedule.
func (q *Queue) Remove(index uint32) {
	all := &q.shard.Store.Schedules
	*q.shard.Sum -= all.Hash(index, q.name)
	q.names.Delete(named{name: string(all.Name(index))})
	all.Remove(index)
}

// Put carries out a PutSchedule in a queue that is there. It reports whether anything changed.
func (q *Queue) Put(c *fsm.PutSchedule) (fsm.Result, bool) {
	index := q.Find(c.Name)
	var s fsm.Schedule
	if index != 0 {
		s = q.Get(index)
	}
	scalars := q.shard.Scalars
	switch {
	case c.IfVersion != 0 && c.IfVersion != s.Version:
		return fsm.Result{Code: fsm.VersionChanged, Version: s.Version}, false
	case index == 0 && q.shard.Store.Schedules.Len() >= q.shard.Max:
		return fsm.Result{Code: fsm.Quota}, false
	case index == 0:
		scalars.Serial++
		s = fsm.Schedule{
			Name: c.Name, Serial: scalars.Serial, Created: scalars.Clock,
			Version: fsm.FirstVersion(c.Partition, scalars.Serial) - 1, // Redefine takes the next one
		}
		Redefine(&s, c, scalars.Clock)
		q.Add(&s)
		return fsm.Result{Created: true, Serial: s.Serial, Version: s.Version, Due: s.Next}, true
	}
	before := codec.AppendDefinition(nil, &s.Spec, &s.Policy, &s.Job)
	if bytes.Equal(before, codec.AppendDefinition(nil, &c.Spec, &c.Policy, &c.Job)) {
		return fsm.Result{Serial: s.Serial, Version: s.Version, Due: s.Next}, false
	}
	Redefine(&s, c, scalars.Clock)
	scalars.Serial = max(scalars.Serial, fsm.VersionSerial(s.Version)) // so a later one of the name begins above it
	q.Set(index, &s)
	return fsm.Result{Replaced: true, Serial: s.Serial, Version: s.Version, Due: s.Next}, true
}

// Pause carries out a PauseSchedules.
func (q *Queue) Pause(c *fsm.PauseSchedules) (r fsm.Result) {
	bytes := uint64(0)
	for _, name := range c.Names {
		index := q.Find(name)
		if index == 0 {
			continue
		}
		if s := q.Get(index); s.Paused == c.Resume {
			if r.More = bytes >= fsm.FiringsBytesMax; r.More {
				break
			}
			s.Paused, s.Note = !c.Resume, c.Note
			q.Set(index, &s)
			r.Count++
			bytes += fsm.ScheduleBytes(s.Name, &s.Job)
		}
	}
	return r
}

// Dead takes note that a job became DEAD: its schedule may be paused for that. The job may be of an
// earlier schedule of the name: then its serial is below that of the schedule.
func (q *Queue) Dead(id string, serial uint64) {
	name, ok := fsm.ScheduleOf(id)
	if !ok {
		return
	}
	if index := q.Find(name); index != 0 {
		if s := q.Get(index); s.Policy.PauseOnDead && !s.Paused && serial > s.Serial {
			s.Paused, s.Note = true, "job "+id+" is dead"
			q.Set(index, &s)
		}
	}
}

// KeepHeld drops the jobs from those that a schedule remembers that have ended, and returns the states
// of the others.
func (q *Queue) KeepHeld(s *fsm.Schedule) (states []fsm.State) {
	s.Jobs = slices.DeleteFunc(s.Jobs, func(serial uint64) bool {
		index := q.shard.Store.BySerial(q.index, serial)
		if index == 0 || q.shard.Store.Slot(index).State() == fsm.Dead {
			return true
		}
		states = append(states, q.shard.Store.Slot(index).State())
		return false
	})
	return states
}

// Page answers a query for schedules. A nil queue has none.
func (q *Queue) Page(query *fsm.SchedulesQuery) (r fsm.Reading) {
	if q == nil || q.names == nil {
		return r
	}
	add := func(index uint32) {
		s := q.Get(index)
		s.Job.Body = nil
		r.Schedules = append(r.Schedules, s)
	}
	for _, name := range query.Names {
		if index := q.Find(name); index != 0 {
			add(index)
		}
	}
	if len(query.Names) > 0 {
		return r
	}
	q.names.AscendGreaterOrEqual(named{name: max(query.After, query.Prefix)}, func(n named) bool {
		switch {
		case n.name == query.After && n.name != "":
			return true
		case !strings.HasPrefix(n.name, query.Prefix):
			return false
		case len(r.Schedules) >= query.Max:
			r.More = true
			return false
		}
		add(n.index)
		return true
	})
	return r
}

// Named answers a query for one schedule. A nil queue has none.
func (q *Queue) Named(name string) (r fsm.Reading) {
	if q == nil || q.Find(name) == 0 {
		return r
	}
	s := q.Get(q.Find(name))
	s.Job.Body = bytes.Clone(s.Job.Body)
	return fsm.Reading{Schedules: []fsm.Schedule{s}}
}

// Drop removes schedules by name, at most so many.
func (q *Queue) Drop(most uint64) {
	for ; most > 0 && q.Len() > 0; most-- {
		first, _ := q.names.Min()
		q.Remove(first.index)
	}
}

// Reset moves the times at which schedules were changed and dealt with to a clock that was set back,
// at the latest.
func (q *Queue) Reset(to fsm.Time) {
	if q.names == nil {
		return
	}
	q.names.Ascend(func(n named) bool {
		s := q.Get(n.index)
		s.Created, s.Changed = min(s.Created, to), min(s.Changed, to)
		for i := range s.Recent {
			s.Recent[i].At = min(s.Recent[i].At, to)
		}
		q.Set(n.index, &s)
		return true
	})
}

// JobBytes returns about how many bytes a schedule has, and at least as many as a job of it; 0 if there is
// none of that name. Each change of the schedule copies them.
func (q *Queue) JobBytes(name string) uint64 {
	if index := q.Find(name); index != 0 {
		return jobBytes(&q.shard.Store.Schedules, index)
	}
	return 0
}

// jobBytes is JobBytes of a schedule: a job has its name twice, in the id and in a header.
func jobBytes(all *store.Schedules, index uint32) uint64 {
	const rest = len(fsm.SchedulePrefix+"@"+timeMax) + len(fsm.HeaderNominal+timeMax) + len(fsm.HeaderSchedule)
	return uint64(len(all.Encoded(index)) + 2*len(all.Name(index)) + rest)
}

// timeMax is a nominal time with as many digits as it may have.
const timeMax = "2100-01-01T00:00:00.123456789Z"

// Firing returns the put of the job of a nominal time.
func (q *Queue) Firing(s *fsm.Schedule, nominal fsm.Time) fsm.Put {
	p := s.Job
	p.Queue, p.ID = q.name, fsm.ScheduleJobID(s.Name, nominal)
	p.Headers = slices.DeleteFunc(slices.Clone(p.Headers), func(h fsm.Header) bool {
		return h.Name == fsm.HeaderNominal || h.Name == fsm.HeaderSchedule
	})
	p.Headers = append(p.Headers,
		fsm.Header{Name: fsm.HeaderNominal, Value: p.ID[strings.LastIndexByte(p.ID, '@')+1:]},
		fsm.Header{Name: fsm.HeaderSchedule, Value: s.Name})
	slices.SortFunc(p.Headers, func(a, b fsm.Header) int { return strings.Compare(a.Name, b.Name) })
	return p
}
