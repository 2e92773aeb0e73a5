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

// FiringBytes returns about how many bytes a request copies of schedules, into their jobs or because it
// changes them: their bodies are not in the request.
func (v View) FiringBytes(req *fsm.Request) (n uint64) {
	all := v.firings(req)
	for i := range all {
		n += all[i].bytes
	}
	return n
}

// firing is what one command puts for schedules, or changes of them.
type firing struct {
	queue string
	names []string
	runs  bool // it is a RunSchedule, which ends after some bytes of jobs
	jobs  uint64
	bytes uint64 // of the jobs, or of the schedules if there are none
}

// firings returns what the commands of a request put for schedules, and change of them.
func (v View) firings(req *fsm.Request) (all []firing) {
	for _, c := range req.Commands {
		switch c := c.(type) {
		case *fsm.Fire:
			f := firing{queue: c.Queue, names: []string{c.Name}}
			if c.Put != 0 {
				f.jobs = 1
			}
			all = append(all, f)
		case *fsm.RunSchedule:
			all = append(all, firing{queue: c.Queue, names: []string{c.Name}, runs: true, jobs: uint64(len(c.Times))})
		case *fsm.PauseSchedules:
			all = append(all, firing{queue: c.Queue, names: c.Names})
		}
	}
	if all == nil {
		return nil
	}
	v(func(m *machine.Machine, _ fsm.Time) {
		for i := range all {
			f := &all[i]
			if f.runs {
				f.jobs = min(f.jobs, m.RunJobs(f.queue, f.names[0]))
			}
			for _, name := range f.names {
				each := max(1, m.FiringBytes(f.queue, name))
				f.bytes = min(f.bytes+max(1, f.jobs)*each, max(fsm.FiringsBytesMax, each))
			}
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
