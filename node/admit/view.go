package admit

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/machine"
)

// View runs f on a shard's machine as applied on this node, under a shared lock. now is the time
// for reads. f must be quick and must not keep memory of the machine.
type View func(f func(m *machine.Machine, now fsm.Time))

// knows reports whether a request is a repeat of one that the machine remembers, and adds nothing.
func (v View) knows(req *fsm.Request) (known bool) {
	v(func(m *machine.Machine, now fsm.Time) { known = m.Knows(req, now) })
	return known
}

// FiringBytes returns about how many bytes the jobs have that a request puts for schedules: their bodies
// are not in the request.
func (v View) FiringBytes(req *fsm.Request) (n uint64) {
	for _, f := range v.firings(req) {
		n += f.jobs * f.bytes
	}
	return n
}

// firing is what one command puts for a schedule.
type firing struct {
	queue       string
	jobs, bytes uint64 // bytes of each
}

// firings returns what the commands of a request put for schedules.
func (v View) firings(req *fsm.Request) (all []firing) {
	var names []string
	for _, c := range req.Commands {
		switch c := c.(type) {
		case *fsm.Fire:
			if c.Put != 0 {
				all, names = append(all, firing{queue: c.Queue, jobs: 1}), append(names, c.Name)
			}
		case *fsm.RunSchedule:
			all, names = append(all, firing{queue: c.Queue, jobs: uint64(len(c.Times))}), append(names, c.Name)
		}
	}
	if all == nil {
		return nil
	}
	v(func(m *machine.Machine, _ fsm.Time) {
		for i := range all {
			f := &all[i]
			f.bytes = max(1, m.FiringBytes(f.queue, names[i]))
			f.jobs = min(f.jobs, fsm.FiringsBytesMax/f.bytes+1)
		}
	})
	return all
}

// Remembers reports whether the machine knows the answer to a Reserve: live grants of an earlier
// attempt, or the refusal of other content under the same id.
func (v View) Remembers(req *fsm.Request) (remembered bool) {
	v(func(m *machine.Machine, now fsm.Time) {
		grants, code := m.Recall(req, now)
		remembered = len(grants) > 0 || code != fsm.OK
	})
	return remembered
}

// Available returns how many jobs of each queue may be reserved now.
func (v View) Available(queues []string) []uint64 {
	jobs := make([]uint64, len(queues))
	v(func(m *machine.Machine, now fsm.Time) {
		for i, name := range queues {
			jobs[i], _ = m.Available(name, now)
		}
	})
	return jobs
}
