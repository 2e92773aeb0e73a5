package wire

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/fsm"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// AppendJobs converts the jobs of readings. It does not copy their bodies.
func AppendJobs(out []*belfryv1.Job, jobs []fsm.Job, readings ...fsm.Reading) []*belfryv1.Job {
	var latest fsm.Time
	for i := range readings {
		latest = max(latest, readings[i].Clock)
	}
	slots := make([]jobSlot, len(jobs))
	out = slices.Grow(out, len(jobs))
	for i := range jobs {
		job := slots[i].fill(&jobs[i])
		if jobs[i].State == fsm.Reserved {
			// An extension shorter than the rest of the lease does not shorten it. The computed begin is
			// then later than the real one, or in the future.
			job.LeaseSince = FloorTime(min(jobs[i].Until-fsm.Time(jobs[i].LeaseTTR), latest))
			job.Client, job.ReservedAt = jobs[i].Client, FloorTime(jobs[i].Leased)
		}
		if jobs[i].State == fsm.Dead {
			job.Cause = fsm.Fingerprint(jobs[i].LastError)
		}
		job.Attempts = attempts(jobs[i].Attempts)
		if next := jobs[i].Next; next != nil {
			job.Next = &belfryv1.Successor{Version: next.Version, DueAt: CeilTime(next.FirstDue)}
		}
		out = append(out, job)
	}
	return out
}

// attempts converts the attempts of a job.
func attempts(list []fsm.Attempt) []*belfryv1.Attempt {
	var out []*belfryv1.Attempt
	for i := range list {
		a := &list[i]
		out = append(out, &belfryv1.Attempt{
			Number: a.Number, BeganAt: FloorTime(a.Began), EndedAt: FloorTime(a.Ended), Lapsed: a.Lapsed, Client: a.Client,
			Error: a.Error,
		})
	}
	return out
}

// jobSlot is the memory of one job on the wire, including its nested messages, so that one
// allocation serves many jobs. It is filled once, and lives as long as any of its messages.
type jobSlot struct {
	job                             belfryv1.Job
	data                            belfryv1.Job_Data
	ttr                             durationpb.Duration
	due, first, created, end, until timestamppb.Timestamp
}

// fill converts a job of a reading. It sets no body if the job has none.
func (s *jobSlot) fill(job *fsm.Job) *belfryv1.Job {
	out := &s.job
	out.Queue, out.Id, out.Fence, out.Attempt = job.Queue, job.ID, job.Fence, job.Attempt
	out.DueAt, out.FirstDueAt = ceilTimeIn(&s.due, job.Due), ceilTimeIn(&s.first, job.FirstDue)
	out.CreatedAt, out.ExpiresAt = floorTimeIn(&s.created, job.Created), floorTimeIn(&s.end, job.TTL)
	out.State, out.Priority = State(job.State), job.Priority
	s.ttr.Seconds, s.ttr.Nanos = int64(job.TTR/time.Second), int32(job.TTR%time.Second)
	out.Ttr, out.MaxAttempts, out.RetryDelays = &s.ttr, job.MaxAttempts, Durations(job.RetryDelays)
	out.LastError, out.BodyBytes = job.LastError, job.BodyBytes
	out.Key, out.Version = job.Key, JobVersion(job)
	if job.End != nil {
		s.fillEnded(job)
	}
	if job.State == fsm.Reserved {
		out.LeaseUntil = floorTimeIn(&s.until, job.Until)
	}
	if len(job.Headers) > 0 {
		out.Headers = make(map[string]string, len(job.Headers))
		for _, h := range job.Headers {
			out.Headers[h.Name] = h.Value
		}
	}
	if job.Body != nil {
		s.data.Data = job.Body
		out.Body = &s.data
	}
	return out
}

// fillEnded sets the fields of a job that has ended, and clears the unknown ones.
func (s *jobSlot) fillEnded(job *fsm.Job) {
	out := &s.job
	out.Ttr, out.EndedAt = nil, FloorTime(job.End.At)
	if job.End.AttemptUnknown {
		out.AttemptUnknown = &job.End.AttemptUnknown
	}
}

// ceilTimeIn is CeilTime into an existing message.
func ceilTimeIn(out *timestamppb.Timestamp, t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	setCeilTime(out, t)
	return out
}

// floorTimeIn is FloorTime into an existing message.
func floorTimeIn(out *timestamppb.Timestamp, t fsm.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	setFloorTime(out, t)
	return out
}

// ScheduleJobID returns the id of the job of a schedule's firing.
func ScheduleJobID(name string, nominal *timestamppb.Timestamp) string {
	return fsm.ScheduleJobID(name, fsm.Time(nominal.AsTime().UnixNano()))
}

// ScheduleOf returns the name of the schedule that a job belongs to by its id; false if it belongs to none.
func ScheduleOf(id string) (name string, ok bool) { return fsm.ScheduleOf(id) }
