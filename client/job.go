package client

import (
	"context"
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// A State says where a job is in its life: "DELAYED", "READY", "RESERVED" or "DEAD"; or how an earlier job ended: "ACKED",
// "CANCELLED" or "EXPIRED". Empty if unknown.
type State string

const statePrefix = "JOB_STATE_"

// stateOf reads a state off the wire; one of a later version keeps its number.
func stateOf(s belfryv1.JobState) State {
	switch s {
	case belfryv1.JobState_JOB_STATE_UNSPECIFIED:
		return ""
	case belfryv1.JobState_JOB_STATE_DELAYED: // the three that most answers have
		return "DELAYED"
	case belfryv1.JobState_JOB_STATE_READY:
		return "READY"
	case belfryv1.JobState_JOB_STATE_RESERVED:
		return "RESERVED"
	default:
		return State(strings.TrimPrefix(s.String(), statePrefix))
	}
}

// wire gives the state's number, unspecified for the empty state; ok is false for a word that is no state.
func (s State) wire() (state belfryv1.JobState, ok bool) {
	if s == "" {
		return belfryv1.JobState_JOB_STATE_UNSPECIFIED, true
	}
	n, ok := belfryv1.JobState_value[statePrefix+string(s)]
	return belfryv1.JobState(n), ok
}

// A Job is one job, as Reserve, Get and List give it. Its fields may be read from several goroutines.
type Job struct {
	// Queue and ID name the job.
	Queue, ID string
	// Body is the content, byte for byte as it was put. Nil from List; BodyBytes is its size there too.
	Body      []byte
	BodyBytes int
	// Headers are those it was put with.
	Headers map[string]string
	// State is READY, DELAYED, …; RESERVED for jobs from Reserve.
	State State
	// Attempt is the running number of this reservation, 1 for the first; from Get and List, the attempts counted so far.
	Attempt int
	// MaxAttempts is how many failed attempts make the job dead, 0 for no limit.
	MaxAttempts int
	// Lease is the token that Ack and the like take; only in jobs from Reserve.
	Lease string
	// Fence only grows from one reservation of the job to the next. Pass it to the systems the work writes to, so that they
	// can refuse a holder that was overtaken.
	Fence uint64
	// LeaseUntil is the end of the lease as it was granted, on the server's clock. Zero if the job is not reserved.
	LeaseUntil time.Time
	// LeaseSince is when the lease was given, or extended last, from Get and List of reserved jobs. After an extension that was shorter than what was left it
	// may be later than that.
	LeaseSince time.Time
	// DueAt is when the job is or was due; FirstDueAt is what it was first put with.
	DueAt, FirstDueAt time.Time
	// CreatedAt is when it was put. ExpiresAt is the end of its TTL, zero if it has none.
	CreatedAt, ExpiresAt time.Time
	// EndedAt is when it ended, from [Client.Find]; zero if it has not. AttemptUnknown says that Attempt is not remembered.
	EndedAt        time.Time
	AttemptUnknown bool
	// Priority orders ready jobs; lower leaves first.
	Priority int
	// TTR is the length of its leases unless the consumer asks for another.
	TTR time.Duration
	// RetryDelays is what follows the first, second, … failed attempt; the last one repeats.
	RetryDelays []time.Duration
	// LastError is the error of the last nack, at most 1 KiB of it.
	LastError string

	client   *Client
	received time.Time     // when the answer came, on this machine's clock
	age      time.Duration // by how much the lease may have begun before that, beyond the margin of a leaseRenewer
	lease    time.Duration // its length
}

// jobOf reads a job off the wire. The body is shared with the message, which nothing else refers to.
func jobOf(c *Client, j *belfryv1.Job, received time.Time) *Job {
	job := &Job{
		Queue: j.GetQueue(), ID: j.GetId(), Body: j.GetData(), BodyBytes: int(j.GetBodyBytes()), Headers: j.GetHeaders(),
		State: stateOf(j.GetState()), Attempt: int(j.GetAttempt()), MaxAttempts: int(j.GetMaxAttempts()),
		Lease: j.GetLease(), Fence: j.GetFence(), Priority: int(j.GetPriority()), TTR: j.GetTtr().AsDuration(),
		LastError: j.GetLastError(), AttemptUnknown: j.GetAttemptUnknown(), client: c, received: received,
	}
	if text, ok := j.GetBody().(*belfryv1.Job_Text); ok {
		job.Body = []byte(text.Text)
	}
	for _, field := range []struct {
		to   *time.Time
		from interface {
			IsValid() bool
			AsTime() time.Time
		}
	}{
		{&job.LeaseUntil, j.GetLeaseUntil()}, {&job.DueAt, j.GetDueAt()}, {&job.FirstDueAt, j.GetFirstDueAt()},
		{&job.CreatedAt, j.GetCreatedAt()}, {&job.ExpiresAt, j.GetExpiresAt()},
		{&job.EndedAt, j.GetEndedAt()}, {&job.LeaseSince, j.GetLeaseSince()},
	} {
		if field.from.IsValid() {
			*field.to = field.from.AsTime()
		}
	}
	for _, d := range j.GetRetryDelays() {
		job.RetryDelays = append(job.RetryDelays, d.AsDuration())
	}
	if granted := j.GetWitness().GetTime(); granted.IsValid() && !job.LeaseUntil.IsZero() {
		job.lease = job.LeaseUntil.Sub(granted.AsTime())
	}
	return job
}

// ageBy gives how long ago a lease that was received at that time began by the wall clocks, when the servers' is ahead by so much; 0 if they do not
// say. Either clock may be wrong, so it is a reason to ask the server and none to give the lease up.
func (j *Job) ageBy(received time.Time, ahead time.Duration) time.Duration {
	if j.lease <= 0 || j.LeaseUntil.IsZero() {
		return 0
	}
	return max(0, received.Add(ahead).Sub(j.LeaseUntil)+j.lease)
}

// Ack ends the job as done; see [Client.Ack].
func (j *Job) Ack(ctx context.Context) error { return j.client.tracedAck(ctx, j.Lease, j) }

// Nack says that the attempt failed; see [Client.Nack].
func (j *Job) Nack(ctx context.Context, cause error) error {
	_, _, err := j.client.tracedNack(ctx, j.Lease, cause, j)
	return err
}

// Release gives the job back without counting the attempt; see [Client.Release].
func (j *Job) Release(ctx context.Context, delay time.Duration) error {
	_, _, err := j.client.tracedRelease(ctx, j.Lease, delay, j)
	return err
}

// Extend moves the end of the lease to ttr from now; see [Client.Extend].
func (j *Job) Extend(ctx context.Context, ttr time.Duration) (time.Time, error) {
	return j.client.Extend(ctx, j.Lease, ttr)
}
