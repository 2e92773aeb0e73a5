package fsm

import (
	"cmp"
	"time"
)

// FIFOFormat is the format from which on priorities have 32 bits, jobs may keep their place in the
// line, and single jobs can be kicked, reserved and read by their serials. The protocol of
// beanstalkd needs all of it.
const FIFOFormat Format = 5

// The priorities of jobs. PriorityNarrow is the highest one before FIFOFormat.
const (
	PriorityMin    = -128
	PriorityNarrow = 127
	PriorityMax    = 1<<32 - 1
)

// UrgentBelow bounds the priorities that Queue.Urgent counts.
const UrgentBelow = 1024

// RankOf returns what a shard stores of a priority: a lower rank leaves first. There are as many
// ranks as there are priorities from PriorityMin to 4,294,967,167. All higher ones count as
// PriorityMax, and all lower ones as PriorityMin.
func RankOf(priority int64) uint32 {
	inRange := min(max(priority, PriorityMin), PriorityMax)
	return uint32(min(inRange-PriorityMin, PriorityMax)) //nolint:gosec // it is in range
}

// PriorityOf returns the priority of a rank.
func PriorityOf(rank uint32) int64 {
	if rank == PriorityMax {
		return PriorityMax
	}
	return int64(rank) + PriorityMin
}

// IsWide reports whether a priority needs FIFOFormat.
func IsWide(priority int64) bool { return priority < PriorityMin || priority > PriorityNarrow }

// Uses counts what happened to a FIFO job.
type Uses struct{ Reserves, Lapses, Releases, Buries, Kicks uint32 }

// OrNil returns a pointer to the counts, nil if all are 0.
func (u Uses) OrNil() *Uses {
	if u == (Uses{}) {
		return nil
	}
	counts := u // only these take memory: most jobs have none
	return &counts
}

// List returns the counts in the order of their encoding.
func (u *Uses) List() [5]uint32 {
	return [...]uint32{u.Reserves, u.Lapses, u.Releases, u.Buries, u.Kicks}
}

// Set takes what List returned.
func (u *Uses) Set(v [5]uint32) {
	u.Reserves, u.Lapses, u.Releases, u.Buries, u.Kicks = v[0], v[1], v[2], v[3], v[4]
}

// Kick makes jobs of a queue READY before their time. With a Serial it is that job, which must be
// DEAD or DELAYED. Results: Count 1. Codes: JobNotFound, with State READY if the job is READY;
// JobReserved, with State.
//
// Without a Serial it is the DEAD jobs, in the order of their list. If there is none, it is the
// DELAYED jobs, the soonest due first. Results: Count; More, if DEAD jobs are left, or DELAYED ones
// if it kicked such. Code: QueueNotFound.
type Kick struct {
	Queue  string
	Serial uint64
	// Max bounds the jobs of this command; 0 or more than StepMax means StepMax.
	Max uint32
}

// ReserveJob puts one job under a lease, also if it is DELAYED or DEAD or the queue is paused.
// Result: Grants, of one job. Codes: JobNotFound, also if the TTL of the job has passed, which then
// expires; JobReserved, with State; RateLimited, with State, if the queue has MaxInFlight jobs
// RESERVED, or the key of the job is held back.
type ReserveJob struct {
	Queue  string
	Serial uint64
	// TTR is the length of the lease; 0 means the job's own.
	TTR time.Duration
}

// Kind returns KindKick.
func (*Kick) Kind() Kind { return KindKick }

// Kind returns KindReserveJob.
func (*ReserveJob) Kind() Kind { return KindReserveJob }

// SerialQuery asks for the held job that has a serial, in whichever queue of the shard. After a
// restore several may have it: then the one that was put last. Reading: Jobs, with their bodies.
// Nodes before format 5 do not know it.
type SerialQuery struct{ Serial uint64 }

// FirstQuery asks for the first job of a queue in a state: the READY one that a Reserve would be
// granted next, whether or not the queue is paused; the DELAYED one that is due first; or the DEAD
// one that a Kick would take. Reading: Jobs, at most one, with its body. Nodes before format 5 do
// not know it.
type FirstQuery struct {
	Queue string
	State State
}

// Kind returns KindSerialQuery.
func (*SerialQuery) Kind() QueryKind { return KindSerialQuery }

// Kind returns KindFirstQuery.
func (*FirstQuery) Kind() QueryKind { return KindFirstQuery }

// fifoField returns the name in the API of the first field of a command that FIFOFormat added, empty if
// the command has none of them.
func fifoField(c Command) string {
	var put *Put
	switch c := c.(type) {
	case *Put:
		put = c
	case *PutSchedule:
		put = &c.Job
	case *Nack:
		if c.PriorityGiven {
			return "priority"
		}
	case *Release:
		if c.PriorityGiven {
			return "priority"
		}
	}
	switch {
	case put == nil || !PutNeedsFIFO(put):
		return ""
	case put.FIFO:
		return "fifo"
	default:
		return "priority"
	}
}

// PutNeedsFIFO reports whether a put, or the job of a schedule, needs FIFOFormat.
func PutNeedsFIFO(p *Put) bool { return p.FIFO || p.Given.Has(GivenPriority) && IsWide(p.Priority) }

// ListPlace returns the place of a job in the list of its state: its due time and serial. A READY FIFO
// job has the time of its put instead, and a DEAD one the time and the fence of its death. One whose death
// is not settled yet has no such fence: the one of its last lease counts, or its serial.
func (j *Job) ListPlace() Cursor {
	switch {
	case j.FIFO && j.State == Ready:
		return Cursor{Due: j.Created, Serial: j.Serial}
	case j.FIFO && j.State == Dead:
		return Cursor{Due: j.Died, Serial: cmp.Or(j.Fence, j.Serial)}
	default:
		return Cursor{Due: j.Due, Serial: j.Serial}
	}
}
